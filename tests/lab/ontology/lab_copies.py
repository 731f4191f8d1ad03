"""Changed copies of the ontology and of the code that it is held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import yaml

from flashrt.document.problem import Problem
from flashrt.lab.ontology import Code, check, load, packaged_code
from flashrt.lab.records import Says
from flashrt.spec.registry import catalog_root

ONTOLOGY = catalog_root() / "ontology.yaml"
Change = Callable[[dict[str, Any]], None]


def written(folder: Path, change: Change) -> Path:
    """A copy of the ontology with a change, as a file."""
    body = yaml.load(ONTOLOGY.read_text(), Loader=yaml.CSafeLoader)
    change(body)
    path = folder / "ontology.yaml"
    path.write_text(yaml.dump(body, Dumper=yaml.CSafeDumper, sort_keys=False, width=1000))
    return path


def found(folder: Path, change: Change, code: Code | None = None) -> list[Problem]:
    """What is wrong with a changed copy of the ontology beside some code."""
    return check(load(written(folder, change)), code or packaged_code())


def as_it_is(body: dict[str, Any]) -> None:
    """No change."""


def with_field(cls: type, name: str, hint: Any) -> type:
    """A copy of a record class that has one field more."""
    noted = Annotated[hint, Says("What a test adds.")]
    return make_dataclass(cls.__name__, [(name, noted, None)], bases=(cls,), frozen=True)


def with_records(*classes: type) -> Code:
    """The code with some record classes changed."""
    code = packaged_code()
    changed = {cls.__name__: cls for cls in classes}
    return replace(code, records={**code.records, **changed})


def said(problems: list[Problem]) -> list[str]:
    """What the problems say."""
    return [problem.what for problem in problems]
