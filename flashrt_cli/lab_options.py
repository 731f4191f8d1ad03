"""What the lab's commands share: options, and how times and records are shown."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from flashrt.lab.execution import ExecutionStore, LabModel, StoredExecution

DEFAULT_STORE = Path(".flashrt/lab")


def _folder(name: str | Path) -> Path:
    if not str(name):  # an unset variable in a script: the current folder was not meant
        raise typer.BadParameter("an empty name is no folder; write . for the current one")
    return Path(name)


LabStoreOption = Annotated[
    Path,
    typer.Option("--store", help="Folder of the lab's records.", parser=_folder, metavar="<path>"),
]
ArtifactOption = Annotated[
    Path | None,
    typer.Option(
        "--artifact",
        help="Folder of a model that `flashrt lab prepare` made; the committed one by default.",
    ),
]
DesignArgument = Annotated[
    str, typer.Argument(metavar="DESIGN", help="A design's name (`flashrt lab designs`) or file.")
]


def open_lab(root: Path) -> ExecutionStore:
    """The store. Raises ``InputError`` for a folder that is not there, unless it is the default."""
    from flashrt.document.problem import InputError
    from flashrt.lab.execution import ExecutionStore

    if root != DEFAULT_STORE and not root.is_dir():
        raise InputError(str(root), 1, "$", "there is no store of the lab here", "see --store")
    return ExecutionStore(root)


def read_named(said: str, store: Path) -> StoredExecution:
    """The record that a path, a digest or its beginning names. Raises ``InputError``."""
    from flashrt.lab.execution import read_execution

    return read_execution(open_lab(store).find(said))


def open_model(folder: Path | None) -> LabModel:
    """The model that executes. Raises ``Refusal`` as its loader does."""
    from flashrt.lab.execution import load_model

    return load_model(folder)


def us(value: Fraction | None) -> str:
    """Virtual microseconds for a person: whole ones as they are, others to three places."""
    if value is None:
        return "-"
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.3f}"


def exactly(value: Fraction | None) -> Any:
    """Virtual microseconds for a program: an integer or ``"p/q"``."""
    from flashrt.record import exact_text

    return None if value is None else exact_text(value)
