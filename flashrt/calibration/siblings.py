"""Watches whether q, k and v are still called in one order, on one tensor, in every frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flashrt_runtime.contract import Seam

if TYPE_CHECKING:
    import torch

_ROLES = {"q", "k", "v"}


class SiblingWatch:
    """Discovery saw one forward; what it saw of siblings has to hold in every other as well.

    Only seams whose members are q, k and v are watched: one product stands for their three calls.
    """

    def __init__(self, model: torch.nn.Module, seams: Sequence[Seam]) -> None:
        self._model = model
        self._packs = [seam for seam in seams if set(seam.members) == _ROLES]
        self._next = [0] * len(self._packs)
        self._read: list[tuple[Any, int]] = [(None, -1)] * len(self._packs)
        self._broken: str | None = None

    def _hook(self, pack: int, place: int) -> Any:
        import torch

        def hook(_module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            values = (*args, *kwargs.values())
            tensor = next((v for v in values if isinstance(v, torch.Tensor)), None)
            counted = tensor is not None and not tensor.is_inference()
            read = (tensor, tensor._version if counted and tensor is not None else -1)
            if place == 0 and self._next[pack] == 0:
                self._read[pack] = read
            first, version = self._read[pack]
            held = self._next[pack] == place and read[0] is first and read[1] == version
            if not held and self._broken is None:
                self._broken = self._packs[pack].id
            self._next[pack] = (place + 1) % len(_ROLES)
            if self._next[pack] == 0:
                self._read[pack] = (None, -1)

        return hook

    @contextmanager
    def attached(self) -> Iterator[SiblingWatch]:
        """Hooks on, for as long as the block runs."""
        handles = []
        try:
            for pack, seam in enumerate(self._packs):
                for place, path in enumerate(seam.members.values()):
                    module = self._model.get_submodule(path)
                    hook = self._hook(pack, place)
                    handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def take(self) -> str | None:
        """The id of the first seam whose siblings did otherwise since the last take, if any."""
        open_packs = [self._packs[i].id for i, at in enumerate(self._next) if at]
        broken = self._broken or (open_packs[0] if open_packs else None)
        self._broken = None
        self._next = [0] * len(self._packs)
        return broken
