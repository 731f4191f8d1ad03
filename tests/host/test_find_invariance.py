"""What is right to find does not change with names, wrappers or shared modules."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.host.discovery import Discovery, discover
from flashrt.host.discovery.near_miss import (
    DECODER_BLOCK,
    DECODER_FFN,
    LINEAR_PROJ,
    NORM_FUSED,
    QKV_PACK,
)
from flashrt.host.discovery.trace import trace
from flashrt_runtime.reason import Reason, Refusal

Build = Callable[..., nn.Module]
TOKENS = torch.arange(12)[None]


def find(model: nn.Module) -> Discovery:
    return discover(model, lambda: model(TOKENS))


def shape(found: Discovery) -> list[Any]:
    """Seams without any path: structure, variant, dims, roles and slots."""
    return [
        (s.structure, s.variant, s.dims, list(s.members), sorted(s.weights), sorted(s.points))
        for s in found.seams
    ]


def renamed(model: nn.Module) -> nn.Module:
    """The host with every module under another name; its own code finds them by the old ones."""
    count = 0
    for module in list(model.modules()):
        children = module._modules
        if not children or isinstance(module, nn.ModuleList):
            continue
        names = {}
        for name in list(children):
            names[name] = f"m{count}"
            children[names[name]] = children.pop(name)
            count += 1
        kind = type(module)

        def get(self: nn.Module, name: str, names: dict[str, str] = names) -> Any:
            return nn.Module.__getattr__(self, names.get(name, name))

        module.__class__ = type("Anything", (kind,), {"__getattr__": get})
    return model


def test_every_module_under_another_name_and_class(llama: Build) -> None:
    plain, other = find(llama()), find(renamed(llama()))
    assert shape(plain) == shape(other)
    assert not {s.id for s in plain.seams} & {s.id for s in other.seams}
    assert [m.because.reason for m in plain.refusals] == [m.because.reason for m in other.refusals]


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.anything = inner

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.anything(tokens)


def test_a_wrapped_host_has_the_same_seams_below_the_wrapper(llama: Build) -> None:
    plain, wrapped = find(llama()), find(Wrapper(llama()).eval())
    assert shape(plain) == shape(wrapped)
    assert [f"anything.{s.id}" for s in plain.seams] == [s.id for s in wrapped.seams]


def test_a_projection_that_two_layers_share_hides_nothing_around_it(llama: Build) -> None:
    model = llama()
    first, second = model.model.layers
    second.mlp.down_proj = first.mlp.down_proj
    second.self_attn.o_proj = first.self_attn.o_proj
    found, plain = find(model), find(llama())
    for structure in (DECODER_FFN, QKV_PACK, NORM_FUSED, DECODER_BLOCK):
        assert [s.record() for s in found.of(structure)] == [
            s.record() for s in plain.of(structure)
        ]
    shared = {s.id for s in plain.of(LINEAR_PROJ)} - {s.id for s in found.of(LINEAR_PROJ)}
    assert shared == {f"model.layers.{i}.self_attn.o_proj" for i in (0, 1)}
    tied = {m.path: m.because for m in found.refusals if m.because.reason is Reason.TIED}
    assert tied.keys() == shared
    notes = {n.subject for n in found.notes if n.reason is Reason.TIED}
    assert {f"model.layers.{i}.mlp" for i in (0, 1)} <= notes  # packing makes a copy


def test_a_layer_is_found_as_a_whole(llama: Build) -> None:
    first, second = find(llama()).of(DECODER_BLOCK)
    assert first.members == {"self": "model.layers.0"}
    assert second.dims == {"D": 64, "F": 96, "Hq": 4, "Hkv": 2, "G": 2, "Dh": 16, "R": 16}
    assert first.variant == {
        "norm": "rms_direct",
        "eps": "1e-05",
        "qk_norm": "none",
        "head_dim": "16",
        "bias": "none",
        "activation": "silu",
    }
    assert set(first.weights) >= {"input_norm", "post_norm", "q", "k", "v", "o", "gate", "down"}


def test_a_layer_with_more_in_it_is_not_a_block(llama: Build) -> None:
    model = llama()
    layer = model.model.layers[0]
    layer.mlp.register_forward_hook(lambda _m, _args, out: out * 0.5)
    reasons = {
        m.path: m.because
        for m in find(model).refusals
        if m.structure in (DECODER_BLOCK, DECODER_FFN)
    }
    assert reasons["model.layers.0.mlp"].reason is Reason.LAYOUT  # what a hook changes is seen
    biased = find(llama(attention_bias=True))
    assert biased.of(DECODER_BLOCK) == ()
    assert any("has a bias" in m.because.detail for m in biased.refusals)


def test_one_forward_is_all_that_is_run(llama: Build) -> None:
    model, runs = llama(), []

    def forward() -> object:
        runs.append(1)
        return model(TOKENS)

    before = {path: dict(m.__dict__) for path, m in model.named_modules()}
    discover(model, forward)
    assert runs == [1]
    assert before == {path: dict(m.__dict__) for path, m in model.named_modules()}


def test_a_forward_that_fails_leaves_the_host_as_it_was(llama: Build) -> None:
    model = llama()
    before = {path: set(m.__dict__) for path, m in model.named_modules()}
    with pytest.raises(ZeroDivisionError):
        discover(model, lambda: (model(TOKENS), 1 / 0))
    assert before == {path: set(m.__dict__) for path, m in model.named_modules()}


def test_part_of_a_host_on_the_meta_device_is_refused(llama: Build) -> None:
    model = llama()
    model.model.norm.weight = nn.Parameter(torch.empty(64, device="meta"))
    with pytest.raises(Refusal, match=r"model\.norm\.weight") as caught:
        find(model)
    assert caught.value.reason is Reason.HOST


def test_calls_of_a_shared_module_are_told_apart_by_what_called_it(llama: Build) -> None:
    model = llama()
    first, second = model.model.layers
    second.mlp.down_proj = first.mlp.down_proj
    seen = trace(model, lambda: model(TOKENS))
    paths = [f"model.layers.{i}.mlp.down_proj" for i in (0, 1)]
    assert [len(seen.calls[path]) for path in paths] == [1, 1]
    outer = seen.one("model.layers.1")
    assert outer is not None
    assert seen.within(outer, paths[1]) is seen.one(paths[1])
    assert seen.within(outer, paths[0]) is None
