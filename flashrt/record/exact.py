"""Exact numbers as JSON holds them: an integer, or ``"p/q"`` in lowest terms.

RFC 8785 has no integers of 2^53 and more, so such a one is written ``"p/1"``.
"""

from __future__ import annotations

import re
from fractions import Fraction

from flashrt_runtime.reason import Reason, Refusal

_RATIO = re.compile(r"-?(0|[1-9][0-9]*)/([1-9][0-9]*)")
LARGEST = 2**53 - 1
_DIGITS = 400  # of each part: more is no time and no rate, and costs quadratic time to read


def exact(value: int | str) -> Fraction:
    """The number of an integer or of ``"p/q"``.

    Raises :class:`Refusal` (SCHEMA) for anything else: a float, a Boolean, an integer of 2^53 or
    more, a ratio that is not in lowest terms or could be an integer, and more than 400 digits.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) <= LARGEST:
            return Fraction(value)
    elif isinstance(value, str) and len(value) <= 2 * _DIGITS and _RATIO.fullmatch(value):
        number = Fraction(value)
        if exact_text(number) == value:
            return number
    raise Refusal(
        Reason.SCHEMA,
        f"{str(value)[:40]!r} is no exact number",
        do='write an integer, or "p/q" in lowest terms with q above 1 (or p above 2^53)',
    )


def exact_text(number: Fraction) -> int | str:
    """JSON form of an exact number: an integer where it is one that JSON has, else ``"p/q"``."""
    if number.denominator == 1 and abs(number) <= LARGEST:
        return number.numerator
    return f"{number.numerator}/{number.denominator}"
