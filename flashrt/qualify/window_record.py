"""Whether a captured step follows its windows, as one process saw it: evidence, no judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from flashrt.qualify.feed import Feed, Turn
    from flashrt_runtime.capture import Stage


def telling(feed: Feed) -> Turn:
    """A turn whose every window has another value to be changed to, where the feed has one.

    A lone token or position of 0 has none: see :func:`flashrt_runtime.fixed_iteration.values
    .changed`.
    """
    for turn in feed.turns:
        if int(turn.token_ids.max()) > 0 and int(turn.positions.max()) > 0:
            return turn
    return feed.turns[0]


def window_record(
    arm: str, stage: Stage, step: torch.nn.Module, feed: Feed, process: int
) -> dict[str, Any]:
    """Replay ``stage`` with changed inputs against ``step`` run eagerly, over real tokens.

    ``arm`` is ``host`` or ``treated``; the cache holds what earlier replays wrote and is put back.
    A check that refuses is evidence too: its reason and what it named.
    """
    from flashrt_runtime.reason import Refusal
    from flashrt_runtime.window_check import WindowCheck, check_windows

    telling(feed).load(stage)
    refused = None
    try:
        seen = check_windows(stage, step)
    except Refusal as refusal:
        seen, refused = WindowCheck((), (), ()), refusal.because().record()
    return {
        "process": process,
        "arm": arm,
        "windows": list(seen.windows),
        "held": list(seen.held),
        "unchanged": list(seen.unchanged),
        "refused": refused,
    }
