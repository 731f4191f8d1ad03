"""attention_core in the place of a host's own attending, everything else the host's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt_runtime.adapters.core import attention_interface, attention_processor
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.swap import attach

NONE = {"mask": "none", "scaling": "inverse_sqrt"}
PROCESSORS = ["wan22", "flux", "qwenimage", "cosmos"]
INTERFACES = ["llama", "qwen3", "qwen3_vl", "qwen3_next"]


class Doubled(nn.Module):
    """A projection that is not the host's, so that a test sees whether it ran."""

    def __init__(self, host: nn.Module) -> None:
        super().__init__()
        self.__dict__["host"] = host

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.host.forward(x) * 2


def bodies(seen: Any, core: Any) -> dict[str, Any]:
    made = {}
    for seam in seen.of("attention_core"):
        path = seam.members["self"]
        host = seen.host.model.get_submodule(path)
        make = attention_processor if hasattr(host, "processor") else attention_interface
        made[path] = make(host, core(seam, seen.host.model), seam.variant)
    return made


@pytest.mark.parametrize("name", PROCESSORS + INTERFACES)
def test_a_host_with_the_reference_core_gives_its_own_output(
    name: str, observed: Any, core: Any, swap_body: Any, agree: Any
) -> None:
    seen = observed(name)
    want = seen.host.forward()
    placed = bodies(seen, core)
    swaps = [swap_body(p, b, first_width(seen.host.model, p)) for p, b in placed.items()]
    handle = attach(seen.host.model, swaps, on_guard_fail="raise")
    try:
        got = seen.host.forward()
    finally:
        handle.detach()
    assert agree(got, want)
    assert placed
    assert all(b.account.calls > 0 and b.account.declined == 0 for b in placed.values())
    assert agree(seen.host.forward(), want)


def first_width(model: nn.Module, path: str) -> int:
    """What the module's first projection reads."""
    return next(
        int(m.weight.shape[1])
        for m in model.get_submodule(path).modules()
        if isinstance(m, nn.Linear)
    )


@pytest.mark.parametrize(
    "where",
    ["llama o_proj", "wan22 to_out.0", "flux to_add_out", "flux to_v"],
)
def test_a_swap_of_a_projection_composes_with_the_body(
    where: str, observed: Any, core: Any, swap_body: Any, agree: Any
) -> None:
    name, out = where.split()
    seen = observed(name)
    model = seen.host.model
    path, body = next(iter(bodies(seen, core).items()))
    inner = f"{path}.{out}"
    projection = model.get_submodule(inner)
    lone = swap_body(inner, Doubled(projection), projection.weight.shape[1])
    handle = attach(model, [lone])
    want = seen.host.forward()
    handle.detach()
    both = [swap_body(path, body, first_width(model, path)), lone]
    for swaps in (both, both[::-1]):
        before = body.account.calls
        handle = attach(model, swaps, on_guard_fail="raise")
        got = seen.host.forward()
        handle.detach()
        assert agree(got, want)
        assert not agree(got, seen.host.forward())
        assert body.account.calls > before


def test_a_member_that_no_body_calls_as_a_module_still_conflicts(
    observed: Any, core: Any, swap_body: Any
) -> None:
    seen = observed("llama")
    path, body = next(iter(bodies(seen, core).items()))
    inner = f"{path}.o_proj"
    projection = seen.host.model.get_submodule(inner)
    lone = swap_body(inner, Doubled(projection), projection.weight.shape[1])
    body.inner = frozenset({"q_proj"})
    with pytest.raises(Refusal) as refused:
        attach(seen.host.model, [swap_body(path, body, 64), lone])
    assert refused.value.reason is Reason.CONFLICT


class Attention(nn.Module):
    """Attends to what it is given, through a processor that takes the module."""

    def __init__(self) -> None:
        super().__init__()
        self.processor = self.attend
        self.to_out = nn.Linear(8, 8)

    def attend(self, module: nn.Module, x: torch.Tensor, **named: Any) -> torch.Tensor:
        q = x.unflatten(-1, (2, 4)).transpose(1, 2)
        y = f.scaled_dot_product_attention(q, q, q, **named)
        return module.to_out(y.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor, **named: Any) -> torch.Tensor:
        return self.processor(self, x, **named)


def small() -> tuple[Attention, torch.Tensor]:
    torch.manual_seed(0)
    return Attention().eval().requires_grad_(False), torch.randn(2, 6, 8)


def reference(variant: dict[str, str]) -> Any:
    from flashrt.spec import load, load_reference

    held = load_reference(load("attention_core@1"))
    return lambda inputs: held.run(inputs, {}, variant)


RANGES = torch.tensor([1, 1, 0, 0, 1, 0]).bool().expand(6, 6)


def test_key_ranges_are_made_of_the_mask_of_the_call() -> None:
    host, x = small()
    variant = NONE | {"mask": "key_ranges"}
    seen = []
    body = attention_processor(
        host, lambda i: seen.append(i["ranges"].tolist()) or reference(variant)(i), variant
    )
    additive = torch.zeros(6, 6).masked_fill(~RANGES, float("-inf"))
    for mask in (RANGES, additive):
        assert torch.allclose(body(x, attn_mask=mask), host(x, attn_mask=mask), atol=1e-6)
    assert torch.allclose(body(x), host(x), atol=1e-6)
    assert seen == [[[0, 2], [4, 5]], [[0, 2], [4, 5]], [[0, 6]]]


@pytest.mark.parametrize(
    ("named", "reason", "says"),
    [
        (
            {"attn_mask": torch.tensor([1, 0, 1, 0, 1, 0]).bool().expand(6, 6)},
            Reason.LAYOUT,
            "3 ranges",
        ),
        ({"attn_mask": torch.ones(6, 6).tril(2).bool()}, Reason.LAYOUT, "differ between queries"),
        ({"attn_mask": torch.full((6, 6), 0.5)}, Reason.LAYOUT, "bias"),
        ({"attn_mask": torch.zeros(6, 6, dtype=torch.bool)}, Reason.LAYOUT, "no key"),
        ({"is_causal": True}, Reason.FORM, "causal"),
        ({"attn_mask": RANGES}, Reason.FORM, "key_ranges"),
        ({"scale": 0.3}, Reason.FORM, "scales"),
        ({"dropout_p": 0.5}, Reason.TRAINING, "drops"),
    ],
)
def test_a_call_outside_the_boundary_runs_the_host_or_raises(
    named: dict[str, Any], reason: Reason, says: str
) -> None:
    host, x = small()
    body = attention_processor(host, reference(NONE), NONE)
    torch.manual_seed(1)
    want = host(x, **named)
    torch.manual_seed(1)
    assert torch.equal(body(x, **named).nan_to_num(7), want.nan_to_num(7))
    assert (body.account.calls, body.account.declined) == (0, 1)
    assert body.account.last.reason is reason
    assert says in body.account.last.detail
    strict = attention_processor(host, reference(NONE), NONE, strict=True)
    with pytest.raises(Refusal) as refused:
        strict(x, **named)
    assert refused.value.reason is reason


def test_a_body_is_captured_whole_with_its_mask_asserted_on_the_device() -> None:
    host, x = small()
    variant = NONE | {"mask": "key_ranges"}

    def core(inputs: Any) -> dict[str, torch.Tensor]:
        q, k, v = (inputs[n].transpose(1, 2) for n in "qkv")
        key = torch.arange(k.shape[2])
        at = inputs["ranges"]
        seen = ((key >= at[:, :1]) & (key < at[:, 1:])).any(0).expand(6, 6)
        return {"y": f.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2)}

    body = attention_processor(host, core, variant)
    compiled = torch.compile(body, fullgraph=True, backend="eager")
    one = torch.tensor([0, 1, 1, 1, 0, 0]).bool().expand(6, 6)
    for mask in (RANGES, one):
        got = compiled(x, attn_mask=mask)
        assert torch.allclose(got, host(x, attn_mask=mask), atol=1e-6)
    with pytest.raises(RuntimeError, match="one or two ranges"):
        compiled(x, attn_mask=torch.tensor([1, 0, 1, 0, 1, 0]).bool().expand(6, 6))


def test_hosts_that_no_processor_or_interface_serves_are_refused() -> None:
    host, _ = small()
    with pytest.raises(Refusal) as refused:
        attention_processor(nn.Linear(4, 4).eval(), reference(NONE), NONE)
    assert refused.value.reason is Reason.STRUCTURE
    with pytest.raises(Refusal) as refused:
        attention_interface(host, reference(NONE), NONE)
    assert refused.value.reason is Reason.STRUCTURE
    with pytest.raises(Refusal) as refused:
        attention_processor(host.train(), reference(NONE), NONE)
    assert refused.value.reason is Reason.TRAINING


def test_a_context_parallel_layout_is_refused() -> None:
    host, _ = small()
    host._parallel_config = object()
    with pytest.raises(Refusal, match="context parallelism") as refused:
        attention_processor(host, reference(NONE), NONE)
    assert refused.value.reason is Reason.LAYOUT
