"""What the finders see in the real classes, and that names and wrapping change nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flashrt.host.discovery.attention import AttentionTap, find
from flashrt.host.discovery.trace import trace
from flashrt_runtime.reason import Reason

HIDDEN = torch.randn(1, 5, 12, generator=torch.Generator().manual_seed(2))
PARTS = {"attention": "attention_core@1", "normed": "qk_norm_rope@1", "packed": "qkv_rope@1"}


def count(seams: Any) -> dict[str, int]:
    return {n: sum(s.structure == full for s in seams) for n, full in PARTS.items()}


@pytest.mark.parametrize(
    ("name", "attention", "normed", "packed"),
    [
        ("llama", 2, 0, 0),
        ("qwen3", 2, 2, 0),
        ("qwen3_vl", 4, 2, 2),
        ("qwen3_next", 1, 1, 0),
        ("wan22", 4, 0, 0),
        ("flux", 4, 0, 0),
        ("qwenimage", 2, 0, 0),
        ("cosmos3", 4, 4, 0),
    ],
)
def test_real_classes(name: str, attention: int, normed: int, packed: int, tiny: Any) -> None:
    seams, _, _ = tiny(name)
    assert count(seams) == {"attention": attention, "normed": normed, "packed": packed}


@pytest.mark.parametrize(
    ("name", "reason", "says"),
    [
        ("llama", Reason.STRUCTURE, "without a norm"),
        ("wan22", Reason.STRUCTURE, "pairs neighbouring elements"),
        ("flux", Reason.LAYOUT, "joins the rows of several projections"),
    ],
)
def test_near_misses_of_real_classes(name: str, reason: Reason, says: str, tiny: Any) -> None:
    _, missed, _ = tiny(name)
    found = [m.because for m in missed if m.structure == "qk_norm_rope@1"]
    assert any(b.reason is reason and says in b.detail for b in found)


def test_a_real_class_in_full(tiny: Any) -> None:
    seams, _, tap = tiny("qwen3_next")
    seam = next(s for s in seams if s.structure == "qk_norm_rope@1")
    path = seam.members["self"]
    assert seam.id == f"{path}.qk_norm_rope"
    assert seam.variant == {"norm": "per_head", "gain": "offset", "eps": "1e-06"}
    assert seam.dims == {"Hq": 4, "Hkv": 1, "G": 4, "Dh": 64, "R": 16}
    assert seam.weights == {n: f"{path}.{n}.weight" for n in ("q_norm", "k_norm")}
    plan = tap.plans[seam.id]
    assert (plan.rope.cos, plan.rope.sin, plan.rope.heads_first) == ("cos", "sin", True)


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.deep = nn.ModuleDict({"er": inner})

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.deep["er"](*args, **named)


def test_a_tree_of_other_names_is_found_wrapped_or_not(
    plain: Any, tables: Any, looked: Any
) -> None:
    model = Outer(plain(norm=lambda heads: nn.RMSNorm(8, eps=1e-5))).eval()
    seams, missed, _ = looked(model, lambda: model(HIDDEN, tables()))
    assert missed == []
    core, rope = seams
    assert core.id == "deep.er.attention_core"
    assert core.variant == {"mask": "causal", "scaling": "inverse_sqrt"}
    assert core.dims == {"Hq": 4, "Hkv": 2, "G": 2, "Dh": 8, "Dv": 8}
    assert rope.weights == {"q_norm": "deep.er.n1.weight", "k_norm": "deep.er.n2.weight"}
    assert rope.variant["eps"] == "1e-05"
    again = Outer(model).eval()
    wrapped, _, _ = looked(again, lambda: again(HIDDEN, tables()))
    assert [s.id for s in wrapped] == [f"deep.er.{s.id}" for s in seams]
    assert [s.dims for s in wrapped] == [s.dims for s in seams]


def test_a_norm_of_the_whole_projection_and_a_partial_rotation(
    plain: Any, tables: Any, looked: Any
) -> None:
    model = Outer(plain(norm=lambda heads: nn.RMSNorm(heads * 8))).eval()
    for norm in (model.deep["er"].n1, model.deep["er"].n2):
        norm.weight.data.uniform_(0.5, 1.5)
    seams, _, _ = looked(model, lambda: model(HIDDEN, tables(width=4)))
    rope = seams[1]
    assert rope.variant["norm"] == "projection"
    assert rope.variant["head_dim"] == "8"
    assert rope.dims["R"] == 4
    assert set(rope.weights) == {"q_norm_wide", "k_norm_wide"}


def test_a_mask_of_key_ranges_and_a_scale_of_its_own(plain: Any, looked: Any) -> None:
    model = Outer(plain()).eval()
    mask = torch.tensor([1, 1, 0, 1, 1]).bool().expand(5, 5)
    seams, _, _ = looked(model, lambda: model(HIDDEN, attn_mask=mask, scale=0.25))
    assert seams[0].variant == {"mask": "key_ranges", "scaling": "given", "scale": "0.25"}


def test_the_tap_leaves_the_model_and_its_file_as_they_were(tiny: Any) -> None:
    model = tiny("qwen3")[2].model
    layer = model.model.layers[0].self_attn
    before = [dict(m.__dict__) for m in model.modules()]
    scope = type(layer).forward.__wrapped__.__globals__
    rope = scope["apply_rotary_pos_emb"]

    def stopped() -> None:
        assert scope["apply_rotary_pos_emb"] is not rope
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        trace(model, stopped, modes=(AttentionTap(model),))
    assert [dict(m.__dict__) for m in model.modules()] == before
    assert scope["apply_rotary_pos_emb"] is rope


def test_only_one_forward_is_run_and_a_part_that_raises_is_forgotten(
    plain: Any, tables: Any
) -> None:
    inner = plain(norm=lambda heads: nn.RMSNorm(8))
    runs = []

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            runs.append(x)
            with pytest.raises(RuntimeError):
                self.inner(x[..., :3])
            return self.inner(x, tables())

    model = Tries().eval()
    tap = AttentionTap(model)
    first = trace(model, lambda: model(HIDDEN), modes=(tap,))
    seams, missed = find(model, first, tap)
    assert len(runs) == 1
    assert [s.id for s in seams] == ["inner.attention_core", "inner.qk_norm_rope"]
    assert missed == []


def test_a_host_that_never_attends_says_so(looked: Any) -> None:
    model = nn.Sequential(nn.Linear(12, 12)).eval()
    seams, missed, _ = looked(model, lambda: model(HIDDEN))
    assert seams == []
    assert [(m.path, m.because.reason) for m in missed] == [("", Reason.STRUCTURE)]


def test_prefill_and_decode_of_a_causal_host_are_one_seam(tiny: Any, looked: Any) -> None:
    model = tiny("qwen3")[2].model
    tokens = torch.arange(4)[None] + 5
    seams, _, _ = looked(
        model, lambda: model.generate(tokens, max_new_tokens=3, do_sample=False, pad_token_id=0)
    )
    attention = [s for s in seams if s.structure == "attention_core@1"]
    assert [s.variant["mask"] for s in attention] == ["causal", "causal"]
    assert attention[0].id == "model.layers.0.self_attn.attention_core"
    assert count(seams)["normed"] == 2
