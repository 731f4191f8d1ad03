"""Schemes by name, and the one function that says what ``auto`` is on a device."""

from __future__ import annotations

from flashrt.scheme.decision import Scheme
from flashrt.scheme.static import FP8_E4M3_MAX, INT8_MAX, KeepOutliers, Static
from flashrt.scheme.weight_only import W4A16, W8A16, Fp16Weight, FusionOnly
from flashrt_runtime.reason import Reason, Refusal

AUTO = "auto"
NONE = "none"
BF16_STRUCTURAL = "bf16_structural"


def _schemes() -> dict[str, Scheme]:
    return {
        NONE: FusionOnly(),
        BF16_STRUCTURAL: FusionOnly(),
        "fp16_weight": Fp16Weight(),
        "w8a16_decode": W8A16,
        "w4a16_decode": W4A16,
        "int8_static": Static(INT8_MAX),
        "int8_static_keep_outliers": KeepOutliers(Static(INT8_MAX)),
        "fp8_static": Static(FP8_E4M3_MAX),
        "fp8_static_keep_outliers": KeepOutliers(Static(FP8_E4M3_MAX)),
    }


def names() -> tuple[str, ...]:
    """Every scheme that :func:`get` knows, in the order tables show them."""
    return tuple(_schemes())


def resolve(name: str, device: str) -> str:
    """The scheme that a name stands for on a device (``cpu``, ``sm90``).

    ``auto`` is fp8_static where the device multiplies FP8 (sm89 and up), none elsewhere.
    int8_static is there for devices with fast INT8 and no FP8 (a CPU with VNNI, sm80), but nothing
    is chosen that was not measured: there, too, it stays none until a receipt says otherwise.
    """
    if name != AUTO:
        return name
    digits = device.removeprefix("sm")
    capable = (
        device.startswith("sm") and digits.isascii() and digits.isdigit() and int(digits) >= 89
    )
    return "fp8_static" if capable else NONE


def fusions_of(name: str) -> str:
    """The scheme under whose name the forms of fusions are looked up.

    Every scheme gets every fusion that ``none`` gets, but bf16_structural, which takes only forms
    whose manifest says that they are conservative.
    """
    return name if name == BF16_STRUCTURAL else NONE


def quantises(name: str) -> bool:
    """Whether the scheme changes the precision of anything."""
    return name not in (NONE, BF16_STRUCTURAL)


def get(name: str) -> Scheme:
    """The scheme of this name. Raises :class:`Refusal` (CONFLICT) for any other name."""
    known = _schemes()
    if name not in known:
        raise Refusal(
            Reason.CONFLICT,
            "no such scheme",
            subject=name,
            do=f"one of {', '.join((AUTO, *known))}",
        )
    return known[name]
