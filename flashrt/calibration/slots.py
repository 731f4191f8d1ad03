"""Places on the device where the extremes of many tensors are put, to be read back in one copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy
    import torch

_MORE = 128  # slots made at a time


class _Pool:
    """Pairs of scalars of one dtype on one device, made once and used again every frame."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._blocks: list[torch.Tensor] = []
        self._shared: numpy.ndarray | None = None  # the last block, where its memory is the host's

    def grow(self, count: int) -> None:
        import torch

        while len(self.pairs) < count:
            block = torch.zeros((2, _MORE), dtype=self.dtype, device=self.device)
            if self.dtype is torch.float32 and block.is_cpu:
                self._shared = block.numpy()  # read many times a second: numpy asks for less
            self._blocks.append(block)
            self.pairs += zip(block[0].unbind(), block[1].unbind(), strict=True)

    def read(self, start: int, stop: int) -> numpy.ndarray:
        import numpy as np
        import torch

        if len(self._blocks) == 1 and self._shared is not None:
            low, high = self._shared[:, start:stop]
            return np.maximum(-low, high)
        low, high = torch.cat(self._blocks, dim=1)[:, start:stop]
        return torch.maximum(-low, high).float().cpu().numpy()


class Slots:
    """The amax of tensors, in the order they were put, with no copy to the host until it is read.

    A model may mix dtypes and devices; each has a pool, and ``_runs`` says whose turn it was.
    """

    def __init__(self) -> None:
        import torch

        self._aminmax = torch.aminmax
        self._pools: dict[tuple[torch.dtype, torch.device], _Pool] = {}
        self._pool: _Pool | None = None
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._runs: list[tuple[int, _Pool]] = []
        self.count = 0

    def put_alike(self, tensor: torch.Tensor) -> bool:
        """Measure a tensor if it can be measured as the last one was; else do nothing, ``False``.

        The kernel itself refuses another dtype, device or layout, an empty tensor, and one that
        wants a gradient: asking it costs less than asking the tensor.
        """
        try:
            self._aminmax(tensor, out=self._pairs[self.count])
        except (RuntimeError, IndexError):
            return False
        self.count += 1
        return True

    def put(self, tensor: torch.Tensor) -> None:
        """Measure one more tensor, not empty, floating point."""
        self._turn(tensor)
        # The host may have enabled gradients, which an ``out=`` does not support.
        self._aminmax(tensor.detach(), out=self._pairs[self.count])
        self.count += 1

    def _turn(self, tensor: torch.Tensor) -> None:
        import torch

        key = (tensor.dtype, tensor.device)
        if key not in self._pools:
            self._pools[key] = _Pool(*key)
        pool = self._pools[key]
        with torch.inference_mode(False):
            pool.grow(self.count + 1)
        self._pairs = pool.pairs
        if pool is not self._pool:
            self._pool = pool
            self._runs.append((self.count, pool))

    def read(self) -> numpy.ndarray:
        """Every amax since the last read, float32 [count]; NaN and infinity stay what they are."""
        import numpy as np

        values = np.empty(self.count, dtype=np.float32)
        stops = [*(start for start, _ in self._runs[1:]), self.count][: len(self._runs)]
        for (start, pool), stop in zip(self._runs, stops, strict=True):
            values[start:stop] = pool.read(start, stop)
        self.clear()
        return values

    def clear(self) -> None:
        """Forget what was put since the last read."""
        self.count, self._runs = 0, [(0, self._pool)] if self._pool is not None else []


def require_dense(tensor: torch.Tensor, subject: str) -> None:
    """Refuse a floating point tensor that has no amax to take: LAYOUT for one that is sparse,
    nested or without data, DTYPE for eight bits, whose scale belongs to whoever made it."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta:
        kind = "nested" if tensor.is_nested else "without data" if tensor.is_meta else "sparse"
        raise Refusal(
            Reason.LAYOUT,
            f"its activation is {kind} and has no amax to take",
            subject=subject,
            do="leave the point out, or run the host on dense tensors of a real device",
        )
    if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise Refusal(
            Reason.DTYPE,
            f"its activation is {str(tensor.dtype).removeprefix('torch.')}, quantized already",
            subject=subject,
            do="calibrate the host before it is quantized, or leave the point out",
        )
