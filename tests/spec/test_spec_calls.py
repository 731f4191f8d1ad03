"""One harness for every shape of region: repeated tensors, optional ones, state over calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest
import torch

from flashrt.spec.harness import Candidate, Slots, compare, draw, gate
from flashrt.spec.reader import read
from flashrt.spec.reference import Reference, load_reference
from flashrt.spec.trial import try_reference
from flashrt_runtime.reason import Reason, Refusal

Tensors = Mapping[str, torch.Tensor]

SPEC = """\
schema: flashrt.structure/1
name: summed
version: 1
kind: region
summary: Running sums by several producers; the history grows by one position a call.
dims: {M: rows, D: width, P: producers, T: new positions, Tp: past positions, W: the bias}
boundary:
  rows: M
  inputs:
    x: {dims: [M, T, D], dtype: "@binding"}
    total: {dims: [M, D], dtype: float32, repeat: P, role: state, carries: total, optional: true}
    past: {dims: [M, Tp, D], dtype: "@binding", role: state, carries: history, optional: true}
  outputs:
    y: {dims: [M, D], dtype: "@binding", repeat: P, role: value}
    total: {dims: [M, D], dtype: float32, repeat: P, role: state}
    history: {dims: [M, "Tp+T | T", D], dtype: "@binding", role: state}
weights:
  gain: {dims: [D], layout: vector, repeat: P}
  bias: {dims: [W], layout: vector, optional: true}
variants: {}
calibration:
  points: {}
gates: {metric: cosine, bands: {pass: 0.999, warn: 0.995}, margin: 1.02}
reference: reference.py
"""

CODE = """\
import torch


def reference(inputs, weights, variant):
    x, out = inputs["x"], {}
    gains = [weights[f"gain.{i}"] for i in range(sum(n.startswith("gain.") for n in weights))]
    for i, gain in enumerate(gains):
        past = inputs.get(f"total.{i}", 0.0)
        out[f"total.{i}"] = past + (x.float().sum(dim=-2) * gain.float())
        out[f"y.{i}"] = (out[f"total.{i}"] + weights.get("bias", x).float().sum()).to(x.dtype)
    past = [inputs["past"]] if "past" in inputs else []
    return {**out, "history": torch.cat([*past, x], dim=-2)}


def cost(dims, variant, weight_bytes=4.0, activation_bytes=4.0):
    moved = dims["M"] * dims["D"] * (dims["T"] + dims["Tp"]) + dims["W"]
    return float(moved), moved * activation_bytes
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("catalog") / "summed"
    folder.mkdir()
    (folder / "structure.yaml").write_text(SPEC)
    (folder / "reference.py").write_text(CODE)
    return load_reference(read(folder), trust=[folder.parent])


def test_it_passes_its_own_gate(reference: Reference) -> None:
    assert try_reference(reference.spec, [reference.spec.path.parent]) == []
    found = gate(reference, reference.run, 6)
    assert found.passed
    assert found.cases == 18
    assert found.outputs > 3 * 18 * 3


def test_every_call_and_every_element_is_compared(reference: Reference) -> None:
    case = next(draw(reference.spec, 1, slots=Slots.ALL, sizes={"P": (3,), "T": (2,)}))
    found = compare(reference, reference.run, case)
    names = [f"{n}.{i}" for n in ("y", "total") for i in range(3)] + ["history"]
    assert [(a.call, a.output) for a in found] == [(c, n) for c in range(3) for n in names]
    lengths = [a.elements for a in found if a.output == "history"]
    step = case.dims["M"] * case.dims["D"] * 2
    assert [b - a for a, b in pairwise(lengths)] == [step, step]


def stateless(reference: Reference) -> Candidate:
    """Forgets what it was given, so that only a first call without state is right."""

    def candidate(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        kept = {n: t for n, t in i.items() if not n.startswith("total.")}
        return reference.function(kept, w, v)

    return candidate


def hidden(reference: Reference) -> Candidate:
    """Keeps the state to itself instead of taking the caller's."""
    kept: dict[str, torch.Tensor] = {}

    def candidate(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        mine = {n: kept.get(n, t) if n.startswith("total.") else t for n, t in i.items()}
        out = reference.function(mine, w, v)
        kept.update({n: t for n, t in out.items() if n.startswith("total.")})
        return out

    return candidate


def swapped(reference: Reference) -> Candidate:
    """Gives each producer the next one's gain."""

    def candidate(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        gains = [n for n in w if n.startswith("gain.")]
        turned = dict(zip(gains, [w[n] for n in (*gains[1:], *gains[:1])], strict=True))
        return reference.function(i, {**w, **turned}, v)

    return candidate


def biased(reference: Reference) -> Candidate:
    """Ignores the bias that only some hosts have."""

    def candidate(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        return reference.function(i, {n: t * 0.0 if n == "bias" else t for n, t in w.items()}, v)

    return candidate


def drifting(reference: Reference) -> Candidate:
    """Right on any one call; its state is rounded, and grows wrong when it is carried."""

    def candidate(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        out = dict(reference.function(i, w, v))
        return {n: t * 1.04 if n.startswith("total.") else t for n, t in out.items()}

    return candidate


def reusing(reference: Reference) -> Candidate:
    """Writes the next call's answer into the tensor that it returned before."""
    kept: dict[str, torch.Tensor] = {}

    def candidate(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        out = reference.function(i, w, v)
        for name, value in out.items():
            if name in kept and kept[name].shape == value.shape:
                kept[name].copy_(value)
            else:
                kept[name] = value
        return dict(kept)

    return candidate


WRONG: tuple[Callable[[Reference], Candidate], ...] = (stateless, hidden, swapped, biased)


@pytest.mark.parametrize("make", WRONG)
def test_a_candidate_that_is_wrong_somewhere_fails(
    reference: Reference, make: Callable[[Reference], Candidate]
) -> None:
    found = gate(reference, make(reference), 6)
    assert not found.passed
    assert all((f.agreement is None) is not (f.refusal is None) for f in found.failures)


def test_a_state_that_drifts_is_seen_in_the_later_calls(reference: Reference) -> None:
    found = gate(reference, drifting(reference), 4, sizes={"P": (1,)}, relative=0.05)
    calls = {f.agreement.call for f in found.failures if f.agreement}
    assert not found.passed
    assert calls <= {1, 2}


def test_a_buffer_that_is_used_again_is_no_fault(reference: Reference) -> None:
    """The caller's own copy is compared, and the caller's own copy is what it carries."""
    assert gate(reference, reusing(reference), 4, sizes={"P": (2,)}).passed


@pytest.mark.parametrize("error", [ValueError("no\nway"), KeyError("x")])
def test_a_candidate_that_raises_fails_and_says_why(reference: Reference, error: Exception) -> None:
    def candidate(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        raise error

    found = gate(reference, candidate, 1)
    assert (found.passed, found.outputs, len(found.failures)) == (False, 0, 3)
    assert all(type(error).__name__ in f.refusal.what for f in found.failures if f.refusal)


def test_a_candidate_that_refuses_fails(reference: Reference) -> None:
    def candidate(i: Tensors, w: Tensors, v: Mapping[str, str]) -> Tensors:
        raise Refusal(Reason.FORM, "no form")

    found = gate(reference, candidate, 1)
    assert {f.refusal.reason for f in found.failures if f.refusal} == {Reason.FORM}


def test_nothing_compared_is_not_passed(reference: Reference) -> None:
    assert not gate(reference, reference.run, 0).passed


Change = Callable[[dict[str, torch.Tensor], dict[str, torch.Tensor]], None]


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (lambda i, w: i.pop("past"), Reason.BINDING, "total is given and past is not"),
        (lambda i, w: i.pop("total.0"), Reason.BINDING, "total.0 is missing"),
        (lambda i, w: w.pop("gain.1"), Reason.SHAPE, "the count of gain says P = 1"),
        (lambda i, w: w.update(gain=w["gain.0"]), Reason.BINDING, "no slot 'gain' under"),
        (lambda i, w: w.update({"bias.0": w["bias"]}), Reason.BINDING, "no slot 'bias.0' under"),
        (lambda i, w: i.update(past=i["past"][..., :1]), Reason.SHAPE, "past axis 2 says D"),
        (
            lambda i, w: i.update({"total.1": i["total.1"].double()}),
            Reason.DTYPE,
            "the input total.1 is torch.float64, not float32",
        ),
    ],
)
def test_calls_that_do_not_fit_are_refused(
    reference: Reference, change: Change, reason: Reason, words: str
) -> None:
    case = next(draw(reference.spec, 1, slots=Slots.ALL, sizes={"P": (2,)}))
    inputs, weights = dict(case.inputs), dict(case.weights)
    change(inputs, weights)
    with pytest.raises(Refusal) as caught:
        reference.run(inputs, weights, {})
    assert caught.value.reason is reason
    assert words in caught.value.what


def test_an_unsaid_count_is_refused(reference: Reference) -> None:
    text = SPEC.replace(
        "gain: {dims: [D], layout: vector, repeat: P}", "gain: {dims: [D], layout: vector}"
    )
    folder = reference.spec.path.parent.parent / "other" / "summed"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "structure.yaml").write_text(text)
    (folder / "reference.py").write_text(CODE)
    other = load_reference(read(folder), trust=[folder.parent])
    with pytest.raises(Refusal, match="nothing says how often y is there"):
        other.run({"x": torch.ones(2, 1, 4)}, {"gain": torch.ones(4)}, {})


def test_cost_counts_nothing_for_what_is_not_there(reference: Reference) -> None:
    sizes = {"M": 2, "D": 4, "P": 1, "T": 3}
    assert reference.cost(sizes, {}).flops == 2 * 4 * 3
    assert reference.cost({**sizes, "Tp": 5, "W": 7}, {}).flops == 2 * 4 * 8 + 7
    with pytest.raises(Refusal, match="the dim T has no size"):
        reference.cost({"M": 2, "D": 4, "P": 1}, {})


def test_an_output_of_another_dtype_than_the_spec_says_is_found(reference: Reference) -> None:
    wrong = Reference(
        reference.spec,
        lambda i, w, v: {n: t.double() for n, t in reference.function(i, w, v).items()},
        reference.cost_function,
    )
    case = next(draw(reference.spec, 1))
    with pytest.raises(Refusal) as caught:
        wrong.outputs_fit(case.inputs, case.weights, case.variant)
    assert caught.value.reason is Reason.DTYPE
