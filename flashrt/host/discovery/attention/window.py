"""Attention windows that a host declares: a frame shorter than one does not show it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from flashrt.host.discovery.attention.tap import Site
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason

# What says of a window, by the id of the namespace that holds it, which is kept alive.
Known = dict[int, tuple[Mapping[str, Any], dict[str, Any]]]

_NAMES = re.compile(r"(^|_)(window(_size|_length)?|(attention|attn)_chunk_size)$")


@dataclass(frozen=True)
class Window:
    """``size`` is in tokens, ``name`` what declares it."""

    name: str
    size: int


def declared(site: Site, known: Known | None = None) -> Window | None:
    """The window of one attending call's module, of a call around it, or of their config.

    What a module says of itself, ``None`` included, comes before what a config says of all.
    ``known`` keeps what was read of the modules and configs of one host.
    """
    known = {} if known is None else known
    for frame in site.frames():
        said = _said(vars(frame.module), known)
        if said:
            return _largest(said)
    for frame in site.frames():
        config = getattr(frame.module, "config", None)
        held = config if isinstance(config, Mapping) else getattr(config, "__dict__", None)
        if held:
            return _of_config(held, site, known)
    return None


@cache
def _says(name: str) -> bool:
    return _NAMES.search(name) is not None


def _named(held: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in held.items():
        if isinstance(name, str) and _says(name):
            yield name, value


def _said(held: Mapping[str, Any], known: Known) -> dict[str, Any]:
    if id(held) not in known:
        known[id(held)] = held, dict(_named(held))
    return known[id(held)][1]


def _of_config(held: Mapping[str, Any], site: Site, known: Known) -> Window | None:
    found = _largest(_said(held, known))
    if found is None or held.get("use_sliding_window") is False:
        return None
    most = held.get("max_position_embeddings")
    if isinstance(most, int) and most <= found.size:
        return None  # no sequence is longer
    kinds = held.get("layer_types")
    numbers = (vars(frame.module).get("layer_idx") for frame in site.frames())
    at = next((i for i in numbers if isinstance(i, int)), -1)
    if isinstance(kinds, (list, tuple)) and 0 <= at < len(kinds) and "full" in str(kinds[at]):
        return None
    return found


def unseen(sites: Sequence[Site], seams: Sequence[Seam]) -> tuple[Because, ...]:
    """Notes on seams of causal attention whose window no call of the frame was long enough for."""
    causal = {s.members["self"]: s.id for s in seams if s.variant.get("mask") == "causal"}
    notes: dict[str, Because] = {}
    known: Known = {}
    for site in sites:
        window = declared(site, known) if site.attended and site.path in causal else None
        if window is not None:
            what = f"a window of {window.size} tokens ({window.name}) did not show in this frame"
            seam = causal[site.path]
            notes.setdefault(seam, Because(Reason.STRUCTURE, what, seam))
    return tuple(notes.values())


def _largest(said: Mapping[str, Any]) -> Window | None:
    sizes = [
        Window(name, one)
        for name, value in said.items()
        for one in (value if isinstance(value, (tuple, list)) else (value,))
        if isinstance(one, int) and not isinstance(one, bool) and one > 0
    ]
    return max(sizes, key=lambda window: window.size, default=None)
