"""Greedy selection: the highest score, the first of equals, and nothing from what is not finite."""

from __future__ import annotations

from math import exp, isfinite


def greedy(logits: tuple[float, ...]) -> int | None:
    """The selected id, or ``None`` when a score is NaN or infinite."""
    if not all(map(isfinite, logits)):
        return None
    return logits.index(max(logits))


def softmax(logits: tuple[float, ...]) -> tuple[float, ...]:
    """Probabilities of finite scores, for reading: no choice depends on them."""
    top = max(logits)
    powers = [exp(score - top) for score in logits]
    total = sum(powers)
    return tuple(power / total for power in powers)
