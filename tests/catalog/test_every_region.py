"""Every region of the catalog through the one harness: no test here knows any of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from flashrt.spec import load, load_reference
from flashrt.spec.draw_sizes import ladder
from flashrt.spec.harness import Candidate, Case, Slots, compare, draw, gate
from flashrt.spec.model import Kind, StructureSpec
from flashrt.spec.reference import Reference
from flashrt.spec.registry import structure_names
from flashrt.spec.repeat import base
from flashrt.spec.trial import try_reference
from flashrt_runtime.reason import Refusal

REGIONS = (
    "adaln_producer",
    "attention_core",
    "cadence_static",
    "decoder_block",
    "decoder_ffn",
    "gated_delta_core",
    "linear_proj",
    "modnorm_qkv_chain",
    "norm_fused",
    "patch_projection",
    "qk_norm_rope",
    "qkv_pack",
    "qkv_rope",
    "vision_ffn",
)
PIPELINES = (
    "autoregressive_decode_pipeline",
    "video_generation_pipeline",
    "vla_tick_pipeline",
)
EXACT = (1 - 1e-9, 1e-6)
Tensors = Mapping[str, torch.Tensor]
EVERY = pytest.mark.parametrize("name", REGIONS)


@cache
def reference_of(name: str) -> Reference:
    return load_reference(load(name))


class Wide(TorchFunctionMode):
    """Whatever asks for float32 gets float64: the same formula with twice the digits."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        return func(*args, **(kwargs or {}))


def test_the_catalog_has_exactly_these() -> None:
    kinds = {name: load(name).kind for name in structure_names()}
    assert [n for n, k in kinds.items() if k is Kind.REGION] == list(REGIONS)
    assert [n for n, k in kinds.items() if k is Kind.PIPELINE] == list(PIPELINES)


@EVERY
def test_its_reference_runs_on_what_the_boundary_admits(name: str) -> None:
    assert try_reference(load(name)) == []


@EVERY
def test_it_passes_its_own_gate_in_both_widths(name: str) -> None:
    reference = reference_of(name)
    for dtype in (torch.float32, torch.bfloat16):
        found = gate(reference, reference.run, 3, dtype=dtype)
        assert found.passed
        assert found.cases == 9


def variants(spec: StructureSpec, data: st.DataObject) -> dict[str, Sequence[str]]:
    chosen: dict[str, str] = {}
    for axis in spec.variants.values():
        if axis.values and axis.applies(chosen):
            chosen[axis.name] = data.draw(st.sampled_from(axis.values), label=axis.name)
        elif axis.default and axis.applies(chosen):
            chosen[axis.name] = data.draw(st.sampled_from([axis.default, "0.25"]), label=axis.name)
    return {name: (value,) for name, value in chosen.items()}


@EVERY
@settings(deadline=None, max_examples=12)
@given(data=st.data())
def test_any_dims_and_variant_agree_with_twice_the_digits(name: str, data: st.DataObject) -> None:
    reference = reference_of(name)
    spec = reference.spec
    rows = data.draw(st.sampled_from(ladder(spec, spec.rows)), label="rows")
    slots = data.draw(st.sampled_from(list(Slots)), label="slots")
    seed = data.draw(st.integers(0, 10_000), label="seed")
    allowed = variants(spec, data)
    case = next(draw(spec, 1, seed, variants=allowed, sizes={spec.rows: (rows,)}, slots=slots))
    assert reference.dims(case.inputs, case.weights, case.variant) == dict(case.dims)

    def wide(inputs: Tensors, weights: Tensors, variant: Mapping[str, str]) -> Tensors:
        with Wide():
            out = reference.run(inputs, weights, variant)
        return {output: value.to(torch.float32) for output, value in out.items()}

    found = compare(reference, wide, case)
    calls = {a.call for a in found}
    assert calls == set(range(1 + len(case.later)))
    assert all(a.within(1 - 1e-7, 1e-4) for a in found), found


@EVERY
@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_its_cost_grows_with_the_work(name: str, seed: int) -> None:
    reference = reference_of(name)
    spec = reference.spec
    case = next(draw(spec, 1, seed, slots=Slots.NONE))
    one = reference.cost(case.dims, case.variant)
    rows = case.dims[spec.rows]
    two = reference.cost({**case.dims, spec.rows: 2 * rows}, case.variant)
    assert two.flops == pytest.approx(2 * one.flops)
    # A call that computes nothing hands tensors over: it moves none and reads no weight.
    assert one.bytes <= two.bytes <= 2 * one.bytes
    assert (one.bytes < two.bytes) is (one.flops > 0)
    narrow = reference.cost(case.dims, case.variant, weight_bytes=1.0)
    matrices = ("out_in", "conv_out_in_t_h_w")
    held = sum(t.numel() for n, t in case.weights.items() if _layout(spec, n) in matrices)
    assert one.bytes - narrow.bytes == (3.0 * held if one.flops else 0.0)
    assert not one.flops or one.flops >= 2.0 * held
    light = reference.cost(case.dims, case.variant, activation_bytes=2.0)
    assert (light.bytes < one.bytes) is (one.flops > 0)
    assert narrow.flops == light.flops == one.flops


def _layout(spec: StructureSpec, slot: str) -> str:
    return spec.slots[base(slot)].layout


def numbers(spec: StructureSpec) -> dict[str, Sequence[str]]:
    """Every numeric axis away from its default, so that one that is ignored is seen."""
    return {axis.name: ("0.25",) for axis in spec.variants.values() if axis.default}


def caught(reference: Reference, candidate: Candidate, cases: Iterator[Case]) -> bool:
    """Whether the harness holds anything against the candidate."""
    for case in cases:
        try:
            found = compare(reference, candidate, case)
        except (Refusal, KeyError, ValueError, RuntimeError, IndexError):
            return True
        if not all(a.within(*EXACT) for a in found):
            return True
    return False


def cases(spec: StructureSpec, wants: str) -> Iterator[Case]:
    """Up to sixteen cases that have the tensor."""
    drawn = draw(spec, 60, variants=numbers(spec), slots=Slots.ALL)
    having = (c for c in drawn if wants in {base(n) for n in (*c.inputs, *c.weights)})
    return itertools.islice(having, 16)


def without(tensors: Tensors, name: str) -> dict[str, torch.Tensor]:
    return {n: torch.zeros_like(t) if base(n) == name else t for n, t in tensors.items()}


@EVERY
def test_a_candidate_that_ignores_a_tensor_is_caught(name: str) -> None:
    reference = reference_of(name)
    spec = reference.spec
    missed = []
    for side, tensor in [*(("input", n) for n in spec.inputs), *(("slot", n) for n in spec.slots)]:

        def candidate(
            i: Tensors, w: Tensors, v: Mapping[str, str], s: str = side, n: str = tensor
        ) -> Tensors:
            return reference.function(
                without(i, n) if s == "input" else i, without(w, n) if s == "slot" else w, v
            )

        if not caught(reference, candidate, cases(spec, tensor)):
            missed.append(f"{side} {tensor}")
    assert missed == []


@EVERY
def test_a_candidate_that_takes_one_variant_for_another_is_caught(name: str) -> None:
    reference = reference_of(name)
    spec = reference.spec
    missed = []
    for axis in spec.variants.values():
        for value in axis.values or ((axis.default,) if axis.default else ()):

            def candidate(
                i: Tensors, w: Tensors, v: Mapping[str, str], a: str = axis.name, x: str = value
            ) -> Tensors:
                return reference.function(i, w, {**v, a: x} if a in v else v)

            drawn = draw(spec, 60, variants=numbers(spec), slots=Slots.ALL)
            other = (c for c in drawn if c.variant.get(axis.name, value) != value)
            if not caught(reference, candidate, itertools.islice(other, 16)):
                missed.append(f"{axis.name}={value}")
    # An axis with one value has no other to be taken for.
    alone = [f"{a.name}={a.values[0]}" for a in spec.variants.values() if len(a.values) == 1]
    assert missed == alone


@EVERY
def test_a_candidate_that_spoils_one_output_is_caught_there(name: str) -> None:
    reference = reference_of(name)
    spec = reference.spec
    for output in spec.outputs.values():
        case = next(c for c in draw(spec, 40) if output.applies(c.variant))

        def candidate(
            i: Tensors, w: Tensors, v: Mapping[str, str], n: str = output.name
        ) -> Tensors:
            out = reference.run(i, w, v)
            # One element of each: a cosine over the whole output hardly sees it.
            for key in [k for k in out if base(k) == n]:
                out[key] = out[key].clone()
                out[key].view(-1)[-1] += 0.1 * out[key].abs().max()
            return out

        first = [a for a in compare(reference, candidate, case) if a.call == 0]
        assert {base(a.output) for a in first if not a.within(*EXACT)} == {output.name}
