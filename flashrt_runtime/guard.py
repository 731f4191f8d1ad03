"""The contract of a swapped seam, and what a call's tensor is to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from flashrt_runtime.contract import Seam, rows_of
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch


class RowRule(Enum):
    """``EXACT``: one row count. ``CAPACITY``: any row count within the declared band."""

    EXACT = "exact"
    CAPACITY = "capacity"


class Place(Enum):
    """Where the implementation may run: anywhere, or only inside the captured form."""

    ANYWHERE = "anywhere"
    CAPTURED = "captured"


class GuardFail(Enum):
    """What a call outside the contract does: runs the host exactly, or raises."""

    HOST = "host"
    RAISE = "raise"


class Outcome(Enum):
    """``RUN`` the implementation, ``DISPATCH`` to the host by design, or ``FALL`` back to it."""

    RUN = "run"
    DISPATCH = "dispatch"
    FALL = "fall"


@dataclass(frozen=True)
class FormContract:
    """The calls that a seam's form was measured for.

    ``device`` is a ``torch.device``; ``dtype`` a ``torch.dtype``; ``width`` the last dim of the
    input; ``rows`` the declared band ``(lo, hi)`` of the product of the other dims, both
    inclusive, ``hi`` ``None`` when unbounded. Raises :class:`Refusal` (CONFLICT) when empty.
    """

    device: torch.device
    dtype: torch.dtype
    width: int
    rows: tuple[int, int | None]
    rule: RowRule = RowRule.CAPACITY
    place: Place = Place.ANYWHERE

    def __post_init__(self) -> None:
        lo, hi = self.rows
        if self.width < 1 or lo < 1 or (hi is not None and hi < lo):
            raise Refusal(Reason.CONFLICT, f"width {self.width}, rows {self.rows}: nothing fits")
        if self.rule is RowRule.EXACT and lo != hi:
            raise Refusal(Reason.CONFLICT, f"an exact row count was declared as {self.rows}")

    def __str__(self) -> str:
        lo, hi = self.rows
        rows = f"{lo}" if lo == hi else f"{lo}..{'' if hi is None else hi}"
        return f"{self.device} {self.dtype} width {self.width} rows {rows} {self.place.value}"


@dataclass(frozen=True)
class Judgement:
    """An outcome and, unless it is ``RUN``, its reason."""

    outcome: Outcome
    because: Because | None = None


RUN = Judgement(Outcome.RUN)


def width_of(seam: Seam) -> int:
    """Width of the seam's input: its dim ``D``, ``K`` for a plain projection, or a whole patch.

    Raises :class:`Refusal` (BINDING) when the seam has none of them.
    """
    dims = seam.dims
    for name in ("D", "K"):
        if name in dims:
            return dims[name]
    if dims.keys() >= {"C", "Pt", "Ph", "Pw"}:
        return dims["C"] * dims["Pt"] * dims["Ph"] * dims["Pw"]
    raise Refusal(Reason.BINDING, "the seam has no input width (D or K)", subject=seam.id)


def _same_device(declared: torch.device, given: torch.device) -> bool:
    return declared.type == given.type and declared.index in (None, given.index)


def fits(contract: FormContract, value: Any) -> bool:
    """Whether a traced call is inside the contract. Reads only constants of a trace."""
    shape = value.shape
    if len(shape) == 0 or value.dtype != contract.dtype or shape[-1] != contract.width:
        return False
    rows = rows_of(shape)
    lo, hi = contract.rows
    return _same_device(contract.device, value.device) and lo <= rows and (hi is None or rows <= hi)


def _mismatch(contract: FormContract, value: Any) -> Because | None:
    import torch

    if not isinstance(value, torch.Tensor):
        return Because(Reason.FORM, f"the input is {type(value).__name__}, not a tensor")
    if value.dtype != contract.dtype:
        return Because(Reason.DTYPE, f"{contract.dtype} declared, {value.dtype} given")
    if not _same_device(contract.device, value.device):
        return Because(Reason.DEVICE, f"{contract.device} declared, {value.device} given")
    if value.layout != torch.strided:
        return Because(Reason.LAYOUT, f"{value.layout} given")
    shape = tuple(value.shape)
    if not shape or shape[-1] != contract.width:
        return Because(Reason.SHAPE, f"width {contract.width} declared, shape {shape} given")
    return None


def judge(contract: FormContract, value: Any) -> Judgement:
    """What an eager call with ``value`` as its input is to the contract."""
    if contract.place is Place.CAPTURED:
        detail = "an eager call is outside the recorded form, which is captured"
        return Judgement(Outcome.DISPATCH, Because(Reason.FORM, detail))
    mismatch = _mismatch(contract, value)
    if mismatch is not None:
        return Judgement(Outcome.FALL, mismatch)
    rows = rows_of(tuple(value.shape))
    lo, hi = contract.rows
    if rows < lo or (hi is not None and rows > hi):
        detail = f"rows {lo} to {'any' if hi is None else hi} declared, {rows} given"
        return Judgement(Outcome.DISPATCH, Because(Reason.SHAPE, detail))
    return RUN
