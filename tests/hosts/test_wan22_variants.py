"""The per-token time of Wan2.2's 5B variant: what the binding of A14B does and does not cover."""

from __future__ import annotations

import pytest
import torch

from flashrt.binding import load_binding, resolve
from flashrt.binding.proof import prove
from flashrt.host.tiny import build
from flashrt.host.tiny.wan22 import LATENT, TEXT_TOKENS


def test_a_time_per_token_leaves_only_the_modulated_chain_unproven() -> None:
    model = build("wan22").model
    tokens = LATENT[2] * LATENT[3] * LATENT[4] // 4
    source = torch.Generator().manual_seed(5)
    latent = torch.randn(LATENT, generator=source)
    text = torch.randn(1, TEXT_TOKENS, 32, generator=source)
    times = torch.linspace(0, 900, tokens)[None]
    binding = load_binding("wan22")
    proofs = prove(binding, model, lambda: model(latent, times, text))
    assert {p.region for p in proofs if not p.ok} == {"self_chain"}


@pytest.mark.parametrize("region", ["self_attention", "cross_attention"])
def test_attention_is_reached_by_a_processor_and_keeps_the_output_projection(region: str) -> None:
    binding = load_binding("wan22")
    found = resolve(binding, build("wan22").model)
    attention = binding.regions[region]
    assert attention.adapter.value == "attention_processor"
    outs = {s.members["self"] for s in found if s.members.get("self", "").endswith("to_out.0")}
    assert len(outs) == 4
