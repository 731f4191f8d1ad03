"""qk_norm_rope inside real sequence attention, the cache and the dispatch being the host's."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt_runtime.adapters.plan import RopeCall, SequencePlan
from flashrt_runtime.adapters.sequence import sequence_attention
from flashrt_runtime.adapters.slots import GLOBAL, plain_forward
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.swap import attach


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos[..., None, :] + torch.cat((-second, first), -1) * sin[..., None, :]


def rotate(q: Any, k: Any, cos: Any, sin: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return turn(q, cos, sin), turn(k, cos, sin)


def rotate_heads_first(q: Any, k: Any, cos: Any, sin: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out = rotate(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    return out[0].transpose(1, 2), out[1].transpose(1, 2)


class Attention(nn.Module):
    """Four 8-wide heads, normed each (8) or as one row (32), turned before or after the axes."""

    def __init__(self, width: int, heads_first: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
        self.qn, self.kn = (nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.width, self.heads_first = width, heads_first

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:2], 4, 8)
        normed = (*x.shape[:2], -1, self.width)
        q = self.qn(
            self.q(x).view(normed).squeeze(2) if self.width == 32 else self.q(x).view(shape)
        )
        k = self.kn(
            self.k(x).view(normed).squeeze(2) if self.width == 32 else self.k(x).view(shape)
        )
        q, k, v = q.view(shape), k.view(shape), self.v(x).view(shape).transpose(1, 2)
        if self.heads_first:
            q, k = rotate_heads_first(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        else:
            q, k = rotate(q, k, cos, sin)
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        return self.o(
            f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )


class Host(nn.Module):
    def __init__(self, width: int, heads_first: bool) -> None:
        super().__init__()
        self.a = Attention(width, heads_first)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return self.a(x, cos, sin) + 0


def body_of(seen: Any, core: Any, **named: Any) -> tuple[str, Any]:
    seam = seen.of("qk_norm_rope")[0]
    model = seen.host.model
    path = seam.members["self"]
    made = sequence_attention(
        model.get_submodule(path), core(seam, model), seen.plans[seam.id], **named
    )
    return path, made


@pytest.mark.parametrize("name", ["qwen3", "qwen3_vl"])
def test_the_hosts_output_and_its_cache_are_as_without(
    name: str, observed: Any, core: Any, swap_body: Any, agree: Any
) -> None:
    seen = observed(name)
    model = seen.host.model
    want = seen.host.forward()
    path, body = body_of(seen, core)
    width = model.get_submodule(path).q_proj.weight.shape[1]
    handle = attach(model, [swap_body(path, body, width)], on_guard_fail="raise")
    got = seen.host.forward()
    handle.detach()
    assert agree(got, want)
    assert body.account.calls > 0
    assert body.account.declined == 0


def test_decoding_with_a_cache_goes_on_from_what_the_core_wrote(
    observed: Any, core: Any, swap_body: Any
) -> None:
    seen = observed("qwen3")
    model = seen.host.model
    path, body = body_of(seen, core)
    tokens = torch.arange(5)[None] + 5

    def generate() -> torch.Tensor:
        return model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)

    want = generate()
    width = model.get_submodule(path).q_proj.weight.shape[1]
    handle = attach(model, [swap_body(path, body, width)], on_guard_fail="raise")
    got = generate()
    handle.detach()
    assert torch.equal(got, want)
    assert body.account.calls == 4


def test_projections_are_looked_up_at_every_call(observed: Any, core: Any, agree: Any) -> None:
    seen = observed("qwen3")
    path, body = body_of(seen, core)
    host = seen.host.model.get_submodule(path)
    x = torch.randn(1, 4, host.q_proj.weight.shape[1])
    cos, sin = torch.rand(1, 4, 128), torch.rand(1, 4, 128)
    given = {"hidden_states": x, "position_embeddings": (cos, sin), "attention_mask": None}
    before = body(**given)[0]
    assert agree(before, host(**given)[0])
    for name in ("v_proj", "o_proj"):
        projection = host._modules[name]
        host._modules[name] = torch.nn.Sequential(projection, torch.nn.Tanh())
        try:
            changed = body(**given)[0]
            assert agree(changed, host(**given)[0])
            assert not agree(changed, before)
        finally:
            host._modules[name] = projection
    assert "q_norm" not in body.inner
    assert {"q_proj", "k_proj", "v_proj", "o_proj"} <= body.inner


def test_a_strided_query_is_declined_and_never_copied(observed: Any, core: Any) -> None:
    seen = observed("qwen3_next")
    path, body = body_of(seen, core)
    host = seen.host.model.get_submodule(path)
    x = torch.randn(1, 4, host.q_proj.weight.shape[1])
    tables = (torch.rand(1, 4, 16), torch.rand(1, 4, 16))
    given = {"hidden_states": x, "position_embeddings": tables, "attention_mask": None}
    assert torch.equal(body(**given)[0], host(**given)[0])
    assert (body.account.calls, body.account.declined) == (0, 1)
    assert body.account.last.reason is Reason.LAYOUT
    strict = body_of(seen, core, strict=True)[1]
    with pytest.raises(Refusal, match="strided view") as refused:
        strict(**given)
    assert refused.value.reason is Reason.LAYOUT


def test_a_host_without_what_the_plan_names_is_refused(observed: Any) -> None:
    seen = observed("qwen3")
    seam = seen.of("qk_norm_rope")[0]
    plan = seen.plans[seam.id]
    host = seen.host.model.get_submodule(seam.members["self"])
    for wrong in (
        replace(plan, q_norm="nothing"),
        replace(plan, rope=replace(plan.rope, name="nothing")),
    ):
        with pytest.raises(Refusal, match="nothing") as refused:
            sequence_attention(host, dict, wrong)
        assert refused.value.reason is Reason.STRUCTURE


def test_the_host_and_its_file_are_unchanged(observed: Any, core: Any) -> None:
    seen = observed("qwen3")
    host = seen.host.model.get_submodule(seen.of("qk_norm_rope")[0].members["self"])
    scope = plain_forward(host).__globals__
    before = dict(host.__dict__), scope["apply_rotary_pos_emb"]
    _, body = body_of(seen, core)
    assert (dict(host.__dict__), scope["apply_rotary_pos_emb"]) == before
    assert list(body.parameters()) == []
    assert body.state_dict() == {}


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("width", [8, 32])
def test_a_declined_call_is_the_hosts_whatever_its_norms_span(
    width: int, heads_first: bool
) -> None:
    torch.manual_seed(0)
    host = Host(width, heads_first).eval().requires_grad_(False)
    angles = torch.rand(1, 6, 4).repeat(1, 1, 2)
    x, cos, sin = torch.randn(1, 6, 32), angles.cos(), angles.sin()
    name = "rotate_heads_first" if heads_first else "rotate"
    rope = RopeCall(name, GLOBAL, "q", "k", "cos", "sin", heads_first)
    body = sequence_attention(host.a, dict, SequencePlan("qn", "kn", "v", rope))
    assert torch.equal(body(x, cos[0], sin[0]), host.a(x, cos, sin))
    assert body.account.declined == 1
    assert "not [B or 1, T, R]" in body.account.last.detail


def test_a_copy_of_a_body_is_the_hosts_module_with_its_own_weights(
    observed: Any, core: Any
) -> None:
    path, body = body_of(observed("qwen3"), core)
    holder = nn.ModuleDict({"a": body})
    again = copy.deepcopy(holder)["a"]
    assert type(again) is type(body.host)
    again.q_proj.weight.zero_()
    assert bool(body.host.q_proj.weight.any()), path


def test_a_body_refuses_another_dtype(observed: Any, core: Any) -> None:
    _, body = body_of(observed("qwen3"), core)
    before = body.host.q_proj.weight.dtype
    with pytest.raises(Refusal, match="cannot change") as refused:
        nn.ModuleDict({"a": body}).double()
    assert refused.value.reason is Reason.MIGRATION
    assert body.host.q_proj.weight.dtype is before
