"""Watches whether q, k and v are still called in one order, on one tensor, in every frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

from flashrt_runtime.contract import Seam

if TYPE_CHECKING:
    import torch

_ROLES = {"q", "k", "v"}


class SiblingWatch:
    """Discovery saw one forward; what it saw of siblings has to hold in every other as well.

    Only seams whose members are q, k and v are watched: one product stands for their three calls.
    That they read one tensor object is not enough: it is compared bit by bit with what it was, for
    a write under inference mode, through ``.data`` or by a kernel counts no version up.
    """

    def __init__(self, model: torch.nn.Module, seams: Sequence[Seam]) -> None:
        self._model = model
        self._packs = [seam for seam in seams if set(seam.members) == _ROLES]
        self._next = [0] * len(self._packs)
        self._read: list[_Read | None] = [None] * len(self._packs)
        self._wrote: list[Any] = [None] * len(self._packs)  # bool on the device, read once a frame
        self._broken: str | None = None
        self._lock = RLock()

    def _hook(self, pack: int, place: int) -> Any:
        import torch

        def hook(_module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            values = (*args, *kwargs.values())
            tensor = next((v for v in values if isinstance(v, torch.Tensor)), None)
            with self._lock:
                self._see(pack, place, tensor)

        return hook

    def _see(self, pack: int, place: int, tensor: torch.Tensor | None) -> None:
        if place == 0 and self._next[pack] == 0 and tensor is not None:
            self._read[pack] = _Read(tensor)
        first = self._read[pack]
        held = self._next[pack] == place and first is not None and first.tensor is tensor
        if not held and self._broken is None:
            self._broken = self._packs[pack].id
        self._next[pack] = (place + 1) % len(_ROLES)
        if self._next[pack] == 0:
            wrote = first.written() if first is not None and held else None
            if wrote is not None:
                before = self._wrote[pack]
                self._wrote[pack] = wrote if before is None else before | wrote
            self._read[pack] = None

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
        with self._lock:
            left_open = [self._packs[i].id for i, at in enumerate(self._next) if at]
            written = [
                self._packs[i].id
                for i, wrote in enumerate(self._wrote)
                if wrote is not None and bool(wrote)
            ]
            broken = next(iter((*filter(None, [self._broken]), *left_open, *written)), None)
            self._broken = None
            self._next = [0] * len(self._packs)
            self._read, self._wrote = [None] * len(self._packs), [None] * len(self._packs)
            return broken


class _Read:
    """The tensor that the first of three siblings read, and a copy of what it held then."""

    def __init__(self, tensor: torch.Tensor) -> None:
        import torch

        self.tensor = tensor
        dense = tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_meta
        self._bits = _bits(tensor).clone() if dense and tensor.is_floating_point() else None

    def written(self) -> torch.Tensor | None:
        """Bool, on the tensor's device: whether it holds anything else by now."""
        import torch

        bits = self._bits
        if bits is None:
            return None
        now = _bits(self.tensor)
        if now.shape != bits.shape or now.device.type == "cpu":  # nothing to wait for there
            return torch.tensor(not torch.equal(now, bits), device=now.device)
        return (now != bits).any()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The values as integers, so that NaN, which padding may hold, equals itself."""
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().view(whole[tensor.element_size()])
