"""Greedy generation: the prompt through the host, every further token through a captured step."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.capture import Stage
    from flashrt_runtime.decode.step import DecodeStep
    from flashrt_runtime.handle import Handle

# Settings of a generation config under which greedy is not argmax, and the value that is harmless.
_ALTERS_GREEDY = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "min_length": 0,
    "min_new_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "guidance_scale": 1.0,
    "num_beams": 1,
}


class Stop(Enum):
    """Why generation ended."""

    EOS = "eos"
    LENGTH = "max_new_tokens"
    CONTEXT = "context"


def _ids(given: Any) -> tuple[int, ...]:
    if given is None:
        return ()
    return (int(given),) if isinstance(given, int) else tuple(int(one) for one in given)


def _refuse_altered(config: Any) -> None:
    for name, harmless in _ALTERS_GREEDY.items():
        value = getattr(config, name, None)
        if value not in (None, harmless, [], ()):
            what = f"the host's generation config sets {name}={value!r}, which greedy must apply"
            raise Refusal(Reason.FORM, what, do="use the host's own generate, or unset it")


class GenerateLoop:
    """Greedy decoding over one :class:`DecodeStep` and its captured stage.

    The tokens are those of the host's own greedy ``generate``. Raises :class:`Refusal` (FORM)
    when the step was not captured for one row, or when the host's generation config asks for
    something that plain argmax does not do. ``stopped`` says why the last call ended.
    """

    def __init__(self, step: DecodeStep, stage: Stage, handle: Handle | None = None) -> None:
        if step.rows != 1:
            raise Refusal(Reason.FORM, f"the step was captured for {step.rows} rows, not for 1")
        config = getattr(step.model, "generation_config", None)
        _refuse_altered(config)
        self.step = step
        self.stage = stage
        self.handle = handle
        self.stopped: Stop | None = None
        self._eos = _ids(getattr(config, "eos_token_id", None))
        pad = _ids(getattr(config, "pad_token_id", None))
        self._pad = (pad or self._eos or (0,))[0]
        if handle is not None:
            handle.add_stage(stage)

    def generate(
        self,
        input_ids: torch.Tensor,
        max_new_tokens: int = 256,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Prompt and continuation, ``[B, P] -> [B, P + n]``, int64, ``n <= max_new_tokens``.

        Prompts of a batch have one length (no padding). Generation ends when every sequence has
        produced an end-of-sequence token, at ``max_new_tokens``, or when the state is full.
        Raises :class:`Refusal`: THREAD for a second thread, SHAPE for a prompt that does not fit,
        both before anything runs.
        """
        import torch

        if self.handle is not None:
            self.handle.claim_thread()
        if max_new_tokens < 1:
            raise Refusal(Reason.SHAPE, f"max_new_tokens={max_new_tokens} generates nothing")
        if input_ids.dim() != 2:
            raise Refusal(Reason.SHAPE, f"input_ids is {tuple(input_ids.shape)}, not [B, P]")
        step = self.step
        eos = self._eos if eos_token_id is None else _ids(eos_token_id)
        ends = torch.tensor(eos, dtype=torch.int64, device=step.device)
        logits = step.prefill(input_ids)
        tokens = [input_ids]
        open_rows = torch.ones(step.batch, dtype=torch.bool, device=step.device)
        position = torch.full((1,), input_ids.shape[1], dtype=torch.int64, device=step.device)
        for count in range(1, max_new_tokens + 1):
            chosen = logits.argmax(-1)
            chosen = torch.where(open_rows, chosen, self._pad)
            tokens.append(chosen[:, None])
            open_rows = open_rows & ~torch.isin(chosen, ends)
            if not bool(open_rows.any()):
                self.stopped = Stop.EOS
                break
            if count == max_new_tokens:
                self.stopped = Stop.LENGTH
                break
            if input_ids.shape[1] + count > step.context:
                self.stopped = Stop.CONTEXT
                break
            logits = self.stage.replay(token_ids=chosen[:, None], positions=position)[:, -1]
            position += 1
        return torch.cat(tokens, dim=1)
