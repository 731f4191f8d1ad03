"""Binding one eight-bit projection: from a dense matrix, or from a checkpoint's own tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from flashrt_runtime.impls.shared import eight
from flashrt_runtime.impls.shared import packed as stored
from flashrt_runtime.impls.shared import request as asked

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal


@dataclass(frozen=True)
class EightBits:
    """One operator over levels of a ``kind``, ``int8`` or ``fp8``, in two forms: ``static`` has a
    scale for its activations, ``dynamic`` takes a token's in the call."""

    operator: str
    kind: str

    def dense(self, request: BindRequest) -> BoundSeam:
        """Pack the seam's dense weights. Raises :class:`Refusal` before anything is changed."""
        packed = eight.pack(asked.weight(request, "weight"), self.kind)
        if request.form == "static":
            packed.append(torch.full((1,), asked.scale(request, "x")))
        return self._seam(request, packed)

    def stored(self, request: BindRequest) -> BoundSeam:
        """Take the checkpoint's tensors as they are.

        Slots: ``weight`` [N, K] of the kind, ``weight_scale`` [N, 1] or [1], ``input_scale`` [1]
        in the form ``static``, ``bias`` [N] if there is one. Raises :class:`Refusal`: BINDING,
        DTYPE, LAYOUT, NONFINITE, DEAD.
        """
        levels = stored.tensor(request, "weight", eight.DTYPES[self.kind], 2)
        if self.kind == "fp8":
            _require_numbers(request, levels)
        rows = levels.shape[0]
        scale = stored.scale(request, "weight_scale", ((rows, 1), (1,))).reshape(-1)
        packed = [levels, scale]
        if request.form == "static":
            packed.append(stored.scale(request, "input_scale", ((1,),)))
        return self._seam(request, packed)

    def _seam(self, request: BindRequest, packed: list[torch.Tensor]) -> BoundSeam:
        how = f"{self.kind}:{'tensor' if request.form == 'static' else 'token'}"
        width = packed[0].shape[1]
        return stored.packed_seam(request, self.operator, how, packed, eight.dense, width=width)


def _require_numbers(request: BindRequest, levels: torch.Tensor) -> None:
    # e4m3 has no infinity; all bits but the sign are a NaN. Read as bytes: nothing is widened.
    bad = int(((levels.view(torch.uint8) & 0x7F) == 0x7F).sum())
    if bad:
        raise Refusal(
            Reason.NONFINITE,
            f"{bad} of {levels.numel()} e4m3 weights are NaN",
            subject=request.seam.id,
            do="repair the checkpoint",
        )
