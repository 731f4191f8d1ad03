"""The host that runs with no set-up, from its package to its seams. Minutes, and 0.6 GB of disk."""

from pathlib import Path

import pytest
import torch

from flashrt.host import load
from flashrt.host.match import match
from flashrt.host.seams import discover_host, seams_of, served

pytestmark = pytest.mark.slow


def test_smollm2_is_converted_loaded_and_taken_apart(tmp_path: Path) -> None:
    host = load("smollm2", cache=tmp_path)
    again = load("smollm2", cache=tmp_path)
    assert again.model_artifact == host.model_artifact
    assert host.model_artifact["parameters"] == 134_515_008
    assert host.model_artifact["family"] == "llama"
    found = discover_host(host)
    assert len(found.of("decoder_ffn@1")) == len(found.of("qkv_pack@1")) == 30
    assert len(found.of("linear_proj@1")) == 121
    bound = seams_of(host)
    said = match(bound.seams, found.seams)
    assert (said.contradicted, said.unseen) == ((), ())
    assert len(bound.seams) == len(served(found.seams)) == 181
    assert len(found.of("decoder_block@1")) == 30
    assert len(found.of("norm_fused@1")) == 61
    prompt = host.tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        following = int(host.model(prompt).logits[0, -1].argmax())
    assert "Paris" in host.tokenizer.decode([following])
