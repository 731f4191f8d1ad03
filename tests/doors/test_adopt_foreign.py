"""What ``adopt_prequantized`` would drop is refused, and an adopted model takes swaps."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import flashrt as structures
from flashrt.doors.adopt import AdoptionWarning, adopt_prequantized
from flashrt.doors.packed.module import AdoptedLinear
from flashrt_runtime.reason import Reason, Refusal

_SPEC = importlib.util.spec_from_file_location(
    "packed_checkpoints", Path(__file__).with_name("packed_checkpoints.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
made = importlib.util.module_from_spec(_SPEC)
sys.modules["packed_checkpoints"] = made
_SPEC.loader.exec_module(made)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("packed")
    return {name: made.write(name, root / name) for name in ("NVFP4", "INT8", "FP8")}


def loaded(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).requires_grad_(False)


def adopted(given: Any) -> Any:
    with pytest.warns(AdoptionWarning, match="cannot be put back"):
        return adopt_prequantized(given).model


def refused(given: Any, reason: Reason, match: str) -> None:
    before = [id(m) for m in given.modules()] if isinstance(given, torch.nn.Module) else []
    with pytest.raises(Refusal, match=match) as caught:
        adopt_prequantized(given)
    assert caught.value.reason is reason
    if before:
        assert [id(m) for m in given.modules()] == before


def rotation() -> Any:
    from compressed_tensors.transform import TransformArgs, TransformConfig, TransformScheme

    where = TransformArgs(targets=["re:.*o_proj"], location="input")
    return TransformConfig(config_groups={"R4": TransformScheme(type="hadamard", apply=[where])})


def test_online_transforms_are_refused_on_a_model(folders: dict[str, Path]) -> None:
    from compressed_tensors.transform import apply_transform_config

    model = loaded(folders["FP8"])
    apply_transform_config(model, rotation())
    refused(model.eval(), Reason.FORM, "has a transform_config")
    del model.transform_config
    refused(model, Reason.FORM, "it has forward pre hooks; adopting would drop that")
    for layer in model.model.layers:
        layer.self_attn.o_proj._forward_pre_hooks.clear()
    refused(model, Reason.FORM, "it holds a submodule, 'R4_input'")


def test_online_transforms_and_sparse_storage_are_refused_in_a_folder(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    for name, given, match in (
        ("transform_config", rotation().model_dump(mode="json"), "has a transform_config"),
        ("sparsity_config", {"format": "sparse-24-bitmask"}, "stored sparse .sparse-24-bitmask"),
    ):
        folder = tmp_path / name
        shutil.copytree(folders["FP8"], folder)
        config = json.loads((folder / "config.json").read_text())
        assert config["quantization_config"][name] == {}
        config["quantization_config"][name] = given
        (folder / "config.json").write_text(json.dumps(config))
        refused(folder, Reason.FORM, match)
        # transformers' own config object has no such field; the folder it came from does.
        refused(loaded(folder), Reason.FORM, match)


class Louder(torch.nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(input)


def nothing(*_: Any) -> None:
    return None


def own_forward(layer: Any) -> None:
    held = layer.forward
    layer.forward = lambda input: 2.0 * held(input)


def another_layers_forward(layer: Any) -> None:
    from compressed_tensors.quantization.lifecycle.forward import set_forward_quantized

    other = torch.nn.Linear(1, 1)
    set_forward_quantized(other)
    layer.forward = other.forward


FOREIGN: list[tuple[Callable[[Any], Any], str]] = [
    (lambda m: m.register_forward_hook(nothing), "it has forward hooks"),
    (lambda m: m.register_forward_pre_hook(nothing), "it has forward pre hooks"),
    (lambda m: m.register_full_backward_hook(nothing), "it has backward hooks"),
    (lambda m: m.register_full_backward_pre_hook(nothing), "it has backward pre hooks"),
    (lambda m: m.add_module("extra", torch.nn.Identity().eval()), "it holds a submodule, 'extra'"),
    (lambda m: setattr(m, "__class__", Louder), "its class is Louder"),
    (own_forward, "its forward is not the one that the library gave"),
    (another_layers_forward, "its forward is not the one that the library gave"),
    (lambda m: vars(m).pop("forward"), "its forward is not the one that the library gave"),
    (lambda m: setattr(m, "_call_impl", nothing), "its _call_impl is its own"),
    (lambda m: m.compile(), "its _compiled_call_impl is its own"),
    (lambda m: setattr(m, "quantization_enabled", False), "its quantization_enabled is False"),
    (
        lambda m: m.register_buffer("input_zero_point", torch.ones(1, dtype=torch.int8)),
        "it holds input_zero_point, which the form would drop",
    ),
    (lambda m: m.register_buffer("weight_g_idx", torch.zeros(64)), "it holds weight_g_idx"),
]


@pytest.mark.parametrize(("change", "match"), FOREIGN, ids=[str(i) for i in range(len(FOREIGN))])
def test_a_layer_that_does_more_than_its_product_is_refused(
    folders: dict[str, Path], change: Callable[[Any], Any], match: str
) -> None:
    model = loaded(folders["FP8"])
    change(model.model.layers[1].mlp.gate_proj)
    refused(model, Reason.FORM, f"(?s)model.layers.1.mlp.gate_proj.*{match}|{match}")


def test_hooks_of_the_modules_around_it_stay_and_a_zero_point_of_zero_is_nothing(
    folders: dict[str, Path],
) -> None:
    model, calls = loaded(folders["FP8"]), []
    model.model.layers[0].mlp.register_forward_hook(lambda *_: calls.append(1))
    layer = model.model.layers[1].mlp.gate_proj
    layer.register_buffer("input_zero_point", torch.zeros(1, dtype=torch.int8))
    adopted(model)(made.tokens())
    assert calls == [1]


@pytest.mark.parametrize("value", [1e-45, 1e-38, 3e38])
@pytest.mark.parametrize(
    ("preset", "name"),
    [
        ("INT8", "weight_scale"),
        ("FP8", "weight_scale"),
        ("FP8", "input_scale"),
        ("NVFP4", "weight_global_scale"),
        ("NVFP4", "input_global_scale"),
    ],
)
def test_a_scale_that_float32_cannot_divide_by_is_refused(
    folders: dict[str, Path], preset: str, name: str, value: float
) -> None:
    model = loaded(folders[preset])
    getattr(model.model.layers[1].mlp.gate_proj, name).view(-1)[-1] = value
    refused(model, Reason.DEAD, f"{name} is from .*normal float32s")


def test_a_model_that_is_itself_a_packed_layer_is_refused(folders: dict[str, Path]) -> None:
    layer = loaded(folders["INT8"]).model.layers[1].mlp.gate_proj
    refused(layer, Reason.STRUCTURE, "itself one packed layer.*give the module that holds it")
    assert type(layer) is torch.nn.Linear


class Stubborn(torch.nn.Module):
    """Holds one layer under a name that cannot be set again."""

    def __init__(self, layer: torch.nn.Module, raises: bool) -> None:
        super().__init__()
        self.raises, self.proj = raises, layer

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "proj" or name not in self._modules:
            return super().__setattr__(name, value)
        if self.raises:
            raise RuntimeError(f"{name} is fixed")
        return None


@pytest.mark.parametrize("raises", [True, False])
def test_a_holder_that_takes_no_other_layer_leaves_every_layer_as_it_was(
    folders: dict[str, Path], raises: bool
) -> None:
    model = loaded(folders["INT8"])
    last = model.model.layers[1].mlp
    last.down_proj = Stubborn(last.down_proj, raises).eval()
    if raises:
        before = [id(m) for m in model.modules()]
        with pytest.raises(RuntimeError, match="proj is fixed"):
            adopt_prequantized(model)
        assert [id(m) for m in model.modules()] == before
    else:
        refused(model, Reason.STRUCTURE, "Stubborn does not hold what is set")
    assert hasattr(model, "ct_decompress_hook")


def test_what_is_left_can_be_attached_and_detached_after_an_adoption(
    folders: dict[str, Path],
) -> None:
    model = adopted(loaded(folders["INT8"]))
    assert not any(module.training for module in model.modules())
    assert not any(module.training for module in model.eval().modules())
    before = model(made.tokens()).logits
    done = structures.attach(
        model, lambda: model(made.tokens()).logits, scheme="fp16_weight", floors={"cosine": 0.99}
    )
    assert done.handle is not None, done.units
    assert "lm_head" in done.precision_spec.bound
    assert torch.allclose(model(made.tokens()).logits, before, rtol=1e-2, atol=1e-2)
    done.detach()
    assert torch.equal(model(made.tokens()).logits, before)
    assert any(isinstance(m, AdoptedLinear) for m in model.modules())


def test_a_model_that_is_taken_already_is_refused_for_that(folders: dict[str, Path]) -> None:
    refused(adopted(loaded(folders["INT8"])), Reason.CONFLICT, "adopted already")
    dense = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.ReLU()).eval()
    x = torch.randn(3, 32)
    done = structures.attach(dense.requires_grad_(False), lambda: dense(x), scheme="fp16_weight")
    assert done.handle is not None
    refused(dense, Reason.CONFLICT, r"attached to the model; detach\(\)")
    done.detach()


@pytest.mark.parametrize("preset", ["NVFP4", "INT8", "FP8"])
def test_an_adopted_layer_is_read_and_called_as_a_linear(
    folders: dict[str, Path], preset: str
) -> None:
    unpacked = loaded(folders[preset])
    unpacked._forward_pre_hooks[next(iter(unpacked._forward_pre_hooks))](unpacked, ())
    theirs = unpacked.model.layers[0].self_attn.q_proj
    attention = adopted(loaded(folders[preset])).model.layers[0].self_attn
    ours, x = attention.q_proj, torch.randn(3, made.WIDTH)
    assert torch.equal(ours(input=x), ours(x))
    assert ours.weight.dtype == theirs.weight.dtype
    assert torch.allclose(ours.weight.float(), theirs.weight.float(), rtol=2.0**-7, atol=0.0)
    assert torch.allclose(ours.bias.float(), theirs.bias.float(), rtol=2.0**-7, atol=0.0)
    assert attention.o_proj.bias is None
    assert ours.weight is not ours.weight
