from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt.host.discovery import Discovery, discover
from flashrt.host.discovery.near_miss import DECODER_FFN, LINEAR_PROJ, QKV_PACK
from flashrt_runtime.contract import Point
from flashrt_runtime.reason import Reason, Refusal

TOKENS = torch.arange(12)[None]
Build = Callable[..., nn.Module]


def find(model: nn.Module, *inputs: torch.Tensor) -> Discovery:
    given = inputs or (TOKENS,)
    return discover(model.eval(), lambda: model(*given))


def missed(found: Discovery, path: str, structure: str) -> Reason:
    return next(
        m.because.reason for m in found.refusals if (m.path, m.structure) == (path, structure)
    )


def test_a_decoder_is_taken_apart_by_what_it_did(llama: Build) -> None:
    found = find(llama())
    ffn = found.of(DECODER_FFN)
    assert [s.id for s in ffn] == ["model.layers.0.mlp", "model.layers.1.mlp"]
    first = ffn[0]
    assert first.members == {"self": "model.layers.0.mlp"}
    assert first.dims == {"D": 64, "F": 96}
    assert first.variant["activation"] == "silu"
    assert first.weights == {
        role: f"model.layers.0.mlp.{role}_proj.weight" for role in ("gate", "up", "down")
    }
    assert first.points["act_after_mul"] == Point("model.layers.0.mlp.down_proj", "input")
    pack = found.of(QKV_PACK)[1]
    assert pack.id == "model.layers.1.self_attn.qkv"
    assert list(pack.members) == ["q", "k", "v"]
    assert pack.dims == {"D": 64, "Nq": 64, "Nk": 32, "Nv": 32}
    linear = {s.id for s in found.of(LINEAR_PROJ)}
    attention = {f"model.layers.{i}.self_attn.{n}_proj" for i in (0, 1) for n in "qkvo"}
    assert linear == attention | {"lm_head"}
    assert [m for m in found.refusals if m.structure in (DECODER_FFN, QKV_PACK, LINEAR_PROJ)] == []


def test_the_model_is_left_as_it_was(llama: Build) -> None:
    model = llama()
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    find(model)
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.anything = inner

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.anything(tokens)


def test_wrapping_changes_paths_and_nothing_else(llama: Build) -> None:
    plain, wrapped = find(llama()), find(Wrapper(llama()))
    assert [f"anything.{s.id}" for s in plain.seams] == [s.id for s in wrapped.seams]
    assert [s.dims for s in plain.seams] == [s.dims for s in wrapped.seams]


def test_another_layer_is_found_with_the_others(llama: Build) -> None:
    more = find(llama(num_hidden_layers=3))
    assert len(more.of(DECODER_FFN)) == 3
    assert len(more.of(QKV_PACK)) == 3


class Gated(nn.Module):
    """A gated feed-forward whose names say nothing, or lie."""

    def __init__(
        self, activation: Callable[[torch.Tensor], torch.Tensor], bias: bool = False
    ) -> None:
        super().__init__()
        self.up_proj = nn.Linear(16, 24, bias=bias)  # is the gate
        self.zz = nn.Linear(16, 24, bias=bias)
        self.aa = nn.Linear(24, 16, bias=bias)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        other = self.zz(x)
        return self.aa(self.activation(self.up_proj(x)) * other)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Four heads of queries and one of keys and values, rows [T, N]."""
    heads = [t.unflatten(-1, (-1, 8)).transpose(0, 1)[None] for t in (q, k, v)]
    y = f.scaled_dot_product_attention(*heads, enable_gqa=True)
    return y[0].transpose(0, 1).flatten(1)


class Siblings(nn.Module):
    """Attention: three siblings and an output, the order of calls up to the caller."""

    def __init__(self, order: str = "cab", share: bool = True, bias: str = "") -> None:
        super().__init__()
        self.a = nn.Linear(16, 32, bias="a" in bias)
        self.b = nn.Linear(16, 8, bias="b" in bias)
        self.c = nn.Linear(16, 8, bias="c" in bias)
        self.out = nn.Linear(32, 16)
        self.order, self.share = order, share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        got = {}
        for name in self.order:
            got[name] = getattr(self, name)(x if self.share else x + 0)
        return self.out(attend(*(got[name] for name in "acb")))


class Block(nn.Module):
    def __init__(self, attention: nn.Module, feed: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two = attention, feed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.one(x)
        return x + self.two(x)


X = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))


def test_roles_come_from_numbers_not_from_names() -> None:
    found = find(Block(Siblings(), Gated(f.silu)), X)
    ffn = found.of(DECODER_FFN)[0]
    assert ffn.weights == {
        "gate": "two.up_proj.weight",
        "up": "two.zz.weight",
        "down": "two.aa.weight",
    }
    pack = found.of(QKV_PACK)[0]
    assert pack.members == {"k": "one.c", "q": "one.a", "v": "one.b"}
    assert list(pack.members) == ["k", "q", "v"]  # call order
    assert pack.points["x"].module == "one.c"


def test_biases_are_slots_and_a_variant() -> None:
    found = find(Block(Siblings(bias="abc"), Gated(f.silu, bias=True)), X)
    assert found.of(DECODER_FFN)[0].weights["down_bias"] == "two.aa.bias"
    pack = found.of(QKV_PACK)[0]
    assert pack.variant == {"bias": "present"}
    assert pack.weights["q_bias"] == "one.a.bias"
    some = find(Block(Siblings(bias="a"), Gated(f.silu)), X)
    assert missed(some, "one", QKV_PACK) is Reason.LAYOUT


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return f.gelu(x, approximate="tanh")


def test_silu_and_tanh_gelu_are_told_apart() -> None:
    for function, name in ((f.silu, "silu"), (tanh_gelu, "gelu_tanh")):
        found = find(Block(Siblings(), Gated(function)), X)
        assert found.of(DECODER_FFN)[0].variant["activation"] == name


def test_small_numbers_that_fit_two_activations_are_probed_larger() -> None:
    for function, expected in ((tanh_gelu, "gelu_tanh"), (f.gelu, None)):
        model = Block(Siblings(), Gated(function))
        with torch.no_grad():
            model.two.up_proj.weight.mul_(1e-3)
            model.two.zz.weight.mul_(1e-3)
        found = find(model, X)
        names = [s.variant["activation"] for s in found.of(DECODER_FFN)]
        assert names == ([expected] if expected else [])
        if not expected:
            assert missed(found, "two", DECODER_FFN) is Reason.STRUCTURE


def test_a_gate_that_is_all_zero_is_ambiguous() -> None:
    model = Block(Siblings(), Gated(f.silu))
    nn.init.zeros_(model.two.up_proj.weight)
    assert missed(find(model, X), "two", DECODER_FFN) is Reason.AMBIGUOUS


@pytest.mark.parametrize("function", [f.relu, f.gelu, torch.sigmoid, lambda x: x])
def test_another_activation_is_a_near_miss_that_names_it(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    found = find(Block(Siblings(), Gated(function)), X)
    assert found.of(DECODER_FFN) == ()
    assert missed(found, "two", DECODER_FFN) is Reason.STRUCTURE
    assert {"two.up_proj", "two.zz", "two.aa"} <= {s.id for s in found.of(LINEAR_PROJ)}


def test_siblings_that_read_copies_do_not_share() -> None:
    found = find(Block(Siblings(share=False), Gated(f.silu)), X)
    assert found.of(QKV_PACK) == ()
    assert missed(found, "one", QKV_PACK) is Reason.SHARED_INPUT


class InPlace(Siblings):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        x = x.mul_(2.0)
        return self.out(a * (self.b(x).sum(-1, keepdim=True) + self.c(x).sum(-1, keepdim=True)))


def test_an_input_written_in_place_between_siblings_is_not_shared() -> None:
    model = Block(InPlace(), Gated(f.silu)).eval()
    found = discover(model, lambda: model.one(X.clone()))
    assert found.of(QKV_PACK) == ()
    assert missed(found, "one", QKV_PACK) is Reason.SHARED_INPUT
    assert "one.a" in {s.id for s in found.of(LINEAR_PROJ)}  # it was seen before the write


class Alternating(Siblings):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.order = self.order[::-1]
        return super().forward(x)


def test_an_order_that_changes_within_the_forward_is_refused() -> None:
    model = Block(Alternating(), Gated(f.silu)).eval()
    found = discover(model, lambda: model(model(X)))
    assert missed(found, "one", QKV_PACK) is Reason.SHARED_INPUT


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both, self.down = nn.Linear(16, 48), nn.Linear(24, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.both(x).chunk(2, dim=-1)
        return self.down(f.silu(gate) * up)


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class NotAProduct(Transposed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return f.linear(x, self.weight).relu()


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(input=x)


def test_layouts_that_no_impl_takes_are_refused() -> None:
    found = find(Block(Transposed(), Packed()), X)
    assert missed(found, "one", LINEAR_PROJ) is Reason.LAYOUT
    assert missed(found, "two", DECODER_FFN) is Reason.LAYOUT
    other = find(Block(NotAProduct(), ByKeyword()), X)
    assert missed(other, "one", LINEAR_PROJ) is Reason.LAYOUT
    assert missed(other, "two.inner", LINEAR_PROJ) is Reason.LAYOUT
    weight = nn.Linear(16, 16)
    weight.weight = nn.Parameter(torch.randn(16, 32)[:, ::2])
    assert missed(find(Block(weight, Packed()), X), "one", LINEAR_PROJ) is Reason.LAYOUT


class Extra(Gated):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2.0


class Before(Gated):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(f.normalize(x))


def test_a_module_that_does_more_is_not_a_feed_forward() -> None:
    for kind in (Extra, Before):
        found = find(Block(Siblings(), kind(f.silu)), X)
        assert missed(found, "two", DECODER_FFN) is Reason.LAYOUT


def test_a_module_at_two_paths_cannot_be_replaced_at_one() -> None:
    shared = Gated(f.silu)
    found = find(Block(shared, shared), X)
    assert found.of(DECODER_FFN) == ()
    assert missed(found, "one", DECODER_FFN) is Reason.TIED


def test_a_tied_weight_is_a_note_and_the_seam_stands(llama: Build) -> None:
    found = find(llama(tie_word_embeddings=True))
    assert [(n.reason, n.subject) for n in found.notes] == [(Reason.TIED, "lm_head")]
    assert "lm_head" in {s.id for s in found.seams}
    assert find(llama(tie_word_embeddings=False)).notes == ()


def test_a_module_that_is_never_called_is_said_to_be() -> None:
    model = Block(Siblings(), Gated(f.silu))
    model.two.spare = nn.Linear(16, 16)
    assert missed(find(model, X), "two.spare", LINEAR_PROJ) is Reason.NEVER_CALLED


def test_training_mode_is_refused_whole_or_in_part() -> None:
    model = Block(Siblings(), Gated(f.silu))
    with pytest.raises(Refusal) as caught:
        discover(model.train(), lambda: model(X))
    assert caught.value.reason is Reason.TRAINING
    model.eval()
    model.two.aa.train()
    found = discover(model, lambda: model(X))
    assert missed(found, "two", DECODER_FFN) is Reason.TRAINING
    assert found.of(QKV_PACK)


def test_a_model_without_storage_is_refused(llama: Build) -> None:
    with torch.device("meta"):
        model = llama()
    with pytest.raises(Refusal, match="meta device") as caught:
        find(model)
    assert caught.value.reason is Reason.HOST


def test_a_forward_that_calls_something_else_is_refused(llama: Build) -> None:
    with pytest.raises(Refusal) as caught:
        discover(llama(), lambda: None)
    assert caught.value.reason is Reason.NEVER_CALLED


def test_a_host_without_the_structure_is_rejected_with_the_reason() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    found = find(net, torch.randn(1, 3, 8, 8))
    assert found.seams == ()
    absent = {m.structure for m in found.refusals if not m.path}
    assert {DECODER_FFN, LINEAR_PROJ, QKV_PACK} <= absent
    assert {m.because.reason for m in found.refusals if not m.path} == {Reason.STRUCTURE}
    with pytest.raises(Refusal, match="the host has no") as caught:
        found.require()
    assert caught.value.reason is Reason.STRUCTURE


def test_require_names_the_structure_that_is_missing() -> None:
    found = find(Block(Siblings(), Packed()), X)
    assert found.require(QKV_PACK) is found
    with pytest.raises(Refusal, match="decoder_ffn@1"):
        found.require(DECODER_FFN)


def test_four_siblings_are_not_guessed_between() -> None:
    class Four(Siblings):
        def __init__(self) -> None:
            super().__init__("abc")
            self.d = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + self.d(x)

    found = find(Block(Four(), Gated(f.silu)), X)
    assert missed(found, "one", QKV_PACK) is Reason.AMBIGUOUS


def test_experts_stacked_in_one_tensor_are_refused() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.randn(2, 24, 16))
            self.second = nn.Parameter(torch.randn(2, 16, 24))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ self.first[0].T) @ self.second[0].T

    found = find(Block(Siblings(), Experts()), X)
    assert missed(found, "two", DECODER_FFN) is Reason.LAYOUT


def test_half_precision_hosts_are_seen_too(llama: Build) -> None:
    found = find(llama().to(torch.bfloat16))
    assert len(found.of(DECODER_FFN)) == 2
    assert len(found.of(QKV_PACK)) == 2


def test_numbers_that_are_not_finite_are_a_near_miss() -> None:
    model = Block(Siblings(), Gated(f.silu))
    with torch.no_grad():
        model.two.zz.weight[0, 0] = float("nan")
    assert missed(find(model, X), "two.zz", LINEAR_PROJ) is Reason.NONFINITE
