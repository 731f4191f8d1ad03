import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from flashrt.document.problem import InputError
from flashrt.host import load
from flashrt_runtime.reason import Reason, Refusal


def test_a_folder_is_loaded_ready_to_be_measured(host_folder: Path) -> None:
    host = load(f"transformers:{host_folder}")
    assert not host.model.training
    assert not any(p.requires_grad for p in host.model.parameters())
    assert {p.dtype for p in host.model.parameters()} == {torch.float32}
    artifact = host.model_artifact
    assert artifact["family"] == "llama"
    assert artifact["dtype"] == "float32"
    assert artifact["parameters"] == sum(p.numel() for p in host.model.parameters())
    assert host.tokenizer("w1 w2")["input_ids"] == [4, 5]
    assert str(host_folder.parent) not in json.dumps(artifact)


def test_the_dtype_asked_for_is_loaded_and_recorded(host_folder: Path) -> None:
    host = load(f"transformers:{host_folder}", dtype=torch.bfloat16)
    assert {p.dtype for p in host.model.parameters()} == {torch.bfloat16}
    assert host.model_artifact["dtype"] == "bfloat16"
    with pytest.raises(Refusal) as caught:
        load(f"transformers:{host_folder}", dtype="int8")
    assert caught.value.reason is Reason.DTYPE


@pytest.mark.parametrize("which", ["first", "last"])
def test_one_flipped_weight_is_another_checkpoint(host_folder: Path, which: str) -> None:
    before = load(f"transformers:{host_folder}").model_artifact
    path = host_folder / "model.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[0 if which == "first" else -1]
    flat = tensors[name].clone().reshape(-1)
    at = 0 if which == "first" else flat.numel() - 1
    flat.view(torch.int32)[at] ^= 1
    tensors[name] = flat.reshape(tensors[name].shape)
    save_file(tensors, path, metadata={"format": "pt"})
    after = load(f"transformers:{host_folder}").model_artifact
    assert after["checkpoint_digest"] != before["checkpoint_digest"]
    assert after["tokenizer_digest"] == before["tokenizer_digest"]


def test_the_same_folder_has_the_same_identity(host_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "tiny-llama"
    shutil.copytree(host_folder, copy)
    first = load(f"transformers:{host_folder}").model_artifact
    assert load(f"transformers:{copy}").model_artifact == first


def test_another_setting_of_the_config_is_another_architecture(host_folder: Path) -> None:
    before = load(f"transformers:{host_folder}", dtype="bfloat16").model_artifact
    path = host_folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"hidden_act": "gelu"}))
    after = load(f"transformers:{host_folder}").model_artifact
    assert after["architecture_digest"] != before["architecture_digest"]
    path.write_text(json.dumps(config))
    again = load(f"transformers:{host_folder}").model_artifact
    assert again["architecture_digest"] == before["architecture_digest"]


def test_another_tokenizer_is_another_artifact(host_folder: Path) -> None:
    before = load(f"transformers:{host_folder}").model_artifact
    path = host_folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"w1"', '"w1x"'))
    after = load(f"transformers:{host_folder}").model_artifact
    assert after["tokenizer_digest"] != before["tokenizer_digest"]
    assert after["checkpoint_digest"] == before["checkpoint_digest"]


def test_pickled_weights_are_refused_unread(host_folder: Path) -> None:
    (host_folder / "model.safetensors").rename(host_folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="can run code when it is read") as caught:
        load(f"transformers:{host_folder}")
    assert caught.value.reason is Reason.HOST


def test_a_folder_without_weights_or_config_is_refused(host_folder: Path) -> None:
    (host_folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no safetensors weights"):
        load(f"transformers:{host_folder}")
    (host_folder / "config.json").unlink()
    with pytest.raises(InputError, match="not a model folder"):
        load(f"transformers:{host_folder}")


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_a_truncated_file_is_named_with_its_size(host_folder: Path, keep: int) -> None:
    path = host_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"model\.safetensors:1: .*truncated"):
        load(f"transformers:{host_folder}")


def test_trailing_bytes_and_broken_headers_are_refused(host_folder: Path) -> None:
    path = host_folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0")
    with pytest.raises(InputError, match="longer than its header says"):
        load(f"transformers:{host_folder}")
    path.write_bytes(whole[:8] + b"?" + whole[9:])
    with pytest.raises(InputError, match="header is corrupt"):
        load(f"transformers:{host_folder}")
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(InputError, match="not a safetensors file"):
        load(f"transformers:{host_folder}")


def test_a_missing_shard_is_named(host_folder: Path) -> None:
    (host_folder / "model.safetensors").rename(host_folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "../elsewhere"}}
    path = host_folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"the shard '\.\./elsewhere' is not in the folder"):
        load(f"transformers:{host_folder}")
    path.write_text('{"weight_map": 3}')
    with pytest.raises(InputError, match=r"\$\.weight_map"):
        load(f"transformers:{host_folder}")


def test_a_config_that_brings_code_is_refused(host_folder: Path) -> None:
    path = host_folder / "config.json"
    config = json.loads(path.read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model"}
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match="run code that ships with the weights"):
        load(f"transformers:{host_folder}")


def test_an_unknown_architecture_is_refused(host_folder: Path) -> None:
    path = host_folder / "config.json"
    config = json.loads(path.read_text())
    config["model_type"] = "no_such_architecture"
    path.write_text(json.dumps(config))
    with pytest.raises(Refusal, match="transformers cannot load it") as caught:
        load(f"transformers:{host_folder}")
    assert caught.value.reason is Reason.HOST


def test_a_weight_that_would_be_random_is_refused(host_folder: Path) -> None:
    path = host_folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(Refusal, match=r"would be random.*layers\.1\.mlp\.up_proj"):
        load(f"transformers:{host_folder}")


def test_a_broken_tokenizer_is_refused_and_none_is_none(host_folder: Path) -> None:
    (host_folder / "tokenizer.json").write_text("{")
    with pytest.raises(Refusal, match="tokenizer cannot be loaded"):
        load(f"transformers:{host_folder}")
    for path in host_folder.glob("*token*"):
        path.unlink()
    host = load(f"transformers:{host_folder}")
    assert host.tokenizer is None
    assert host.model_artifact["tokenizer_digest"] is None
