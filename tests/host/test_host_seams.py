from dataclasses import replace
from pathlib import Path

import pytest

from flashrt.host import Host, load
from flashrt.host.discovery import discover
from flashrt.host.match import match
from flashrt.host.seams import discover_host, probe_tokens, seams_of, served
from flashrt_runtime.reason import Reason, Refusal


@pytest.fixture
def host(host_folder: Path) -> Host:
    return load(f"transformers:{host_folder}")


def test_a_host_without_a_binding_has_the_discovered_seams(host: Host) -> None:
    found = seams_of(host)
    assert found.binding is None
    assert found.seams == served(discover_host(host).seams)
    assert set(found.specs) == {"decoder_ffn@1", "linear_proj@1", "qkv_pack@1"}
    assert all(digest.startswith("sha256:") for digest in found.specs.values())


def test_binding_and_discovery_give_the_same_seams(host: Host) -> None:
    """The in-tree binding of SmolLM2 fits any llama of transformers, this tiny one too."""
    bound = seams_of(replace(host, binding_name="smollm2"))
    assert bound.binding is not None
    assert bound.manifest["pipeline"]
    found = discover_host(host).seams
    assert {s.id for s in bound.seams} == {s.id for s in served(found)}
    assert len(found) > len(bound.seams)  # structures that the binding does not name
    said = match(bound.seams, found)
    assert (said.contradicted, said.unseen) == ((), ())


def test_a_host_of_nan_is_refused(host: Host) -> None:
    host.model.get_submodule("model.layers.0.self_attn.o_proj").weight[0, 0] = float("nan")
    with pytest.raises(Refusal, match=r"self_attn\.o_proj") as caught:
        seams_of(host)
    assert caught.value.reason is Reason.NONFINITE


def test_a_host_without_a_tokenizer_is_still_observed(host: Host) -> None:
    without = replace(host, tokenizer=None)
    tokens = probe_tokens(without)
    assert tokens.shape == (1, 128)  # as long as the host's positions go
    found = discover(without.model, lambda: without.model(tokens))
    assert len(found.seams) == len(discover_host(host).seams)
