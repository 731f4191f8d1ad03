from dataclasses import replace
from pathlib import Path

import pytest

from flashrt.host import Host, load
from flashrt.host.discovery import discover
from flashrt.host.seams import compare, discover_host, probe_tokens, seams_of
from flashrt_runtime.contract import Point
from flashrt_runtime.reason import Reason, Refusal


@pytest.fixture
def host(host_folder: Path) -> Host:
    return load(f"transformers:{host_folder}")


def test_a_host_without_a_binding_has_the_discovered_seams(host: Host) -> None:
    found = seams_of(host)
    assert found.binding is None
    assert {s.id for s in found.seams} == {s.id for s in discover_host(host).seams}
    assert set(found.specs) == {"decoder_ffn@1", "linear_proj@1", "qkv_pack@1"}
    assert all(digest.startswith("sha256:") for digest in found.specs.values())


def test_binding_and_discovery_give_the_same_seams(host: Host) -> None:
    """The in-tree binding of SmolLM2 fits any llama of transformers, this tiny one too."""
    bound = seams_of(replace(host, binding_name="smollm2"))
    assert bound.binding is not None
    assert bound.manifest["pipeline"]
    found = discover_host(host).seams
    assert {s.id for s in bound.seams} == {s.id for s in found}
    assert compare(bound.seams, found) == ()


def test_differences_between_binding_and_discovery_are_named(host: Host) -> None:
    found = discover_host(host).seams
    moved = replace(found[0], points={"x": Point("model", "input")})
    assert [b.detail for b in compare([moved], found)] == ["binding and discovery differ in points"]
    lost = compare(found, found[1:])
    assert [(b.reason, b.subject) for b in lost] == [(Reason.BINDING, found[0].id)]


def test_a_host_of_nan_is_refused(host: Host) -> None:
    host.model.get_submodule("model.layers.0.self_attn.o_proj").weight[0, 0] = float("nan")
    with pytest.raises(Refusal, match=r"self_attn\.o_proj") as caught:
        seams_of(host)
    assert caught.value.reason is Reason.NONFINITE


def test_a_host_without_a_tokenizer_is_still_observed(host: Host) -> None:
    without = replace(host, tokenizer=None)
    tokens = probe_tokens(without)
    assert tokens.shape == (1, 16)
    found = discover(without.model, lambda: without.model(tokens))
    assert len(found.seams) == len(discover_host(host).seams)
