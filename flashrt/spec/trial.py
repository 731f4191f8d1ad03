"""Tries a reference: by running it where its code is trusted, by reading it otherwise."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from flashrt.document.problem import Problem
from flashrt.spec.harness import draw
from flashrt.spec.model import StructureSpec
from flashrt.spec.reference import load_reference, trusted
from flashrt_runtime.reason import Reason, Refusal

CASES = 8


def try_reference(spec: StructureSpec, trust: Iterable[Path] = ()) -> list[Problem]:
    """What is wrong with the reference of a spec; empty when nothing is.

    Trusted code is loaded and run on drawn cases: every output and point must come back with the
    spec's own shape and finite, and the cost must be one. Code outside the packaged catalog and
    ``trust`` is only parsed.
    """
    if spec.reference is None:
        return []
    folders = tuple(trust)
    if not trusted(spec.reference, folders):
        return _parsed(spec.reference)
    try:
        reference = load_reference(spec, folders)
        for case in draw(spec, CASES):
            reference.cost(case.dims, case.variant)
            reference.outputs_fit(case.inputs, case.weights, case.variant)
    except Refusal as error:
        return [Problem(str(spec.reference), 1, "$", error.what, error.do, error.reason)]
    return []


def _parsed(file: Path) -> list[Problem]:
    try:
        source = file.read_bytes()
        tree = ast.parse(source, filename=str(file))
        compile(tree, str(file), "exec")  # what the grammar alone does not refuse; nothing runs
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        return [Problem(str(file), line, "$", f"not Python: {error}", "", Reason.STRUCTURE)]
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return [
        Problem(
            str(file), 1, "$", f"it has no function {name}", f"define {name}(…)", Reason.STRUCTURE
        )
        for name in ("reference", "cost")
        if name not in defined
    ]
