"""Designs: named questions with whole setups, from the catalog or from a file of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flashrt.document.problem import InputError, Problem
from flashrt.document.yaml_source import Document, load_yaml
from flashrt.lab.execution.setup import Setup
from flashrt.lab.execution.spec import compose
from flashrt.lab.records import DesignReference, ExperimentDesign
from flashrt.spec.registry import catalog_root
from flashrt_runtime.reason import Reason, Refusal

_PATH = re.compile(r"^ExperimentDesign((?:\.\w+|\[\d+\])*)")
_NAME = re.compile(r"[A-Za-z0-9_.+-]+")  # it stands in a command and in tables


@dataclass(frozen=True)
class DesignFile:
    """A design, the file it was read from and the digest of that file's bytes."""

    design: ExperimentDesign
    file: str
    digest: str

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms' names in order."""
        return tuple(arm.name for arm in self.design.arms)

    def setup(self, arm: str | None) -> Setup:
        """The setup of an arm, or of the only one.

        Raises :class:`InputError` where there are several and none is named, or none is so named.
        """
        if arm is None and len(self.arms) == 1:
            arm = self.arms[0]
        if arm not in self.arms:
            what = f"it has {len(self.arms)} arms" if arm is None else f"it has no arm {arm!r}"
            do = f"give --arm: one of {', '.join(self.arms)}; or `flashrt lab sweep` runs them all"
            raise InputError(self.file, 1, "$.arms", what, do)
        return _setup(self.design, self.arms.index(arm), self.digest)


def designs_root() -> Path:
    """The packaged designs' folder."""
    return catalog_root() / "designs"


def list_designs() -> Iterator[DesignFile]:
    """Every packaged design, by name. Raises :class:`InputError` at one that is none."""
    for path in sorted(designs_root().glob("*.yaml")):
        yield read_design(path)


def find_design(said: str) -> DesignFile:
    """The design of a name of the catalog, or of a file. Raises :class:`InputError`."""
    named = designs_root() / f"{said}.yaml"
    if re.fullmatch(r"\w+", said) and named.is_file():
        return read_design(named)
    if Path(said).is_file():
        return read_design(Path(said))
    known = ", ".join(path.stem for path in sorted(designs_root().glob("*.yaml")))
    what = "no such design, and no such file"
    raise InputError(said, 1, "$", what, f"name one of {known}", reason=Reason.UNKNOWN_CELL)


def read_design(path: Path) -> DesignFile:
    """Read and check a design's file. Raises :class:`InputError` that names file, line and path."""
    return design_of(load_yaml(path))


def design_of(document: Document) -> DesignFile:
    """As :func:`read_design`, from a document that was parsed."""
    design = _shaped(document)
    problems = list(_misfits(document, design))
    if problems:
        raise InputError.of(problems)
    return DesignFile(design, document.file, document.digest)


def problems_of(document: Document) -> list[Problem]:
    """What is wrong with a design; nothing where it is one."""
    try:
        design_of(document)
    except InputError as error:
        return list(error.problems)
    return []


def _shaped(document: Document) -> ExperimentDesign:
    if not isinstance(document.value, dict):
        raise InputError(document.file, 1, "$", "an object was expected", "write key: value")
    try:
        return ExperimentDesign.from_record(document.value)
    except Refusal as error:
        found = _PATH.match(error.subject)
        path = f"${found[1]}" if found else "$"
        what = error.what if found else f"{error.subject}: {error.what}".removeprefix(": ")
        do = error.do or "see the designs in catalog/designs"
        line = document.line(path)
        raise InputError(document.file, line, path, what, do, reason=error.reason) from error


def _misfits(document: Document, design: ExperimentDesign) -> Iterator[Problem]:
    """What is wrong with a design whose shape is right."""

    def problem(path: str, what: str, do: str, reason: Reason = Reason.CONFLICT) -> Problem:
        return Problem(document.file, document.line(path), path, what, do, reason)

    names = [arm.name for arm in design.arms]
    named = {"$.name": design.name} | {f"$.arms[{i}].name": name for i, name in enumerate(names)}
    for path, name in named.items():
        if not _NAME.fullmatch(name):
            yield problem(path, f"{name!r} is no name", "use letters, digits and _ . + -")
    if not design.question.strip():
        yield problem("$.question", "it asks nothing", "write one question")
    if not design.subjects:
        yield problem("$.subjects", "it is about no owner", "name at least one of the ontology")
    if not names:
        yield problem("$.arms", "it has no arm", "write at least one, with a name and settings")
    for index, name in enumerate(names):
        path = f"$.arms[{index}]"
        if name in names[:index]:
            yield problem(path, f"an arm before is named {name!r} too", "name it otherwise")
        try:
            _setup(design, index, document.digest)
        except Refusal as error:
            what = f"{error.subject}: {error.what}"
            yield problem(path, what, error.do, error.reason)


def _setup(design: ExperimentDesign, index: int, digest: str) -> Setup:
    arm = design.arms[index]
    return Setup(
        compose(design.settings, arm.settings),
        design.workload,
        design.customers,
        design.graph,
        design.placement,
        DesignReference(design.name, arm.name, digest),
    )
