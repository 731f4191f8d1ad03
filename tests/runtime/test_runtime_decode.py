"""The loop says exactly what the host's own greedy generate says, or refuses before it runs."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime.capture import capture
from flashrt_runtime.decode.cache import layout_of
from flashrt_runtime.decode.loop import GenerateLoop, Stop
from flashrt_runtime.decode.step import DecodeStep
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.swap import attach

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}


def host(family: str, **other: Any) -> Any:
    import transformers

    kinds = ["sliding_attention", "full_attention"]
    extra: dict[str, dict[str, Any]] = {
        "Llama": {},
        "Qwen3": {"head_dim": 12},
        "Mistral": {"sliding_window": 6},
        "Gemma3": {"head_dim": 12, "sliding_window": 6, "layer_types": kinds},
    }
    name = "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config"
    config = getattr(transformers, name)(**SIZES | extra[family] | other)
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.mul_(3)
    return model


def eager_loop(model: Any, batch: int = 1, context: int = 32) -> GenerateLoop:
    step = DecodeStep(model, batch, 1, context)
    return GenerateLoop(step, capture(step, step.windows(), form=("eager",)))


def refused(reason: Reason, act: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Mistral", "Gemma3"])
def test_greedy_tokens_are_the_hosts_own(family: str, attention: str) -> None:
    model = host(family, attn_implementation=attention)
    loop = eager_loop(model)
    for length in (1, 9):
        prompt = torch.randint(1, 61, (1, length))
        expected = model.generate(prompt, max_new_tokens=16, do_sample=False)
        assert torch.equal(loop.generate(prompt, 16), expected)
        assert len(set(expected[0].tolist())) > 4
    assert loop.stopped is Stop.LENGTH


def test_logits_of_every_position_are_the_hosts() -> None:
    model = host("Qwen3")
    tokens = torch.randint(1, 61, (2, 12))
    step = DecodeStep(model, 2, 12, 16)
    with torch.no_grad():
        expected = model(tokens, use_cache=False).logits
        whole = step(tokens, torch.arange(12))
        step.reset()
        parts = [step(tokens[:, i : i + 4], torch.arange(i, i + 4)) for i in (0, 4, 8)]
    assert whole.shape == (2, 12, 61)
    assert torch.allclose(whole, expected, atol=1e-4)
    assert torch.allclose(torch.cat(parts, 1), expected, atol=1e-4)


def test_generation_stops_where_the_host_stops() -> None:
    model = host("Llama")
    prompt = torch.randint(1, 61, (2, 5))
    loop = eager_loop(model, batch=2)
    free = loop.generate(prompt, 12)
    model.generation_config.eos_token_id = [int(free[0, 8])]
    loop = eager_loop(model, batch=2)
    expected = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False
    )
    assert torch.equal(loop.generate(prompt, 12), expected)
    only = eager_loop(model).generate(prompt[:1], 12)
    assert only.shape[1] <= 9
    assert torch.equal(loop.generate(prompt, 12, eos_token_id=[]), free)


def test_the_context_ends_generation_and_refuses_a_prompt_that_does_not_fit() -> None:
    model = host("Llama")
    loop = eager_loop(model, context=8)
    out = loop.generate(torch.ones(1, 6, dtype=torch.int64), 50)
    assert out.shape == (1, 9)
    assert loop.stopped is Stop.CONTEXT
    refusal = refused(Reason.SHAPE, lambda: loop.generate(torch.ones(1, 9, dtype=torch.int64), 1))
    assert "1 x 9 tokens" in refusal.what
    refused(Reason.SHAPE, lambda: loop.generate(torch.ones(2, 3, dtype=torch.int64), 1))
    refused(Reason.SHAPE, lambda: loop.generate(torch.ones(3, dtype=torch.int64), 1))
    refused(Reason.SHAPE, lambda: loop.generate(torch.ones(1, 3, dtype=torch.int64), 0))


def test_settings_under_which_greedy_is_not_argmax_are_refused() -> None:
    model = host("Llama")
    model.generation_config.repetition_penalty = 1.3
    assert "repetition_penalty" in refused(Reason.FORM, lambda: eager_loop(model)).what


def test_a_step_of_several_rows_has_no_loop() -> None:
    step = DecodeStep(host("Llama"), 1, 4, 8)
    stage = capture(step, step.windows(), form=("eager",))
    refused(Reason.FORM, lambda: GenerateLoop(step, stage))
    assert stage.windows["positions"].tolist() == [0, 1, 2, 3]


def test_a_second_thread_is_refused_before_the_prompt_runs(swap_of: Any) -> None:
    model = host("Llama")
    handle = attach(model, [])
    step = DecodeStep(model, 1, 1, 16)
    loop = GenerateLoop(step, capture(step, step.windows(), form=("eager",)), handle)
    prompt = torch.ones(1, 3, dtype=torch.int64)
    loop.generate(prompt, 2)
    caught: list[Any] = []

    def run() -> None:
        try:
            loop.generate(prompt, 2)
        except Refusal as refusal:
            caught.append(refusal.reason)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert caught == [Reason.THREAD]
    assert handle.stages[0].replays == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layer_types": ["linear_attention"]}, Reason.STRUCTURE),
        ({"layer_types": ["sliding_attention"], "sliding_window": None}, Reason.STRUCTURE),
        ({"num_hidden_layers": None}, Reason.STRUCTURE),
        ({"_attn_implementation": "flash_attention_2"}, Reason.FORM),
    ],
)
def test_hosts_that_keep_another_state_are_refused(change: Any, reason: Reason) -> None:
    fields = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
    model: Any = nn.Module()
    model.config = SimpleNamespace(**fields | change)
    refused(reason, lambda: layout_of(model))


def test_the_layout_falls_back_to_what_the_config_implies() -> None:
    model: Any = nn.Module()
    model.config = SimpleNamespace(num_hidden_layers=2, num_attention_heads=4, hidden_size=32)
    layout = layout_of(model)
    assert (layout.layers, layout.kv_heads, layout.head_dim) == (2, 4, 8)
    refused(Reason.STRUCTURE, lambda: layout_of(nn.Linear(1, 1)))


@pytest.mark.parametrize("sizes", [(0, 1, 4), (1, 0, 4), (1, 5, 4)])
def test_steps_that_nothing_fits_are_refused(sizes: tuple[int, int, int], llama: Any) -> None:
    refused(Reason.SHAPE, lambda: DecodeStep(llama, *sizes))


def test_a_host_without_a_cache_argument_is_refused() -> None:
    class NoCache(nn.Module):
        config = SimpleNamespace(num_hidden_layers=1, num_attention_heads=1, hidden_size=4)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return input_ids

    assert "no cache" in refused(Reason.STRUCTURE, lambda: DecodeStep(NoCache(), 1, 1, 4)).what
