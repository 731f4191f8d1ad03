"""Hooks that take one amax per point and call from the host's own forward, and, where a scheme
asked for it, one vector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any

from flashrt.calibration.kinds import Address, Observation
from flashrt.calibration.slots import Slots, require_dense
from flashrt.calibration.statistic import AMAX, Kind, Statistic
from flashrt.calibration.vectors import Folded, Vectors
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy
    import torch

    from flashrt.calibration.mask import Mask

Place = tuple[str, str]  # module path, "input" or "output"
_MOST = 4096  # calls between two copies from the device: a decode loop makes them by the thousand


@dataclass(frozen=True)
class Taken:
    """One frame: ``amax`` float32 [points], the max over its calls, and ``seen`` bool [points].

    ``broken`` is the point that was first to be non-finite, if one was. ``vectors`` has, by point,
    the finer statistic that was asked for.
    ``unmasked`` are the points that the frame's mask could not be applied to, ``masked`` says
    whether it was applied to any.
    """

    amax: numpy.ndarray
    seen: numpy.ndarray
    broken: int | None
    vectors: Mapping[int, Folded]
    unmasked: tuple[int, ...]
    masked: bool


class Meter:
    """Measures points of a model while its hooks are on (:meth:`attached`).

    Points that sit at one place cost one amax between them; every call of a place costs one. Two
    calls that are handed one tensor do not share it: an in-place write between them may leave no
    trace (under inference mode, through ``.data``, by a kernel), and a matmul over the tensor costs
    hundreds of times as much. Calls may come from several threads. ``asked`` gives a finer
    statistic for an address by its index.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        addresses: Sequence[Address],
        asked: Mapping[int, Statistic] | None = None,
    ) -> None:
        import numpy as np

        modules = dict(model.named_modules())
        for address in addresses:
            if address.module not in modules or address.capture not in ("input", "output"):
                raise Refusal(
                    Reason.BINDING,
                    f"its address {address.module!r} ({address.capture}) is not in the host",
                    subject=address.name,
                    do="correct the binding's point, or discover the host again",
                )
        self._modules = modules
        self._places = list(dict.fromkeys((a.module, a.capture) for a in addresses))
        index = {place: i for i, place in enumerate(self._places)}
        self._addresses = tuple(addresses)
        self._of_address = [index[(a.module, a.capture)] for a in addresses]
        self._asked = {i: s for i, s in (asked or {}).items() if s != AMAX}
        kinds: dict[int, set[Kind]] = {}
        for address_index, statistic in self._asked.items():
            kinds.setdefault(self._of_address[address_index], set()).add(statistic.kind)
        self._vectors = Vectors({place: frozenset(wanted) for place, wanted in kinds.items()})
        self._slots = Slots()
        self._lock = RLock()  # a host may run its branches in threads
        count = len(self._places)
        # The shape of a place's last call, where nothing but its amax is wanted.
        self._shape: list[Any] = [None] * count
        self._shapes: list[dict[tuple[int, ...], str]] = [{} for _ in range(count)]
        self._calls = np.zeros(count, dtype=np.int64)
        self.use(None)

    def use(self, mask: Mask | None) -> None:
        """Start a frame: forget what was seen, and exclude what ``mask`` does not count."""
        import numpy as np

        self._mask = mask if mask is not None and mask.excludes else None
        if self._mask is not None:
            self._shape = [None] * len(self._places)
        self._amax = np.zeros(len(self._places), dtype=np.float32)
        self._seen = np.zeros(len(self._places), dtype=bool)
        self._broken: int | None = None
        self._called: list[int] = []  # the place of every slot
        self._masked = False
        self._refused: Refusal | None = None
        self._unmasked: set[int] = set()
        self._slots.clear()
        self._vectors.clear()

    def _see(self, place: int, tensor: torch.Tensor) -> None:
        with self._lock:
            shape = self._shape[place]
            if shape is not None and self._slots.put_alike(tensor):
                self._called.append(place)
                if tensor.shape != shape:
                    self._note(place, tensor)
                return
            try:
                self._measure(place, tensor)
            except Refusal as refusal:  # the host would swallow it, or a thread of the host
                self._refused = self._refused or refusal

    def _measure(self, place: int, tensor: torch.Tensor) -> None:
        if not tensor.is_floating_point():
            return
        require_dense(tensor, self._places[place][0])
        rows = tensor if self._mask is None else self._counted(tensor)
        if not rows.numel():
            return
        if self._slots.count == _MOST:
            self._flush()
        self._slots.put(rows)
        self._called.append(place)
        self._note(place, tensor)
        if self._mask is not None and rows is tensor:
            self._unmasked.add(place)
        if place in self._vectors.wanted:
            self._vectors.see(place, rows, self._places[place][0])

    def _note(self, place: int, tensor: torch.Tensor) -> None:
        self._shapes[place].setdefault(tuple(tensor.shape), str(tensor.dtype))
        if self._mask is None and place not in self._vectors.wanted:
            self._shape[place] = tensor.shape

    def _counted(self, tensor: torch.Tensor) -> torch.Tensor:
        """The rows that count; the tensor itself where the mask does not fit."""
        mask = self._mask
        if mask is None or not tensor.numel() or not mask.fits(tensor):
            return tensor
        self._masked = True
        return mask.rows(tensor)

    def _hook(self, place: int, side: str) -> Any:
        import torch

        see, plain = self._see, torch.Tensor

        def on_input(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if args and isinstance(args[0], plain):
                see(place, args[0])
                return
            for value in (*args, *kwargs.values()):
                if isinstance(value, torch.Tensor):
                    see(place, value)
                    return

        def on_output(_module: Any, _args: Any, output: Any) -> None:
            value = output[0] if isinstance(output, (tuple, list)) and output else output
            if isinstance(value, torch.Tensor):
                see(place, value)

        return on_input if side == "input" else on_output

    @contextmanager
    def attached(self) -> Iterator[Meter]:
        """Hooks on, for as long as the block runs."""
        handles = []
        try:
            for place, (path, side) in enumerate(self._places):
                module, hook = self._modules[path], self._hook(place, side)
                if side == "input":
                    handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
                else:
                    handles.append(module.register_forward_hook(hook))
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _flush(self) -> None:
        """Fold the calls so far into the frame."""
        import numpy as np

        if not self._called:
            return
        called = np.array(self._called)
        values = self._slots.read()
        if not np.isfinite(values.max()):  # no amax is below zero
            if self._broken is None:
                self._broken = int(called[np.flatnonzero(~np.isfinite(values))[0]])
        else:  # what is broken is reported, and ends the run
            np.maximum.at(self._amax, called, values)
        calls = np.bincount(called, minlength=len(self._places))
        self._seen |= calls > 0
        self._calls += calls
        self._called = []

    def take(self) -> Taken:
        """What one frame gave, and start the next, without a mask.

        Raises :class:`Refusal`: SHAPE for a width that the asked granularity does not divide or
        that two calls do not share, LAYOUT and DTYPE for an activation that has no amax to take.
        """
        with self._lock:
            refused = self._refused
            if refused is not None:
                self.use(None)
                raise refused
            self._flush()
            order, broken = self._of_address, self._broken
            taken = Taken(
                self._amax[order],
                self._seen[order],
                order.index(broken) if broken is not None else None,
                {} if broken is not None else self._grouped(),
                tuple(i for i, place in enumerate(order) if place in self._unmasked),
                self._masked,
            )
            self.use(None)
            return taken

    def _grouped(self) -> dict[int, Folded]:
        found = {}
        for index, statistic in self._asked.items():
            one = self._vectors.fold(self._of_address[index], statistic, self._addresses[index])
            if one is not None:
                found[index] = one
        return found

    def observations(self) -> tuple[Observation | None, ...]:
        """Facts about the calls so far, per point."""
        return tuple(self._observation(place) for place in self._of_address)

    def _observation(self, place: int) -> Observation | None:
        from flashrt_runtime.contract import rows_of

        shapes = self._shapes[place]
        if not shapes:
            return None
        rows = [rows_of(shape) for shape in shapes]
        shape, dtype = next(iter(shapes.items()))
        width = shape[-1] if shape else 1
        return Observation(
            (min(rows), max(rows)), width, dtype.removeprefix("torch."), int(self._calls[place])
        )
