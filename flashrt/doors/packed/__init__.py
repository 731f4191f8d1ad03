"""Packed layers of a checkpoint: where they are, and what impl form each format becomes."""

from __future__ import annotations

from collections.abc import Callable

from flashrt.doors.packed import fp8, int8, nvfp4
from flashrt.doors.packed.foreign import refuse_foreign, require_all_taken
from flashrt.doors.packed.scales import require_scales
from flashrt.doors.packed.source import Form, Source
from flashrt_runtime.reason import Reason, Refusal

# compressed-tensors' name of a format, the short name, and what converts it.
_KNOWN: tuple[tuple[str, str, Callable[[Source], Form]], ...] = (
    ("nvfp4-pack-quantized", "nvfp4", nvfp4.convert),
    ("int-quantized", "int8", int8.convert),
    ("float-quantized", "fp8", fp8.convert),
)


def known() -> str:
    """The formats for people."""
    return ", ".join(f"{short} ({name})" for name, short, _ in _KNOWN)


def full_name(fmt: str) -> str:
    """compressed-tensors' name of a format that is called so or by its short name.

    Raises :class:`Refusal` (FORM) for any other.
    """
    for name, short, _ in _KNOWN:
        if fmt in (name, short):
            return name
    raise Refusal(Reason.FORM, "no impl executes this format", subject=fmt, do=f"one of {known()}")


def form_of(source: Source) -> Form:
    """The impl form and the tensors that a packed layer becomes.

    Raises :class:`Refusal`: FORM when the format is another, the layer's arguments are, or it does
    more than the form would; NONFINITE or DEAD for a scale that is none.
    """
    for name, _, convert in _KNOWN:
        if source.format == name:
            refuse_foreign(source)
            form = convert(source)
            require_all_taken(source, form)
            require_scales(source, form)
            return form
    raise Refusal(
        Reason.FORM,
        f"the layer is packed as {source.format}, which no impl executes",
        subject=source.path,
        do=f"adopted are {known()}; load the checkpoint with transformers' "
        "CompressedTensorsConfig(dequantize=True) to run it dense",
    )
