"""How a frame becomes one forward of a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flashrt.host.forward import forward
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy

    from flashrt.host.load import Host

# Model families that take a robot's frames, and the module whose ``feed`` makes their inputs.
_ROBOTS: Mapping[str, str] = {"pi0": "flashrt.host.tiny.pi0"}


def text_feed(host: Host) -> Callable[[Any], object]:
    """One plain forward over a frame's tokens.

    Raises :class:`Refusal` (HOST) without tokenizer, and as :func:`flashrt.host.forward.forward`.
    """
    if host.tokenizer is None:
        raise Refusal(
            Reason.HOST,
            "the host has no tokenizer, so text has no tokens here",
            subject=host.name,
            do=_without_text(host.artifact.family),
        )
    return lambda frame: forward(host.model, frame.token_ids[None], f"frame {frame.id}")


def _without_text(family: str) -> str:
    """What to do for a host of this family that has no tokenizer."""
    if family in _ROBOTS:
        return "give it frames of its own kind: --frames lerobot:FOLDER of a robot"
    return (
        "a host of text has its tokenizer beside its weights: smollm2, or transformers:FOLDER "
        "with the tokenizer's files; tiny hosts have random weights and none, and are for "
        "`flashrt discover`"
    )


def require_robot(host: Host) -> str:
    """The module that feeds this host what a robot observes.

    Raises :class:`Refusal` (HOST) for a host that does not take it.
    """
    family = host.artifact.family
    if family not in _ROBOTS:
        raise Refusal(
            Reason.HOST,
            f"a host of family {family} does not take a robot's images, state and task",
            subject=host.name,
            do=f"frames of text, or a host of family {', '.join(sorted(_ROBOTS))}",
        )
    return _ROBOTS[family]


def robot_feed(host: Host, mean: numpy.ndarray, std: numpy.ndarray) -> Callable[[Any], object]:
    """One generation of an action chunk from a frame's images, state and task.

    ``mean`` and ``std`` (float64 [S]) normalise the state; they are of the frames that are
    calibrated with, never of held-out or excluded ones. Raises as :func:`require_robot`.
    """
    made: Callable[[Any], object] = import_module(require_robot(host)).feed(host.model, mean, std)
    return made
