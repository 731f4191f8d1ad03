"""Options that several commands share, and the stores and releases that they open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flashrt.receipt.store import Store
    from flashrt.release.source import Verifier

DEFAULT_STORE = Path(".flashrt/store")


def _folder(name: str | Path) -> Path:
    if not str(name):  # an unset variable in a script: the current folder was not meant
        raise typer.BadParameter("an empty name is no folder; write . for the current one")
    return Path(name)


StoreOption = Annotated[
    Path,
    typer.Option("--store", help="Folder of the receipt store.", parser=_folder, metavar="<path>"),
]


def open_store(root: Path) -> Store:
    """The store. Raises ``InputError`` for a folder that is not there, unless it is the default."""
    from flashrt.document.problem import InputError
    from flashrt.receipt.store import Store

    if root != DEFAULT_STORE and not root.is_dir():
        raise InputError(str(root), 1, "$", "there is no receipt store here", "see --store")
    return Store(root)


def empty(root: Path) -> str:
    """What to say of a store that holds nothing asked for."""
    return f"{root} holds no receipts; `flashrt qualify` earns one, --store names another folder"


def open_verifier() -> Verifier:
    """Recomputes a receipt with the catalog's own gates."""
    from flashrt.receipt.spec_gates import catalog_gates
    from flashrt.receipt.verify import verify

    return lambda receipt: verify(receipt, catalog_gates)
