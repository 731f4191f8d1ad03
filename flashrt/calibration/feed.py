"""How a frame becomes one forward of a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import numpy

    from flashrt.host.load import Host

# Model families that take a robot's frames, and the module whose ``feed`` makes their inputs.
_ROBOTS: Mapping[str, str] = {"pi0": "flashrt.host.tiny.pi0"}


def text_feed(host: Host) -> Callable[[Any], object]:
    """One plain forward over a frame's tokens.

    Raises :class:`Refusal` (HOST) without tokenizer; and, from the forward, for tokens that the
    host does not embed and for what the host itself raises.
    """
    if host.tokenizer is None:
        raise Refusal(
            Reason.HOST,
            "the host has no tokenizer, so text has no tokens here",
            subject=host.name,
            do="give it frames of its own kind: --frames lerobot:FOLDER for a robot's host",
        )
    rows = _embedded(host.model)

    def run(frame: Any) -> object:
        most = int(frame.token_ids.max())
        if rows is not None and most >= rows:
            what = f"the tokenizer gives token {most} and the host embeds {rows}"
            do = "use the tokenizer that belongs to these weights"
            raise Refusal(Reason.HOST, what, subject=f"frame {frame.id}", do=do)
        try:
            return host.model(frame.token_ids[None])
        except (Refusal, MemoryError):
            raise
        except Exception as error:  # a config that loads may still describe no model that runs
            if _ours(error):
                raise
            lines = str(error).strip().splitlines() or [type(error).__name__]
            what = f"the host cannot run {frame.token_ids.numel()} tokens: {lines[0]}"
            do = "look at its config.json, or give a shorter --window"
            raise Refusal(Reason.HOST, what, subject=f"frame {frame.id}", do=do) from error

    return run


def _embedded(model: Any) -> int | None:
    """Tokens that the host's embedding holds, where it says so."""
    try:
        return int(model.get_input_embeddings().weight.shape[0])
    except (AttributeError, TypeError, IndexError, NotImplementedError):
        return None


def _ours(error: BaseException) -> bool:
    """Whether a hook of ours raised it, under the host's forward."""
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).split(".")[0].startswith("flashrt"):
            return True
        trace = trace.tb_next
    return False


def require_robot(host: Host) -> str:
    """The module that feeds this host what a robot observes.

    Raises :class:`Refusal` (HOST) for a host that does not take it.
    """
    family = str(host.model_artifact["family"])
    if family not in _ROBOTS:
        raise Refusal(
            Reason.HOST,
            f"a host of family {family} does not take a robot's images, state and task",
            subject=host.name,
            do=f"frames of text, or a host of family {', '.join(sorted(_ROBOTS))}",
        )
    return _ROBOTS[family]


def robot_feed(
    host: Host, mean: numpy.ndarray, std: numpy.ndarray
) -> Callable[[Any], object]:
    """One generation of an action chunk from a frame's images, state and task.

    ``mean`` and ``std`` (float64 [S]) normalise the state; they are of the frames that are
    calibrated with, never of held-out or excluded ones. Raises as :func:`require_robot`.
    """
    made: Callable[[Any], object] = import_module(require_robot(host)).feed(host.model, mean, std)
    return made
