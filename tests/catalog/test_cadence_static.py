"""cadence_static's reference against diffusers' cross-attention, refreshed and read."""

from __future__ import annotations

import pytest
import torch
from diffusers.models.attention_processor import Attention

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

REFRESH = {"phase": "refresh", "bias": "none"}
READ = {"phase": "read", "bias": "none"}
SIZES = {"M": 6, "C": 8, "N": 16, "P": 3}


@pytest.fixture(scope="module")
def reference() -> Reference:
    return load_reference(load("cadence_static"))


def producers(bias: bool) -> tuple[Attention, list[torch.nn.Linear], dict[str, torch.Tensor]]:
    """A cross-attention of diffusers, its key and value projections, and those by slot."""
    torch.manual_seed(0)
    attention = Attention(query_dim=24, cross_attention_dim=32, heads=2, dim_head=8, bias=bias)
    attention = attention.eval().requires_grad_(False)
    made = [attention.to_k, attention.to_v]
    slots = {f"weight.{p}": module.weight for p, module in enumerate(made)}
    if bias:
        slots |= {f"bias.{p}": module.bias for p, module in enumerate(made)}
    return attention, made, slots


@pytest.mark.parametrize("bias", [False, True])
def test_a_refresh_is_what_each_producer_gives_in_the_hosts_loop(
    reference: Reference, bias: bool
) -> None:
    attention, made, slots = producers(bias)
    variant = {**REFRESH, "bias": "present" if bias else "none"}
    source, seen = torch.randn(2, 5, 32), []
    for module in made:
        module.register_forward_hook(lambda module, args, y: seen.append(y))
    for _ in range(3):  # the loop: another query, the same encoder's output
        attention(torch.randn(2, 4, 24), encoder_hidden_states=source)
    out = reference.run({"source": source}, slots, variant)
    assert list(out) == ["buffer.0", "buffer.1"]
    for step in range(3):
        for p in range(2):
            torch.testing.assert_close(out[f"buffer.{p}"], seen[2 * step + p])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reads_return_the_buffers_bit_for_bit_until_the_next_refresh(
    reference: Reference, dtype: torch.dtype
) -> None:
    _, _, slots = producers(bias=False)
    held = reference.run({"source": torch.randn(5, 32).to(dtype)}, slots, REFRESH)
    assert {t.dtype for t in held.values()} == {dtype}
    read = held
    for _ in range(3):
        read = reference.run(read, slots, READ)
    assert list(read) == list(held)
    assert all(torch.equal(read[n], held[n]) for n in held)
    other = reference.run({"source": torch.randn(5, 32).to(dtype)}, slots, REFRESH)
    assert not torch.equal(other["buffer.0"], held["buffer.0"])


def test_bfloat16_is_computed_in_float32_and_rounded_once(reference: Reference) -> None:
    _, _, slots = producers(bias=False)
    narrow = {n: t.bfloat16() for n, t in slots.items()}
    source = torch.randn(5, 32).bfloat16()
    out = reference.run({"source": source}, narrow, REFRESH)
    wide = reference.run(
        {"source": source.float()}, {n: t.float() for n, t in narrow.items()}, REFRESH
    )
    assert all(torch.equal(out[n], wide[n].bfloat16()) for n in wide)


def test_a_missing_producer_is_refused(reference: Reference) -> None:
    _, _, slots = producers(bias=True)
    del slots["bias.1"]
    with pytest.raises(Refusal, match="bias") as refused:
        reference.run({"source": torch.randn(5, 32)}, slots, {**REFRESH, "bias": "present"})
    assert refused.value.reason in {Reason.BINDING, Reason.SHAPE}


def test_a_read_has_no_source(reference: Reference) -> None:
    _, _, slots = producers(bias=False)
    with pytest.raises(Refusal, match="source") as refused:
        reference.run({"source": torch.randn(5, 32)}, slots, READ)
    assert refused.value.reason is Reason.BINDING


def test_cost_is_the_count_by_hand(reference: Reference) -> None:
    """3 producers of 16 from 6 rows of 8; a read hands over 3 addresses."""
    plain = reference.cost(SIZES, REFRESH, weight_bytes=1.0, activation_bytes=2.0)
    assert plain.flops == 2 * 6 * 8 * 48
    assert plain.bytes == 8 * 48 + 2 * 6 * (8 + 48)
    biased = reference.cost(SIZES, {**REFRESH, "bias": "present"}, 1.0, 2.0)
    assert biased.flops - plain.flops == 6 * 48
    assert biased.bytes - plain.bytes == 2 * 48
    read = reference.cost(SIZES, READ)
    assert (read.flops, read.bytes) == (0.0, 24.0)
