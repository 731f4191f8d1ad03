"""What no attention adapter takes on, told by what a host holds or is called with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

_PARALLEL = re.compile(r"parallel_config|context_parallel|cp_(group|mesh|size|rank)")
_NEIGHBOURHOOD = ("natten", "neighbo")


@cache
def _says_parallel(name: str) -> bool:
    return not name.startswith("__") and _PARALLEL.search(name) is not None


def _named(holder: Any) -> Iterator[tuple[str, Any]]:
    """A holder's own attributes and its class's whose names say that ranks share a sequence."""
    own = getattr(holder, "__dict__", {})
    for name, value in vars(type(holder)).items():
        if _says_parallel(name) and name not in own:
            yield name, value
    for name, value in own.items():
        if _says_parallel(name):
            yield name, value


def _spans_ranks(name: str, value: Any) -> bool:
    if value is None or value is False or callable(value):
        return False
    if name.endswith(("size", "rank")):
        return isinstance(value, int) and value > (1 if name.endswith("size") else 0)
    return True


def context_parallel(module: torch.nn.Module) -> Because | None:
    """Why one process sees only a part of this module's sequence, or ``None``."""
    processor = getattr(module, "processor", None)
    for holder in (module, processor):
        for name, value in _named(holder) if holder is not None else ():
            if _spans_ranks(name, value):
                what = f"its sequence is laid out for context parallelism ({name.lstrip('_')})"
                return Because(Reason.LAYOUT, what)
    return None


def neighbourhood(named: Mapping[str, Any]) -> Because | None:
    """Why a call (or what a module holds) asks for neighbourhood attention, or ``None``."""
    for name, value in named.items():
        if value is not None and any(part in name.lower() for part in _NEIGHBOURHOOD):
            return Because(Reason.LAYOUT, f"it carries neighbourhood-attention metadata ({name})")
    return None


def mutating_cache(named: Mapping[str, Any]) -> Because | None:
    """Why a call writes to a key and value cache as it attends, or ``None``."""
    for name, value in named.items():
        if not isinstance(value, Mapping) and callable(getattr(value, "update", None)):
            return Because(Reason.LAYOUT, f"it writes to the key and value cache given as {name}")
    return None


def heads(query: int, key: int, subject: str) -> None:
    """Raise :class:`Refusal` (SHAPE) unless ``query`` heads are a whole multiple of ``key``."""
    if key < 1 or query % key:
        what = f"{query} query heads are no multiple of {key} key heads"
        raise Refusal(Reason.SHAPE, what, subject=subject)


def head_dim(size: int, subject: str, most: int = 256) -> None:
    """Raise :class:`Refusal` (SHAPE) unless the head dim is even and at most ``most``."""
    if size < 2 or size % 2 or size > most:
        what = f"its head dim {size} is not even and at most {most}"
        raise Refusal(Reason.SHAPE, what, subject=subject)


def require(because: Because | None, subject: str) -> None:
    """Raise the reason as :class:`Refusal`, or do nothing when there is none."""
    if because is not None:
        raise Refusal(because.reason, because.detail, subject=subject)
