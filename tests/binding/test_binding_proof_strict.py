"""What must not count as proven: zeros, what is not addressed, a wrong eps, exchanged roles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from flashrt.binding import BindingSpec, bindings_root, load_binding
from flashrt.binding.proof import EPS, Proof, prove
from flashrt.document.problem import InputError
from flashrt.host.tiny import TinyHost, build
from flashrt_runtime.reason import Reason, Refusal

Change = Callable[[dict[str, Any]], None]
ATTN = "model.layers.{i}.self_attn"


@pytest.fixture
def host() -> TinyHost:
    return build("qwen3")


@pytest.fixture
def only(tmp_path: Path) -> Callable[..., BindingSpec]:
    """Some regions of qwen3's binding, changed by a function of them."""

    def load(*names: str, change: Change = lambda _: None) -> BindingSpec:
        value = yaml.safe_load((bindings_root() / "qwen3.yaml").read_text())
        del value["pipeline"]
        value["regions"] = {name: value["regions"][name] for name in names}
        change(value["regions"])
        file = tmp_path / "qwen3.yaml"
        file.write_text(json.dumps(value))  # YAML too, with every string quoted
        return load_binding(file)

    return load


def failed(proofs: list[Proof]) -> dict[tuple[str, str], str]:
    return {(p.region, p.output): p.why for p in proofs if not p.ok}


def test_zero_against_zero_is_no_proof(host: TinyHost, only: Any) -> None:
    for layer in host.model.model.layers:
        layer.self_attn.q_proj.weight.zero_()
    found = failed(prove(only("q"), host.model, host.forward))
    assert found == {("q", "y"): "both are zero, which proves nothing"}


def test_an_output_that_is_not_addressed_is_reported(host: TinyHost, only: Any) -> None:
    def change(regions: dict[str, Any]) -> None:
        block = regions["block"]
        weights = block["weights"]
        weights["gate"], weights["up"] = weights["up"], weights["gate"]
        del block["boundary"]["outputs"]["y"]

    found = failed(prove(only("block", change=change), host.model, host.forward))
    assert found == {("block", "y"): "it is not addressed"}


def unseen(name: str, *, drop: bool = True) -> Change:
    def change(regions: dict[str, Any]) -> None:
        boundary = regions["qk_rope"]["boundary"]
        if drop:
            boundary["outputs"].pop(name, None)
        boundary["unseen"] = {name: "the host joins it before any call"}

    return change


def test_an_output_that_is_never_shown_is_counted_apart(host: TinyHost, only: Any) -> None:
    binding = only("qk_rope", change=unseen("k"))
    proofs = prove(binding, host.model, host.forward, indices=[0])
    assert {(p.output, p.ok, p.unseen) for p in proofs} == {
        ("q", True, False), ("v", True, False), ("k", False, True), (EPS, True, False),
    }  # fmt: skip
    record = binding.manifest()["regions"]["qk_rope"]["boundary"]
    assert record["unseen"] == {"k": "the host joins it before any call"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (unseen("k", drop=False), "addressed too"),
        (unseen("nothing"), "no output nothing"),
    ],
)
def test_an_unseen_output_that_cannot_be_is_refused(only: Any, change: Change, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        only("qk_rope", change=change)
    assert caught.value.reason is Reason.BINDING


def test_a_region_cannot_be_unseen_as_a_whole(only: Any) -> None:
    def change(regions: dict[str, Any]) -> None:
        boundary = regions["attention"]["boundary"]
        del boundary["outputs"]
        boundary["unseen"] = {"y": "nobody ever sees it"}

    with pytest.raises(InputError, match="the whole region would be unseen"):
        only("attention", change=change)


@pytest.mark.parametrize("region", ["block", "input_norm", "qk_rope"])
@pytest.mark.parametrize("eps", ["1.2e-06", "1e-08"])
def test_an_eps_that_the_host_has_not_is_not_proven(
    host: TinyHost, only: Any, region: str, eps: str
) -> None:
    def change(regions: dict[str, Any]) -> None:
        regions[region]["variant"]["eps"] = eps

    found = failed(prove(only(region, change=change), host.model, host.forward))
    assert set(found) == {(region, EPS)}
    assert "on quiet rows" in found[region, EPS]


@pytest.mark.parametrize("norm", ["post_attention_layernorm", "self_attn.q_norm"])
def test_an_eps_behind_the_first_norm_shows_too(host: TinyHost, only: Any, norm: str) -> None:
    binding = only("block")
    host.model.model.layers[1].get_submodule(norm).variance_epsilon = 2e-6
    found = [p for p in prove(binding, host.model, host.forward) if not p.ok]
    assert [(p.seam_id, p.output) for p in found] == [("model.layers.1", EPS)]


def test_the_host_is_as_it_was_after_quiet_rows(host: TinyHost, only: Any) -> None:
    before = host.forward()
    prove(only("block", "input_norm"), host.model, host.forward)
    assert torch.equal(host.forward()[0], before[0])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in host.model.modules())


def test_a_host_that_falls_over_on_quiet_rows_leaves_eps_unproven(
    host: TinyHost, only: Any
) -> None:
    def forward() -> object:
        assert len(calls) == 0, "only once"
        calls.append(None)
        return host.forward()

    calls: list[None] = []
    found = failed(prove(only("input_norm"), host.model, forward))
    assert found == {
        ("input_norm", EPS): "the host does not run on quiet rows: AssertionError: only once"
    }


def exchanged(one: str, two: str) -> Change:
    """qkv with two roles exchanged in members, weights and outputs."""

    def change(regions: dict[str, Any]) -> None:
        qkv = regions["qkv"]
        for held in (qkv["members"], qkv["weights"], qkv["boundary"]["outputs"]):
            held[one], held[two] = held[two], held[one]

    return change


@pytest.mark.parametrize("names", [("qkv",), ("qkv", "qk_rope", "attention")])
def test_exchanged_keys_and_values_are_not_proven(
    host: TinyHost, only: Any, names: tuple[str, ...]
) -> None:
    binding = only(*names, change=exchanged("k", "v"))
    found = failed(prove(binding, host.model, host.forward))
    assert found == {("qkv", "k"): "it is not k: the host attends with it as value"}


def test_exchanged_queries_and_keys_are_told_by_another_region(host: TinyHost, only: Any) -> None:
    binding = only("qkv", "qk_rope", change=exchanged("q", "k"))
    found = failed(prove(binding, host.model, host.forward))
    assert found == {
        ("qkv", "k"): "k is the same tensor as q of the region qk_rope",
        ("qkv", "q"): "q is the same tensor as k of the region qk_rope",
    }


def test_a_host_in_training_mode_is_refused(host: TinyHost, only: Any) -> None:
    host.model.model.layers[1].train()
    with pytest.raises(Refusal, match="training mode") as caught:
        prove(only("q"), host.model, host.forward)
    assert caught.value.reason is Reason.TRAINING
    assert caught.value.subject == "model.layers.1"
