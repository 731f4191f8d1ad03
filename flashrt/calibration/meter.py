"""Hooks that take one amax per point and call, and nothing else, from the host's own forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flashrt.calibration.kinds import Address, Observation
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy
    import torch

Place = tuple[str, str]  # module path, "input" or "output"


class Meter:
    """Measures points of a model while its hooks are on (:meth:`attached`).

    Points that sit at one place, and neighbouring places that are handed one tensor (q, k and v),
    cost one amax between them.
    """

    def __init__(self, model: torch.nn.Module, addresses: Sequence[Address]) -> None:
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
        self._of_address = [index[(a.module, a.capture)] for a in addresses]
        self._low: list[torch.Tensor] = []
        self._high: list[torch.Tensor] = []
        self._events: list[tuple[int, int]] = []  # (place, which amax)
        self._last: tuple[torch.Tensor | None, int] = (None, -1)
        self._shapes: dict[int, dict[tuple[Any, ...], int]] = {}

    def _see(self, place: int, tensor: torch.Tensor) -> None:
        import torch

        if not tensor.numel() or not tensor.is_floating_point():
            return
        version = -1 if tensor.is_inference() else tensor._version
        last, last_version = self._last
        if last is not tensor or last_version != version:
            low, high = torch.aminmax(tensor)
            self._low.append(low)
            self._high.append(high)
            self._last = (tensor, version)
        self._events.append((place, len(self._low) - 1))
        shapes = self._shapes.setdefault(place, {})
        key = (tensor.shape, tensor.dtype)
        shapes[key] = shapes.get(key, 0) + 1

    def _hook(self, place: int, side: str) -> Any:
        import torch

        see = self._see

        def on_input(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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

    def take(self) -> tuple[numpy.ndarray, numpy.ndarray, int | None]:
        """What one frame gave, and start the next.

        Returns amax float32 [points] (max over the frame's calls), seen bool [points], and the
        index of the point that was first to be non-finite, or ``None``.
        """
        import numpy as np
        import torch

        count = len(self._places)
        amax = np.zeros(count, dtype=np.float32)
        seen = np.zeros(count, dtype=bool)
        broken: int | None = None
        if self._low:
            pair = torch.stack((-torch.stack(self._low), torch.stack(self._high)))
            values = pair.amax(dim=0).float().cpu().numpy()
            for place, which in self._events:
                value = values[which]
                if broken is None and not np.isfinite(value):
                    broken = place
                amax[place] = max(amax[place], value)
                seen[place] = True
        self._low, self._high, self._events, self._last = [], [], [], (None, -1)
        order = self._of_address
        first = order.index(broken) if broken is not None else None
        return amax[order], seen[order], first

    def observations(self) -> tuple[Observation | None, ...]:
        """Facts about the calls so far, per point."""
        return tuple(self._observation(place) for place in self._of_address)

    def _observation(self, place: int) -> Observation | None:
        from flashrt_runtime.contract import rows_of

        shapes = self._shapes.get(place)
        if not shapes:
            return None
        rows = [rows_of(tuple(shape)) for shape, _ in shapes]
        shape, dtype = next(iter(shapes))
        name = str(dtype).removeprefix("torch.")
        return Observation((min(rows), max(rows)), int(shape[-1]), name, sum(shapes.values()))
