"""The harness: same seed same cases, and a candidate that is wrong anywhere is seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from flashrt.spec import load, load_reference
from flashrt.spec.harness import Candidate, Case, Slots, agreement, amax, compare, draw
from flashrt.spec.reader import read
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal

NAMES = ("decoder_ffn", "linear_proj", "qkv_pack")
Tensors = Mapping[str, torch.Tensor]


@pytest.fixture(params=NAMES)
def reference(request: pytest.FixtureRequest) -> Reference:
    return load_reference(load(request.param))


def test_a_seed_draws_the_same_cases(reference: Reference) -> None:
    first, second = list(draw(reference.spec, 6, seed=3)), list(draw(reference.spec, 6, seed=3))
    assert [(c.dims, c.variant) for c in first] == [(c.dims, c.variant) for c in second]
    for a, b in zip(first, second, strict=True):
        assert all(torch.equal(a.inputs[n], b.inputs[n]) for n in a.inputs)
        assert all(torch.equal(a.weights[n], b.weights[n]) for n in a.weights)


def test_drawing_leaves_the_global_random_state_alone(reference: Reference) -> None:
    before = torch.get_rng_state()
    list(draw(reference.spec, 3))
    assert torch.equal(before, torch.get_rng_state())


def test_the_reference_agrees_with_itself(reference: Reference) -> None:
    for case in draw(reference.spec, 20):
        found = compare(reference, reference.run, case)
        assert {a.output for a in found} == set(reference.spec.outputs)
        assert all(a.within(1 - 1e-9, 1e-6) for a in found)


def test_each_output_is_judged(reference: Reference) -> None:
    for spoiled in reference.spec.outputs:

        def candidate(i: Tensors, w: Tensors, v: Mapping[str, str], name: str = spoiled) -> Tensors:
            out = reference.run(i, w, v)
            return {n: t * (1.5 if n == name else 1.0) for n, t in out.items()}

        found = {a.output: a for a in compare(reference, candidate, next(draw(reference.spec, 1)))}
        assert not found[spoiled].within(0.999, 1e-2)
        assert found[spoiled].norm_ratio == pytest.approx(1.5)
        assert all(a.within(0.999, 1e-2) for n, a in found.items() if n != spoiled)


def test_cosine_alone_does_not_see_a_scale() -> None:
    found = agreement("y", torch.ones(4), 2 * torch.ones(4))
    assert found.within(0.999)
    assert not found.within(0.999, 0.5)


def test_one_nan_is_never_within() -> None:
    got = torch.ones(4)
    got[2] = math.nan
    found = agreement("y", torch.ones(4), got)
    assert found.nonfinite == 1
    assert not found.within(-1.0)
    assert not replace(found, nonfinite=0).within(-1.0)


def test_zeros_agree_with_zeros_and_with_nothing_else() -> None:
    assert agreement("y", torch.zeros(3), torch.zeros(3)).within(0.999, 1e-3)
    assert not agreement("y", torch.ones(3), torch.zeros(3)).within(0.999)


def fixed(answer: Tensors) -> Candidate:
    return lambda inputs, weights, variant: answer


def first(name: str) -> tuple[Reference, Case]:
    reference = load_reference(load(name))
    return reference, next(draw(reference.spec, 1))


def test_an_output_that_is_missing_or_of_another_shape_or_dtype_is_refused() -> None:
    reference, case = first("linear_proj")
    y = reference.run(case.inputs, case.weights, case.variant)["y"]
    answers = {
        Reason.STRUCTURE: {},
        Reason.SHAPE: {"y": y[..., :1]},
        Reason.DTYPE: {"y": y.double()},
    }
    for reason, answer in answers.items():
        with pytest.raises(Refusal) as caught:
            compare(reference, fixed(answer), case)
        assert caught.value.reason is reason


def test_a_candidate_that_writes_its_inputs_cannot_agree_with_itself() -> None:
    reference, case = first("linear_proj")
    kept = case.inputs["x"].clone()

    def candidate(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        i["x"].zero_()
        return reference.run(i, w, v)

    assert not compare(reference, candidate, case)[0].within(0.999)
    assert torch.equal(case.inputs["x"], kept)


def test_a_manifests_variants_and_sizes_narrow_what_is_drawn() -> None:
    spec = load("decoder_ffn")
    only = {"norm": ["host"], "activation": ["silu"], "modulation": ["none"]}
    cases = list(draw(spec, 30, variants=only, sizes={"D": [64], "M": [1]}, slots=Slots.NONE))
    assert {c.variant["norm"] for c in cases} == {"host"}
    assert {c.variant["residual"] for c in cases} == {"host", "add"}
    assert {(c.dims["D"], c.dims["M"]) for c in cases} == {(64, 1)}
    assert {n for c in cases for n in c.weights} == {"gate", "up", "down"}
    with pytest.raises(Refusal, match=r"none of \['layer'\]"):
        next(draw(spec, 1, variants={"norm": ["layer"]}))


def test_optional_slots_are_drawn_both_ways() -> None:
    spec = load("decoder_ffn")
    assert {"up_bias" in c.weights for c in draw(spec, 20)} == {True, False}
    assert all("up_bias" in c.weights for c in draw(spec, 5, slots=Slots.ALL))


def test_a_case_is_also_what_an_impl_binds() -> None:
    spec = load("qkv_pack")
    case = next(draw(spec, 1))
    request = case.request("prefill", {"x": 0.5}, roles=("q", "k", "v"))
    assert list(request.seam.members) == ["q", "k", "v"]
    assert set(request.seam.dims) == {"D", "Nq", "Nk", "Nv"}
    assert set(request.seam.weights) == set(request.weights) == set(case.weights)
    assert request.scales == {"x": 0.5}


def test_amax_is_the_largest_magnitude_at_each_point() -> None:
    reference, case = first("linear_proj")
    assert amax(reference, case) == {"x": float(case.inputs["x"].abs().max())}


STATEFUL = """
import torch
def reference(inputs, weights, variant):
    state = inputs["state"] * 0.5 + inputs["x"].sum(0, keepdim=True)
    return {"y": inputs["x"] + state, "next_state": state, "x_in": inputs["x"]}
def cost(dims, variant, weight_bytes=4.0, activation_bytes=4.0):
    return 3.0 * dims["M"] * dims["D"], 4.0 * dims["M"] * dims["D"]
"""


def test_state_is_an_output_and_is_judged_too(catalog: Path) -> None:
    folder = catalog / "scaled"
    text = (folder / "structure.yaml").read_text()
    text = text.replace(
        '    x: {dims: [M, D], dtype: "@binding"}\n',
        '    x: {dims: [M, D], dtype: "@binding"}\n    state: {dims: [1, D], dtype: "@binding"}\n',
    ).replace(
        "role: value}\n",
        'role: value}\n    next_state: {dims: [1, D], dtype: "@binding", role: state}\n',
    )
    (folder / "structure.yaml").write_text(text)
    (folder / "reference.py").write_text(STATEFUL)
    spec = read(folder)
    assert spec.outputs["next_state"].role == "state"
    reference = load_reference(spec, trust=[catalog])
    # The reference sums over axis 0, so rows are not batched here.
    case = next(c for c in draw(spec, 20) if c.inputs["x"].ndim == 2)

    def forgetful(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        return {**reference.run(i, w, v), "next_state": torch.zeros(1, case.dims["D"])}

    found = {a.output: a for a in compare(reference, forgetful, case)}
    assert found["y"].within(0.999, 1e-3)
    assert not found["next_state"].within(0.9)


def test_sizes_that_satisfy_nothing_are_refused(catalog: Path) -> None:
    folder = catalog / "scaled"
    text = (folder / "structure.yaml").read_text()
    (folder / "structure.yaml").write_text(text.replace("gain: {dims: [D]", "gain: {dims: [D/7]"))
    with pytest.raises(Refusal) as caught:
        next(draw(read(folder), 1))
    assert caught.value.reason is Reason.SHAPE
