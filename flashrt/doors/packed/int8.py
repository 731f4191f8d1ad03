"""INT8 W8A8 layers: integers as the checkpoint stores them, tokens rounded in the call or fixed."""

from __future__ import annotations

from flashrt.doors.packed import eight
from flashrt.doors.packed.source import Form, Source


def convert(source: Source) -> Form:
    """The layer for ``int8_packed``. Raises :class:`Refusal` (FORM)."""
    return eight.convert(source, "int", "int8_packed")
