"""``adopt_prequantized`` on checkpoints that the library wrote: what runs is what it packed."""

from __future__ import annotations

import copy
import gc
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from flashrt_runtime.impls.shared import nvfp4

import flashrt as structures
from flashrt.doors.adopt import AdoptionWarning, adopt_prequantized
from flashrt.doors.packed.module import AdoptedLinear
from flashrt_runtime.capture import capture
from flashrt_runtime.reason import Reason, Refusal

_SPEC = importlib.util.spec_from_file_location(
    "packed_checkpoints", Path(__file__).with_name("packed_checkpoints.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
made = importlib.util.module_from_spec(_SPEC)
sys.modules["packed_checkpoints"] = made
_SPEC.loader.exec_module(made)

# preset of the library, its format, our impl, the weight error allowed (NVFP4 is unpacked to
# bfloat16 by the library), the share of the output error that is the conversion's
CASES = [
    ("NVFP4", "nvfp4-pack-quantized", "nvfp4_dynamic", 2.0**-8, 4e-3),
    ("INT8", "int-quantized", "int8_packed", 0.0, 1e-6),
    ("FP8", "float-quantized", "fp8_packed", 0.0, 1e-6),
    ("FP8_DYNAMIC", "float-quantized", "fp8_packed", 0.0, 1e-6),
]
LAYERS = 14


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("packed")
    return {name: made.write(name, root / name) for name, *_ in CASES}


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).requires_grad_(False)


def adopted(given: Any, fmt: str | None = None, forward: Any = None) -> Any:
    with pytest.warns(AdoptionWarning, match="cannot be put back"):
        return adopt_prequantized(given, fmt, forward=forward)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_every_packed_layer_is_converted_and_its_error_reported(
    folders: dict[str, Path], case: tuple[str, str, str, float, float]
) -> None:
    preset, fmt, impl, weight, output = case
    done = adopted(folders[preset], forward=lambda m: m(made.tokens()))
    layers = [m for m in done.model.modules() if isinstance(m, AdoptedLinear)]
    assert len(layers) == len(done.report) == LAYERS
    assert not hasattr(done.model, "ct_decompress_hook")
    assert type(done.model.lm_head) is torch.nn.Linear
    for one in done.report:
        assert (one.format, one.impl) == (fmt, f"linear_proj@1/{impl}")
        assert 0.0 <= one.relative_error <= weight
        assert one.bytes_after == one.bytes_before
        assert one.output is not None
        assert one.output.rows == 8
        assert 0.0 <= one.output.against_library <= output
        assert one.output.against_library < one.output.against_dense < 0.2
        assert one.path in str(done)
        assert f"{one.relative_error:.2e}" in str(one)


@pytest.mark.parametrize("preset", [case[0] for case in CASES])
def test_the_model_says_what_the_library_says_when_it_unpacks(
    folders: dict[str, Path], preset: str
) -> None:
    dtype = torch.bfloat16 if preset == "NVFP4" else torch.float32
    theirs = loaded(folders[preset], dtype)(made.tokens()).logits.float()
    ours = adopted(loaded(folders[preset], dtype)).model(made.tokens()).logits
    assert ours.dtype == dtype
    assert torch.nn.functional.cosine_similarity(ours.float(), theirs, dim=-1).min() > 0.99
    if dtype == torch.float32:
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_checkpoint_of_two_formats_is_adopted_layer_by_layer(tmp_path: Path) -> None:
    folder = made.write_mixed(tmp_path / "mixed")
    refused(folder, Reason.CONFLICT, "packed as float-quantized", "nvfp4")
    done = adopted(folder, forward=lambda m: m(made.tokens()))
    for one in done.report:
        assert one.impl.endswith("nvfp4_dynamic" if ".mlp." in one.path else "fp8_packed")
        assert one.output is not None
        assert one.output.against_library < 4e-3
    assert len(done.report) == LAYERS


def test_an_nvfp4_matrix_is_the_checkpoints_to_the_bit(folders: dict[str, Path]) -> None:
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize, forward_quantize

    model = loaded(folders["NVFP4"])
    source = model.model.layers[1].mlp.down_proj
    scheme = source.quantization_scheme
    codes = unpack_fp4_from_uint8(source.weight_packed, made.WIDTH, made.HIDDEN, torch.float32)
    wide = dequantize(
        codes,
        source.weight_scale.float(),
        args=scheme.weights,
        global_scale=source.weight_global_scale,
    )
    torch.manual_seed(3)
    x = torch.randn(5, made.HIDDEN)
    seen = forward_quantize(source, x, "input", scheme.input_activations)
    layer = adopted(model).model.model.layers[1].mlp.down_proj
    assert torch.equal(layer.body.dense(), wide)
    expected = torch.nn.functional.linear(seen, wide)
    assert torch.allclose(layer(x), expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(layer(x), torch.nn.functional.linear(x, wide), rtol=1e-2, atol=1e-2)


def floats(least: int) -> list[tuple[int, ...]]:
    """Shapes of live tensors that hold ``least`` numbers of 16 bits or more."""
    gc.collect()
    return [
        tuple(t.shape)
        for t in gc.get_objects()
        if isinstance(t, torch.Tensor)
        and t.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        and t.numel() == least
    ]


def test_no_dense_matrix_is_held_after_adoption_nor_after_a_forward(
    folders: dict[str, Path],
) -> None:
    least = made.WIDTH * made.HIDDEN
    before = len(floats(least))
    done = adopted(folders["NVFP4"], forward=lambda m: m(made.tokens()))
    done.model(made.tokens(24))
    assert len(floats(least)) == before
    feed = [one for one in done.report if ".mlp." in one.path]
    assert len(feed) == 6
    for one in feed:
        assert one.bytes_after == least // 2 + least // 16 + 8
        assert one.bytes_after < least * 0.6
    held = [t for m in done.model.modules() if isinstance(m, AdoptedLinear) for t in m.buffers()]
    assert {t.dtype for t in held} == {torch.uint8, torch.float8_e4m3fn, torch.float32}
    assert max(t.numel() for t in held if t.dtype == torch.float32) <= made.WIDTH


@pytest.mark.parametrize(
    ("preset", "rows"), [("NVFP4", 1), ("NVFP4", 24), ("INT8", 1), ("FP8", 24)]
)
def test_a_captured_step_runs_each_operator_once_per_seam(
    folders: dict[str, Path], preset: str, rows: int
) -> None:
    torch.compiler.reset()
    mlp = adopted(folders[preset]).model.model.layers[0].mlp

    def step(x: torch.Tensor) -> torch.Tensor:
        return mlp(x)

    torch.manual_seed(1)
    x = torch.randn(rows, made.WIDTH)
    stage = capture(step, {"x": x.clone()}, name="mlp")
    paths = [f"model.layers.0.mlp.{name}_proj" for name in ("gate", "up", "down")]
    assert stage.operators == dict.fromkeys(paths, 1)
    assert torch.allclose(stage.replay(x=x * 2), mlp(x * 2), rtol=1e-4, atol=1e-5)


def test_there_is_no_way_back_and_it_is_said(folders: dict[str, Path], tmp_path: Path) -> None:
    done = adopted(folders["INT8"], "int8")
    layer = done.model.model.layers[0].mlp.up_proj
    for reason, act in (
        (Reason.FORM, done.detach),
        (Reason.FORM, lambda: done.model.save_pretrained(tmp_path / "out")),
        (Reason.TRAINING, done.model.train),
        (Reason.MIGRATION, lambda: done.model.to(torch.bfloat16)),
        (Reason.LOAD_STATE, lambda: done.model.load_state_dict(done.model.state_dict())),
    ):
        with pytest.raises(Refusal) as caught:
            act()
        assert caught.value.reason is reason
    assert not (tmp_path / "out").exists()
    assert done.model.eval() is done.model
    state = done.model.state_dict()
    assert torch.equal(state["model.layers.0.mlp.up_proj.weight0"], layer.body.weight0)
    twin = copy.deepcopy(done.model)
    assert torch.equal(twin(made.tokens()).logits, done.model(made.tokens()).logits)
    assert "in_features=64, out_features=112" in repr(layer)


def refused(given: Any, reason: Reason, match: str, fmt: str | None = None) -> None:
    with pytest.raises(Refusal, match=match) as caught:
        adopt_prequantized(given, fmt)
    assert caught.value.reason is reason


def test_a_model_without_packed_layers_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    dense = made.dense_model()
    refused(dense, Reason.STRUCTURE, "no layer of it is packed; give a checkpoint whose")
    dense.config.quantization_config = {"quant_method": "gptq"}
    refused(dense, Reason.STRUCTURE, "its config says gptq")
    del dense.config.quantization_config
    dense.save_pretrained(tmp_path / "dense")
    refused(tmp_path / "dense", Reason.STRUCTURE, "no quantization_config: its layers are dense")
    config = (folders["INT8"] / "config.json").read_text()
    other = tmp_path / "other"
    dense.save_pretrained(other)
    (other / "config.json").write_text(config.replace('"compressed-tensors"', '"awq"'))
    refused(other, Reason.FORM, "quantised by 'awq'.*compressed-tensors")
    refused(tmp_path / "absent", Reason.HOST, "no such folder")


def test_an_unknown_format_or_another_than_was_asked_for(folders: dict[str, Path]) -> None:
    refused(folders["INT8"], Reason.FORM, "nvfp4 .nvfp4-pack-quantized., int8", "mxfp4")
    refused(folders["INT8"], Reason.CONFLICT, "packed as int-quantized; leave fmt out", "nvfp4")
    assert adopted(folders["FP8"], "float-quantized").report


@pytest.mark.parametrize(
    ("preset", "match"),
    [
        ("W4A16", "packed as pack-quantized, which no impl executes.*dequantize=True"),
        ("NVFP4A16", "activations stay unquantised"),
        ("FP8_BLOCK", "strategy is block; channel or tensor is executed"),
    ],
)
def test_what_no_impl_executes_is_refused_before_anything_changes(
    tmp_path: Path, preset: str, match: str
) -> None:
    model = loaded(made.write(preset, tmp_path / preset))
    before = [id(m) for m in model.modules()]
    refused(model, Reason.FORM, match)
    assert [id(m) for m in model.modules()] == before
    assert hasattr(model, "ct_decompress_hook")


def test_a_layer_that_was_unpacked_already_or_trains(folders: dict[str, Path]) -> None:
    model = loaded(folders["INT8"])
    refused(model.train(), Reason.TRAINING, r"eval\(\) first")
    model.eval()(made.tokens())
    refused(model, Reason.FORM, "is decompressed.*before the first forward")
    assert structures.adopt_prequantized is adopt_prequantized


def test_a_layer_that_is_tied_a_layer_that_is_no_projection_and_an_output(
    folders: dict[str, Path],
) -> None:
    model = loaded(folders["INT8"])
    first, second = model.model.layers
    kept, second.mlp.up_proj = second.mlp.up_proj, first.mlp.up_proj
    refused(model, Reason.TIED, "2 paths reach this layer")
    second.mlp.up_proj = kept
    scheme = copy.deepcopy(kept.quantization_scheme)
    scheme.output_activations = scheme.input_activations
    kept.quantization_scheme = scheme
    refused(model, Reason.FORM, "output is quantised as well")
    kept.quantization_scheme = first.mlp.up_proj.quantization_scheme
    model.model.embed_tokens.quantization_scheme = scheme
    refused(model, Reason.FORM, "a Embedding is quantised; only projections")


def test_a_scale_that_is_broken_or_a_width_that_is_not_whole_blocks(
    folders: dict[str, Path],
) -> None:
    model = loaded(folders["NVFP4"])
    layer = model.model.layers[1].mlp.down_proj
    whole = layer.weight_global_scale.clone()
    for value, reason in ((float("nan"), Reason.NONFINITE), (0.0, Reason.DEAD)):
        layer.weight_global_scale.fill_(value)
        refused(model, reason, "weight_global_scale")
    layer.weight_global_scale.copy_(whole)
    narrow = layer.weight_packed[:, :52].contiguous()
    layer.weight_packed = torch.nn.Parameter(narrow, requires_grad=False)
    refused(model, Reason.SHAPE, "104 is not a multiple of 16.*ignore")
    assert not any(isinstance(m, AdoptedLinear) for m in model.modules())


def test_a_matrix_that_the_library_unpacks_otherwise_is_refused(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = nvfp4.values
    monkeypatch.setattr(nvfp4, "values", lambda codes: right(codes)[::-1])
    refused(loaded(folders["NVFP4"]), Reason.LAYOUT, "from what nvfp4-pack-quantized unpacks to")
    monkeypatch.undo()
    model = loaded(folders["NVFP4"])
    model.model.layers[0].mlp.up_proj.in_features = 32
    refused(model, Reason.LAYOUT, r"the layer is \[112, 32\]")


def test_without_the_library_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from flashrt.doors.packed import load

    monkeypatch.setattr(load, "find_spec", lambda name: None)
    refused(made.dense_model(), Reason.HOST, "compressed-tensors is not installed")
