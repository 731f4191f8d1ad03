"""Tensors that stand for several: ``weight.0``, ``weight.1``, … of ``weight``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from flashrt_runtime.reason import Reason, Refusal

_ELEMENT = re.compile(r"(?P<base>.+)\.(?P<index>0|[1-9][0-9]{0,5})")


def element(name: str, index: int) -> str:
    """The name of one of the tensors that ``name`` stands for."""
    return f"{name}.{index}"


def base(name: str) -> str:
    """``weight`` of ``weight.3``, and of ``weight``."""
    match = _ELEMENT.fullmatch(name)
    return match["base"] if match else name


def count(name: str, given: Iterable[str]) -> int:
    """How many tensors ``name`` stands for among the names given.

    Raises :class:`Refusal` (BINDING) where they are not ``name.0`` … without a gap.
    """
    found = {n for n in given if base(n) == name}
    wanted = {element(name, i) for i in range(len(found))}
    if found != wanted:
        missing = sorted(wanted - found)
        raise Refusal(
            Reason.BINDING,
            f"{name} stands for several tensors, and {missing[0]} is missing",
            subject=name,
            do=f"name them {element(name, 0)}, {element(name, 1)}, … without a gap",
        )
    return len(found)
