"""Qualify and release faster implementations of model regions, with evidence.

    import flashrt as structures
    plan = structures.auto_swaps(model, forward)     # builds; you own the gate
    done = structures.attach(model, forward)         # discover, gate, activate
    body = structures.get("decoder_ffn").bind(module, calibration=[x])
    stage = structures.capture(step, windows={...})
    new = structures.adopt_prequantized(folder)      # a packed checkpoint; there is no detach

Names are imported when they are first used, so that ``import flashrt`` imports no torch.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flashrt.binding import load_binding
    from flashrt.doors.adopt import adopt_prequantized
    from flashrt.doors.attach import attach
    from flashrt.doors.capture import capture
    from flashrt.doors.region import get
    from flashrt.doors.swaps import auto_swaps

__all__ = ["adopt_prequantized", "attach", "auto_swaps", "capture", "get", "load_binding"]

_DOORS = {
    "adopt_prequantized": "flashrt.doors.adopt",
    "attach": "flashrt.doors.attach",
    "auto_swaps": "flashrt.doors.swaps",
    "capture": "flashrt.doors.capture",
    "get": "flashrt.doors.region",
    "load_binding": "flashrt.binding",
}


def __getattr__(name: str) -> object:
    if name in _DOORS:
        from importlib import import_module

        return getattr(import_module(_DOORS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
