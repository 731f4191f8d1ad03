"""References: one way to call them, and refusals when one is missing, broken or not trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from flashrt.spec import load, load_reference
from flashrt.spec.harness import Slots, draw
from flashrt.spec.reader import read
from flashrt.spec.reference import Reference, trusted
from flashrt.spec.registry import catalog_root
from flashrt.spec.trial import try_reference
from flashrt_runtime.reason import Reason, Refusal


@pytest.fixture
def folder(catalog: Path) -> Path:
    return catalog / "scaled" / "v1"


def rewrite(folder: Path, text: str) -> None:
    (folder / "reference.py").write_text(text)


BROKEN = {
    "syntax": ("def reference(:\n", "does not load: SyntaxError"),
    "raises": ("raise ValueError('no')\n", "does not load: ValueError: no"),
    "exits": ("import sys\nsys.exit(3)\n", "does not load: SystemExit"),
    "missing module": ("import no_such_module_at_all\n", "does not load: ModuleNotFoundError"),
    "no reference": ("def cost(*a):\n    return 1, 1\n", "no function reference"),
    "no cost": ("def reference(*a):\n    return {}\n", "no function cost"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_reference_that_does_not_load_is_refused(catalog: Path, folder: Path, name: str) -> None:
    text, words = BROKEN[name]
    rewrite(folder, text)
    with pytest.raises(Refusal) as caught:
        load_reference(read(folder), trust=[catalog])
    assert caught.value.reason is Reason.STRUCTURE
    assert words in caught.value.what
    assert words in try_reference(read(folder), [catalog])[0].what


def test_code_outside_the_catalog_is_not_executed_unless_trusted(
    catalog: Path, folder: Path, tmp_path: Path
) -> None:
    proof = tmp_path / "ran"
    rewrite(folder, f"open({str(proof)!r}, 'w').close()\ndef reference(*a): ...\ndef cost(*a): ...")
    with pytest.raises(Refusal, match="outside the packaged catalog"):
        load_reference(read(folder))
    assert try_reference(read(folder)) == []
    assert not proof.exists()
    load_reference(read(folder), trust=[catalog])
    assert proof.exists()


def test_untrusted_code_is_parsed(folder: Path) -> None:
    rewrite(folder, "def reference(:\n")
    assert "not Python" in try_reference(read(folder))[0].what
    rewrite(folder, "x = 1\nfrom __future__ import annotations\n")
    assert "not Python" in try_reference(read(folder))[0].what
    rewrite(folder, "def reference(*a): ...\n")
    assert "no function cost" in try_reference(read(folder))[0].what


def test_a_link_into_the_catalog_does_not_make_its_target_trusted(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("")
    assert not trusted(tmp_path / "evil.py")
    assert trusted(catalog_root() / "decoder_ffn" / "reference.py")
    assert not trusted(catalog_root() / ".." / "setup.py")


def test_a_pipelines_reference_is_the_host() -> None:
    with pytest.raises(Refusal, match="the unmodified host is its reference"):
        load_reference(load("autoregressive_decode_pipeline"))
    assert try_reference(load("autoregressive_decode_pipeline")) == []


HEAD = "import torch\n"
COST = "def cost(d, v, w=4.0, a=4.0):\n    return 1.0, 1.0\n"
WRONG = {
    "raises when called": ("def reference(i, w, v):\n    raise KeyError('x')\n" + COST, "KeyError"),
    "returns nothing": ("def reference(i, w, v):\n    return None\n" + COST, "no tensor y"),
    "forgets a point": ("def reference(i, w, v):\n    return {'y': i['x']}\n" + COST, "x_in"),
    "wrong shape": (
        "def reference(i, w, v):\n    return {'y': i['x'][..., :1], 'x_in': i['x']}\n" + COST,
        "its reference's y axis 1",
    ),
    "not finite": (
        "def reference(i, w, v):\n    return {'y': i['x'] / 0, 'x_in': i['x']}\n" + COST,
        "not finite",
    ),
    "cost raises": (
        "def reference(i, w, v):\n    return {'y': i['x'], 'x_in': i['x']}\n"
        "def cost(*a):\n    return 1 / 0\n",
        "cost function failed",
    ),
    "cost is nan": (
        "def reference(i, w, v):\n    return {'y': i['x'], 'x_in': i['x']}\n"
        "def cost(*a):\n    return float('nan'), 1.0\n",
        "is not a cost",
    ),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_reference_that_is_wrong_is_found_by_trying_it(
    catalog: Path, folder: Path, name: str
) -> None:
    text, words = WRONG[name]
    rewrite(folder, HEAD + text)
    found = try_reference(read(folder), [catalog])
    assert len(found) == 1
    assert words in found[0].what
    assert found[0].file == str(folder / "reference.py")


@pytest.fixture(scope="module")
def ffn() -> Reference:
    return load_reference(load("decoder_ffn@1"))


def test_outputs_and_points_are_told_apart(ffn: Reference) -> None:
    case = next(draw(ffn.spec, 1))
    assert list(ffn.run(case.inputs, case.weights, case.variant)) == ["y"]
    points = ffn.points(case.inputs, case.weights, case.variant)
    assert list(points) == ["x_after_norm", "act_after_mul"]


def test_leading_dims_are_kept_and_folded_into_rows(ffn: Reference) -> None:
    only = {"norm": ["host"], "residual": ["host"], "modulation": ["none"]}
    case = next(draw(ffn.spec, 1, variants=only, slots=Slots.NONE))
    x = torch.randn(2, 3, case.dims["D"])
    assert ffn.run({"x": x}, case.weights, case.variant)["y"].shape == x.shape
    assert ffn.dims({"x": x}, case.weights, case.variant)["M"] == 6


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ("extra input", Reason.BINDING, "no input 'z'"),
        ("missing input", Reason.BINDING, "the input 'x' is missing"),
        ("missing slot", Reason.BINDING, "the slot 'up' is missing"),
        ("slot of another variant", Reason.BINDING, "no slot 'norm' under this variant"),
        ("contradiction", Reason.SHAPE, "gate axis 1 says D"),
        ("axis", Reason.BINDING, "no activation 'relu'"),
    ],
)
def test_calls_that_do_not_fit_the_spec_are_refused(
    ffn: Reference, change: str, reason: Reason, words: str
) -> None:
    only = {"norm": ["host"], "residual": ["host"], "modulation": ["none"]}
    case = next(draw(ffn.spec, 1, variants=only, slots=Slots.NONE))
    inputs, weights, variant = dict(case.inputs), dict(case.weights), dict(case.variant)
    if change == "extra input":
        inputs["z"] = inputs["x"]
    elif change == "missing input":
        del inputs["x"]
    elif change == "missing slot":
        del weights["up"]
    elif change == "slot of another variant":
        weights["norm"] = torch.ones(case.dims["D"])
    elif change == "contradiction":
        weights["gate"] = torch.ones(case.dims["F"], case.dims["D"] + 1)
    else:
        variant["activation"] = "relu"
    with pytest.raises(Refusal) as caught:
        ffn.run(inputs, weights, variant)
    assert caught.value.reason is reason
    assert words in caught.value.what


def test_cost_needs_every_dim_and_counts_bytes_per_element(ffn: Reference) -> None:
    variant = {"norm": "host", "activation": "silu", "residual": "host", "modulation": "none"}
    with pytest.raises(Refusal, match="the dim M has no size"):
        ffn.cost({"D": 4, "F": 8}, variant)
    sizes = {"M": 1, "D": 4, "F": 8}
    full, half = ffn.cost(sizes, variant), ffn.cost(sizes, variant, weight_bytes=2.0)
    assert full.bytes - half.bytes == 3 * 4 * 8 * 2.0
    assert full.flops == 6 * 4 * 8 + 8 * 8


def test_outputs_that_are_not_finite_are_refused(ffn: Reference) -> None:
    case = next(draw(ffn.spec, 1))
    inputs = {**case.inputs, "x": torch.full_like(case.inputs["x"], float("nan"))}
    with pytest.raises(Refusal) as caught:
        ffn.outputs_fit(inputs, case.weights, case.variant)
    assert caught.value.reason is Reason.NONFINITE
