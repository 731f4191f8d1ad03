"""Tries a reference: by running it where its code is trusted, by reading it otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from flashrt.document.problem import Problem
from flashrt.document.yaml_source import load_yaml
from flashrt.spec.draw import Case, draw
from flashrt.spec.draw_sizes import NoSize
from flashrt.spec.model import Kind, StructureSpec
from flashrt.spec.reference import load_reference, trusted
from flashrt.spec.registry import load, root_for
from flashrt_runtime.reason import Reason, Refusal

CASES = 8


def try_reference(spec: StructureSpec, trust: Iterable[Path] = ()) -> list[Problem]:
    """What is wrong with the reference of a spec; empty when nothing is.

    Trusted code is loaded and run on drawn cases, in float32 and in bfloat16: every output and
    point must come back with the spec's own shape and dtype and finite, and the cost must be one.
    Code outside the packaged catalog and ``trust`` is only parsed.
    """
    folders = tuple(trust)
    if spec.reference is None or not trusted(spec.reference, folders):
        return read_reference(spec)
    apart = list(_parts(spec))
    if apart:
        return apart
    try:
        reference = load_reference(spec, folders)
        for case in chain(draw(spec, CASES), _narrow(spec)):
            reference.cost(case.dims, case.variant)
            reference.outputs_fit(case.inputs, case.weights, case.variant)
    except NoSize as error:
        lines = load_yaml(spec.path)
        do = "no case can be drawn: write what small sizes satisfy"
        line = lines.line(error.path)
        return [Problem(lines.file, line, error.path, error.what, do, error.reason)]
    except Refusal as error:
        return [Problem(str(spec.reference), 1, "$", error.what, error.do, error.reason)]
    return []


def read_reference(spec: StructureSpec) -> list[Problem]:
    """What can be said without running anything, and without torch.

    The parts that the spec composes must be regions of its own catalog or of the packaged one, and
    the reference must be Python that defines its two functions.
    """
    if spec.reference is None:
        return []
    return [*_parts(spec), *_parsed(spec.reference)]


def _narrow(spec: StructureSpec) -> Iterator[Case]:
    import torch

    yield from draw(spec, CASES // 4, seed=1, dtype=torch.bfloat16)


def _parts(spec: StructureSpec) -> Iterator[Problem]:
    """Parts that are not there, or that are no region."""
    own = spec.path.resolve().parent
    own = own.parent if re.fullmatch(r"v[0-9]+", own.name) else own
    lines = load_yaml(spec.path)
    for i, part in enumerate(spec.composes):
        path = f"$.composes[{i}]"
        try:
            found = load(part, root=root_for(part, [own.parent]))
        except Refusal as error:
            what = f"{error.subject}: {error.what}"
            yield Problem(lines.file, lines.line(path), path, what, error.do, error.reason)
            continue
        if found.kind is not Kind.REGION:
            what = f"{part} is a {found.kind.value}"
            do = "name regions"
            yield Problem(lines.file, lines.line(path), path, what, do, Reason.STRUCTURE)


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
