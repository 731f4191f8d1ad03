"""The specs that a run has loaded: each is read once, however many regions name it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashrt.spec.model import StructureSpec
from flashrt.spec.registry import load, root_for
from flashrt_runtime.reason import Refusal


class Shelf:
    """Specs by ``name@version``, from the caller's catalogs first and the packaged one else."""

    def __init__(self, catalogs: Sequence[Path] = ()) -> None:
        self.catalogs = tuple(catalogs)
        self._held: dict[str, StructureSpec | Refusal] = {}

    def get(self, structure: str) -> StructureSpec:
        """The spec. Raises what :func:`flashrt.spec.registry.load` raised for it."""
        if structure not in self._held:
            try:
                root = root_for(structure, self.catalogs)
                self._held[structure] = load(structure, root=root)
            except Refusal as error:
                self._held[structure] = error
        found = self._held[structure]
        if isinstance(found, Refusal):
            raise found
        return found
