"""FP8 layers: e4m3 as the checkpoint stores it, tokens rounded in the call or at a fixed scale."""

from __future__ import annotations

from flashrt.doors.packed import eight
from flashrt.doors.packed.source import Form, Source


def convert(source: Source) -> Form:
    """The layer for ``fp8_packed``. Raises :class:`Refusal` (FORM)."""
    return eight.convert(source, "float", "fp8_packed")
