"""Two-way attention: the class that diffusers ships, and a plain tree for what it cannot show.

The package's class has no key and value cache and no neighbourhood metadata; those calls are
made on a tree written here, of other names and with its results in the other order.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt_runtime.adapters.two_way import TwoWayCores, two_way_attention
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.swap import attach

HEADS, KEYS, SIZE, WIDTH = 4, 2, 16, 24


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(SIZE) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.scale


def turn(x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    cos, sin = (t[:, None] for t in table)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Tree(nn.Module):
    """Two packs with projections and norms of their own; ``whole`` false drops one norm."""

    def __init__(self, whole: bool = True) -> None:
        super().__init__()
        for pack in "ab":
            for role, heads in (("q", HEADS), ("k", KEYS), ("v", KEYS)):
                setattr(self, pack + role, nn.Linear(WIDTH, heads * SIZE))
            setattr(self, pack + "o", nn.Linear(HEADS * SIZE, WIDTH))
            setattr(self, pack + "qn", Norm())
            setattr(self, pack + "kn", Norm() if whole or pack == "a" else nn.Identity())

    def heads(self, pack: str, x: torch.Tensor, table: Any) -> list[torch.Tensor]:
        q = getattr(self, pack + "qn")(getattr(self, pack + "q")(x).unflatten(-1, (HEADS, SIZE)))
        k = getattr(self, pack + "kn")(getattr(self, pack + "k")(x).unflatten(-1, (KEYS, SIZE)))
        v = getattr(self, pack + "v")(x).unflatten(-1, (KEYS, SIZE))
        return [t.transpose(0, 1)[None] for t in (turn(q, table), turn(k, table), v)]

    def forward(
        self, a: torch.Tensor, b: torch.Tensor, tables: Any, store: Any = None, natten: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = self.heads("a", a, tables["a"])
        if store is not None:
            k, v = store.update(k, v)
        first = f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        p, x, w = self.heads("b", b, tables["b"])
        both = [torch.cat(pair, dim=2) for pair in ((k, x), (v, w))]
        second = f.scaled_dot_product_attention(p, *both, enable_gqa=True)
        rows = [t.transpose(1, 2).flatten(2)[0] for t in (first, second)]
        return self.bo(rows[1]), self.ao(rows[0])


def table(positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.rand(positions, SIZE // 2).repeat(1, 2)
    return angle.cos(), angle.sin()


def tree(**named: Any) -> tuple[Tree, tuple[Any, ...]]:
    torch.manual_seed(0)
    host = Tree(**named).eval().requires_grad_(False)
    given = torch.randn(5, WIDTH), torch.randn(7, WIDTH), {"a": table(5), "b": table(7)}
    return host, given


def cores(core: Any, model: nn.Module, seams: Any) -> TwoWayCores:
    rope = {s.id.split(".")[-2]: core(s, model) for s in seams if "norm_rope" in s.id}

    def attend(mask: str) -> Any:
        variant = {"mask": mask, "scaling": "inverse_sqrt"}
        return core(Seam("", "attention_core@1", {}, variant, {}, {}), model)

    return TwoWayCores(rope["causal"], rope["full"], attend("causal"), attend("none"))


def adapted(core: Any, looked: Any, **named: Any) -> tuple[Any, Any, Any, Any]:
    host, given = tree()
    outer = nn.ModuleDict({"pair": host}).eval()
    seams, _, plans = looked(outer, lambda: host(*given))
    plan = plans["pair.two_way"]
    return two_way_attention(host, cores(core, outer, seams), plan, **named), host, given, plan


def test_the_class_that_a_package_ships_gives_its_own_output(
    observed: Any, core: Any, swap_body: Any, agree: Any
) -> None:
    seen = observed("cosmos3")
    model = seen.host.model
    paths = [key.removesuffix(".two_way") for key in seen.plans]
    assert paths == ["layers.0.self_attn", "layers.1.self_attn"]
    want = seen.host.forward()
    bodies = {}
    for path in paths:
        own = [s for s in seen.seams if s.members["self"] == path]
        host = model.get_submodule(path)
        plan = seen.plans[f"{path}.two_way"]
        assert plan.causal_first
        bodies[path] = two_way_attention(host, cores(core, model, own), plan)
    out = f"{paths[0]}.to_add_out"
    swaps = [swap_body(p, b, b.host.to_q.weight.shape[1]) for p, b in bodies.items()]
    handle = attach(model, swaps, on_guard_fail="raise")
    got = seen.host.forward()
    handle.detach()
    assert agree(got, want)
    assert all(b.account.calls > 0 and b.account.declined == 0 for b in bodies.values())
    projection = model.get_submodule(out)
    same = swap_body(out, nn.Sequential(projection), projection.weight.shape[1])
    handle = attach(model, [*swaps, same], on_guard_fail="raise")
    got = seen.host.forward()
    handle.detach()
    assert agree(got, want)
    assert handle.report()[f"{out}.test"].calls > 0


def test_a_plain_tree_of_other_names_and_order_is_served(
    core: Any, looked: Any, agree: Any
) -> None:
    body, host, given, plan = adapted(core, looked)
    assert (plan.causal.q, plan.full.out) == ("aq", "bo")
    assert plan.full.cos.path == ("b", 0)
    assert not plan.causal_first
    assert agree(body(*given), host(*given))
    for name in ("ao", "bo", "bv"):
        projection = getattr(host, name)
        host._modules[name] = nn.Sequential(projection, nn.Tanh())
        assert agree(body(*given), host(*given))
        host._modules[name] = projection
    assert body.account.declined == 0


class Store:
    def update(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return k, v


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"store": Store()}, "writes to the key and value cache"),
        ({"natten": {"window": 3}}, "neighbourhood-attention metadata"),
    ],
)
def test_a_cache_that_is_written_and_neighbourhood_metadata_are_refused(
    named: Any, says: str, core: Any, looked: Any, agree: Any
) -> None:
    body, host, given, _ = adapted(core, looked)
    assert agree(body(*given, **named), host(*given, **named))
    assert (body.account.calls, body.account.declined) == (0, 1)
    assert says in body.account.last.detail
    strict = adapted(core, looked, strict=True)[0]
    with pytest.raises(Refusal, match=says) as refused:
        strict(*given, **named)
    assert refused.value.reason is Reason.LAYOUT
    seams, missed, plans = looked(host, lambda: host(*given, **named))
    assert not [s for s in seams if s.structure == "qk_norm_rope@1"]
    assert not plans
    assert any(says in m.because.detail for m in missed)


def test_an_incomplete_pair_is_refused_by_discovery_and_by_the_adapter(
    core: Any, looked: Any
) -> None:
    host, given = tree(whole=False)
    seams, missed, plans = looked(host, lambda: host(*given))
    assert not plans
    assert not [s for s in seams if s.structure == "qk_norm_rope@1"]
    detail = next(m.because for m in missed if m.structure == "qk_norm_rope@1")
    assert detail.reason is Reason.STRUCTURE
    assert "incomplete pair: in its full pack" in detail.detail
    _, host, _, plan = adapted(core, looked)
    with pytest.raises(Refusal, match="incomplete pair") as refused:
        two_way_attention(host, dict, replace(plan, full=replace(plan.full, k="nothing")))
    assert refused.value.reason is Reason.STRUCTURE


@pytest.mark.parametrize(
    ("heads", "reason"),
    [((4, 3, 16), Reason.SHAPE), ((4, 2, 15), Reason.SHAPE), ((4, 2, 258), Reason.SHAPE)],
)
def test_heads_that_do_not_fit_are_refused(
    heads: Any, reason: Reason, core: Any, looked: Any
) -> None:
    _, host, _, plan = adapted(core, looked)
    with pytest.raises(Refusal) as refused:
        two_way_attention(host, dict, replace(plan, heads=heads))
    assert refused.value.reason is reason


def test_a_context_parallel_layout_is_refused_on_module_and_processor(
    core: Any, looked: Any
) -> None:
    _, host, given, plan = adapted(core, looked)
    for where in ("host", "processor"):
        target = host if where == "host" else SimpleNamespace()
        target.__dict__["_parallel_config"] = object()
        if where == "processor":
            host.__dict__["processor"] = target
        with pytest.raises(Refusal, match="context parallelism") as refused:
            two_way_attention(host, dict, plan)
        assert refused.value.reason is Reason.LAYOUT
        _, missed, plans = looked(host, lambda: host(*given))
        assert not plans
        assert all("context parallelism" in m.because.detail for m in missed)
        host.__dict__.pop("_parallel_config", None)


def test_a_call_without_a_pack_is_not_served(core: Any, looked: Any) -> None:
    strict, _, given, _ = adapted(core, looked, strict=True)
    with pytest.raises(Refusal, match="gives no b") as refused:
        strict(given[0], None, given[2])
    assert refused.value.reason is Reason.STRUCTURE
