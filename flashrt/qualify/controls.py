"""Checks around a race that are not the race: repeatability, poisoned outputs, rollback."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flashrt.qualify.feed import logits, logits_of

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.capture import Stage


def tensor_digest(tensor: torch.Tensor) -> str:
    """``sha256:`` over a tensor's dtype, shape and bytes."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    head = f"{tensor.dtype}{tuple(tensor.shape)}".encode()
    return "sha256:" + _sha256(head, flat.numpy())


def _sha256(head: bytes, rest: Any) -> str:
    found = hashlib.sha256(head)
    found.update(memoryview(rest))
    return found.hexdigest()


def empty_control(stage: Stage, tokens: torch.Tensor, rows: int) -> list[str]:
    """Digests of two runs of the unmodified host over the same tokens; they must be equal."""
    return [tensor_digest(logits_of(stage, tokens, rows)) for _ in range(2)]


def two_steps(frames: Sequence[torch.Tensor], rows: int) -> torch.Tensor:
    """Tokens ``[2 * rows]`` of two steps that differ, for :func:`poison`.

    Text repeats itself, and the answer to the same tokens is rightly the same. Frames in which
    every step is alike give a second step whose last token is another one.
    """
    import torch

    steps = [step for frame in frames for step in frame.split(rows) if step.numel() == rows]
    first = steps[0]
    for other in steps[1:]:
        if not torch.equal(first, other):
            return torch.cat([first, other])
    changed = first.clone()
    changed[-1] = 0 if int(first[-1]) else 1
    return torch.cat([first, changed])


def poison(stage: Stage, tokens: torch.Tensor, rows: int, context: int) -> dict[str, bool]:
    """Whether a replay really writes its outputs and really reads its inputs.

    The last output is overwritten with NaN and the inputs are changed before the next replay: a
    no-op replay, or one that kept its answer, shows the poison or the old logits. Inputs are
    changed whole, in their last token alone (an answer kept by the first elements), and, where the
    cache of ``context`` has room for it, in their positions alone.
    """
    import torch

    first, second = tokens[:rows], tokens[rows : 2 * rows]
    positions = torch.arange(rows)

    def answer(token_ids: torch.Tensor, at: int = 0) -> torch.Tensor:
        return logits(stage.replay(token_ids=token_ids[None], positions=positions + at))

    out = answer(first)
    kept = out.clone()
    out.fill_(float("nan"))
    again = answer(first)
    rewritten = bool(torch.isfinite(again).all()) and bool(torch.equal(again, kept))
    tail = first.clone()
    tail[-1] = 0 if int(first[-1]) else 1
    others = [answer(second).clone(), answer(tail).clone()]
    if rows < context:
        answer(torch.where(first > 0, 0, 1))  # what precedes the moved tokens is unlike them
        others.append(answer(first, at=1))
    honoured = all(
        bool(torch.isfinite(other).all()) and not bool(torch.equal(other, kept)) for other in others
    )
    return {"outputs_rewritten": rewritten, "inputs_honoured": honoured}


def eager_digest(model: torch.nn.Module, tokens: torch.Tensor) -> str:
    """Digest of a model's own eager logits over the tokens (the rollback check's two sides)."""
    import torch

    with torch.no_grad():
        result: Any = model(input_ids=tokens[None], use_cache=False)
    return tensor_digest(result.logits)
