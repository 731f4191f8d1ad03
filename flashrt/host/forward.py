"""One plain forward of a host over tokens; what the host itself raises is a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch


def forward(model: Any, tokens: torch.Tensor, subject: str) -> Any:
    """``model(tokens)`` for int64 [B, T].

    Raises :class:`Refusal` (HOST): for a token that the host does not embed, and for anything
    that the host's own code raises, since a config that loads may still describe no model that
    runs. What hooks of ours raise goes through as it is.
    """
    most, rows = int(tokens.max()), _embedded(model)
    if rows is not None and most >= rows:
        what = f"the tokenizer gives token {most} and the host embeds {rows}"
        do = "use the tokenizer that belongs to these weights"
        raise Refusal(Reason.HOST, what, subject=subject, do=do)
    try:
        return model(tokens)
    except (Refusal, MemoryError):
        raise
    except Exception as error:
        if _ours(error):
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        what = f"the host cannot run {tokens.shape[-1]} tokens: {lines[0]}"
        do = "look at its config.json, or give a shorter --window"
        raise Refusal(Reason.HOST, what, subject=subject, do=do) from error


def _embedded(model: Any) -> int | None:
    """Tokens that the host's embedding holds, where it says so."""
    try:
        return int(model.get_input_embeddings().weight.shape[0])
    except (AttributeError, TypeError, IndexError, RuntimeError):
        return None


def _ours(error: BaseException) -> bool:
    """Whether code of ours raised it, under the host's forward."""
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith("flashrt"):
            return True
        trace = trace.tb_next
    return False
