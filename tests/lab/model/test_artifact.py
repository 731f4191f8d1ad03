"""The artifact's folder: read back as written, and refused when any part of it was changed."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load, save

from flashrt.document.canonical import canonical_bytes, read_json, seal
from flashrt.document.problem import InputError
from flashrt.lab.model import LoadedArtifact, Preparation, WeightsFile, tensors
from flashrt.lab.tokenizer import Tokenizer
from flashrt_runtime.identity import checkpoint_digest
from flashrt_runtime.reason import Reason, Refusal


@pytest.fixture
def folder(artifact, tmp_path):
    artifact.save(tmp_path)
    return tmp_path


def rewrite(folder, change, sealed=True):
    body = read_json(folder / "manifest.json")
    body.pop("digest")
    change(body)
    data = canonical_bytes(seal(body) if sealed else body)
    (folder / "manifest.json").write_bytes(data)


def refused(folder, match):
    with pytest.raises(InputError, match=match) as error:
        LoadedArtifact.load(folder)
    return error.value.reason


def test_an_artifact_is_read_back_as_it_was_written(artifact, folder):
    again = LoadedArtifact.load(folder)
    assert again == artifact
    assert again.identity == artifact.identity
    assert again.tensors == artifact.tensors
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_identity_is_of_the_module_tree(artifact):
    state = artifact.weights.state_dict(artifact.architecture)
    assert "blocks.3.attention.q.weight" in state
    assert "blocks.attention.q.weight" not in state
    assert artifact.identity.checkpoint_digest == checkpoint_digest(state.items())
    assert artifact.identity.parameters == sum(tensor.numel() for tensor in state.values())
    assert artifact.identity.family == "tiny_gpt"


def test_every_tensor_has_an_operation_and_the_layers_an_axis(artifact):
    shape = artifact.architecture
    found = {tensor.name: tensor for tensor in artifact.tensors.tensors}
    assert set(found) == {plan.name for plan in tensors(shape)}
    for name, tensor in found.items():
        assert (tensor.layer_axis == 0) == name.startswith("blocks.")
        if tensor.layer_axis == 0:
            assert tensor.shape[0] == shape.layers
    used = {stage.operation for stage in shape.stages} - {"ResidualAddition"}
    assert {tensor.operation for tensor in found.values()} == used


def test_weights_cannot_be_changed(artifact):
    first = artifact.weights.stacked(artifact.architecture)
    first["output.weight"].zero_()
    second = artifact.weights.stacked(artifact.architecture)
    assert bool(second["output.weight"].any())
    with pytest.raises(dataclasses.FrozenInstanceError):
        artifact.weights.data = b""


def test_a_changed_number_is_refused(folder):
    path = folder / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert refused(folder, "not the ones that it names") is Reason.DIGEST


def test_another_tokenizer_is_refused(folder):
    Tokenizer.build([b"other text, other text"]).save(folder)
    assert refused(folder, "not the ones that it names") is Reason.DIGEST


def test_a_changed_manifest_is_refused(folder):
    rewrite(folder, lambda body: body.update(schema="other/1"))
    refused(folder, "was expected")


def test_an_unsealed_manifest_is_refused(folder):
    rewrite(folder, lambda body: None, sealed=False)
    assert refused(folder, "digest is not that of the manifest") is Reason.DIGEST


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda body: body.pop("architecture"), "not a manifest"),
        (lambda body: body["architecture"].update(heads="4"), "not a manifest"),
        (lambda body: body["architecture"].update(heads=0), "not a manifest"),
        (lambda body: body["architecture"]["stages"].pop(), "stages are not those"),
        (lambda body: body["architecture"].update(layers=10**12), "stages are not those"),
        (lambda body: body["architecture"].update(width=32), "is expected"),
        (lambda body: body["preparation"].update(extra=1), "not a manifest"),
        (lambda body: body["preparation"].update(seed=9), "not the ones that it names"),
        (lambda body: body["identity"].update(parameters=1), "not the ones that it names"),
        (lambda body: body.update(extra=1), "not the ones that it names"),
        (lambda body: body.update(identity=[]), "not a manifest"),
    ],
)
def test_a_resealed_manifest_that_says_otherwise_is_refused(folder, change, match):
    rewrite(folder, change)
    refused(folder, match)


def test_a_manifest_that_is_no_json_is_refused(folder):
    (folder / "manifest.json").write_text("{")
    refused(folder, "not JSON")
    (folder / "manifest.json").write_text(json.dumps([1]))
    refused(folder, "an object was expected")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.pop("output.weight"), "output.weight: the tensor is missing"),
        (lambda t: t.update(more=torch.ones(1)), "more: no tensor of this"),
        (lambda t: t.update({"final_norm.bias": torch.ones(3)}), "is expected"),
        (lambda t: t.update({"final_norm.bias": torch.ones(64).half()}), "float16"),
        (lambda t: t["final_norm.bias"].fill_(float("nan")), "not finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(artifact, change, match):
    named = load(artifact.weights.data)
    change(named)
    with pytest.raises(InputError, match=match):
        WeightsFile(save(named)).stacked(artifact.architecture)


def test_bytes_that_are_no_safetensors_are_refused(artifact):
    with pytest.raises(InputError, match="not safetensors"):
        WeightsFile(b"no").stacked(artifact.architecture)


def test_a_folder_without_an_artifact_is_refused(tmp_path):
    with pytest.raises(Refusal):
        LoadedArtifact.load(tmp_path)


def test_random_artifacts_are_of_their_seed():
    assert LoadedArtifact.random(1) == LoadedArtifact.random(1)
    assert LoadedArtifact.random(1).identity != LoadedArtifact.random(2).identity
    assert Preparation.untrained(1).sentence == "random weights, seed 1"
