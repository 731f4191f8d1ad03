"""Drawn cases: sizes within the constraints, values within the domains, counts that are theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.spec.domain import Domain, DomainKind, Function
from flashrt.spec.draw import CALLS, Slots, draw
from flashrt.spec.draw_sizes import ELEMENTS
from flashrt.spec.draw_values import values
from flashrt.spec.expr import Number
from flashrt.spec.model import StructureSpec
from flashrt.spec.reader import read
from flashrt.spec.repeat import base, count
from flashrt_runtime.reason import Reason, Refusal

TEXT = """\
schema: flashrt.structure/1
name: drawn
version: 1
kind: region
summary: A structure whose tensors are of every kind.
dims: {B: rows, T: positions, Hq: heads, Hkv: kv heads, G: groups, Dh: width, R: turned, P: parts}
constraints: ["Hq == G*Hkv", "R <= Dh", "2 divides R"]
boundary:
  rows: B
  inputs:
    x: {dims: [B, T, Hq*Dh], dtype: "@binding"}
    k: {dims: [B, T, Hkv, Dh], dtype: "@binding", domain: {kind: nonpositive}}
    beta: {dims: [B, T], dtype: "@binding", domain: {kind: uniform, low: 2, high: 3}}
    cos: {dims: ["B | 1", T, R], dtype: float32, domain: {kind: angle, of: cos}}
    sin: {dims: ["B | 1", T, R], dtype: float32, domain: {kind: angle, of: sin}}
    ids: {dims: [B, T], dtype: int64, domain: {kind: index, below: T}}
    ranges: {dims: [2, 2], dtype: int64, optional: true, domain: {kind: ranges, within: 5*T}}
    held: {dims: [B, Dh], dtype: float32, repeat: P, role: state, carries: next, optional: true}
    more: {dims: [B, Dh], dtype: float32, role: state, carries: last, optional: true}
  outputs:
    next: {dims: [B, Dh], dtype: float32, repeat: P, role: state}
    last: {dims: [B, Dh], dtype: float32, role: state}
weights:
  norm: {dims: [Dh], layout: vector, optional: true}
  weight: {dims: [Dh, R], layout: out_in, repeat: P}
variants:
  kind: {values: [plain, sized]}
  scale: {number: "1.0"}
  head_dim: {dim: Dh, when: {kind: [sized]}}
calibration:
  points: {}
gates: {metric: cosine, bands: {pass: 0.999, warn: 0.995}, margin: 1.02}
reference: reference.py
"""

Edit = Callable[..., StructureSpec]


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    def edit(*changes: tuple[str, str]) -> StructureSpec:
        folder = tmp_path / "drawn"
        folder.mkdir()
        text = TEXT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (folder / "structure.yaml").write_text(text)
        (folder / "reference.py").write_text("")
        return read(folder)

    return edit


@pytest.fixture
def spec(edited: Edit) -> StructureSpec:
    return edited()


def test_sizes_satisfy_every_constraint_and_stay_small(spec: StructureSpec) -> None:
    cases = list(draw(spec, 40, slots=Slots.ALL))
    for d in (c.dims for c in cases):
        assert d["Hq"] == d["G"] * d["Hkv"]
        assert d["R"] <= d["Dh"]
        assert d["R"] % 2 == 0
    elements = [sum(t.numel() for t in (*c.inputs.values(), *c.weights.values())) for c in cases]
    assert max(elements) <= ELEMENTS
    assert len({c.dims["Hq"] for c in cases}) > 3
    assert len({c.dims["T"] for c in cases}) > 3


def test_values_are_what_the_boundary_admits(spec: StructureSpec) -> None:
    for case in draw(spec, 20, slots=Slots.ALL, dtype=torch.bfloat16):
        i, d = case.inputs, case.dims
        assert float(i["k"].float().max()) <= 0.0
        assert float(i["beta"].float().min()) >= 2.0
        assert float(i["beta"].float().max()) <= 3.0
        torch.testing.assert_close(i["cos"] ** 2 + i["sin"] ** 2, torch.ones_like(i["cos"]))
        half = d["R"] // 2
        assert torch.equal(i["cos"][..., :half], i["cos"][..., half:])
        assert i["cos"].shape[0] in (1, d["B"])
        assert i["cos"].shape == i["sin"].shape
        assert 0 <= int(i["ids"].min()) <= int(i["ids"].max()) < d["T"]
        flat = i["ranges"].flatten().tolist()
        assert flat == sorted(flat)
        assert 0 <= flat[0] < flat[1] <= flat[2] < flat[3] <= 5 * d["T"]


def test_a_fixed_dtype_is_kept_and_the_others_are_the_bindings(spec: StructureSpec) -> None:
    for case in draw(spec, 3, slots=Slots.ALL, dtype=torch.float16):
        dtypes = {n: t.dtype for n, t in case.inputs.items()}
        assert dtypes["x"] is dtypes["k"] is torch.float16
        assert dtypes["cos"] is dtypes["more"] is torch.float32
        assert dtypes["ids"] is dtypes["ranges"] is torch.int64
        assert case.weights["norm"].dtype is torch.float16


def test_both_alternatives_are_drawn(spec: StructureSpec) -> None:
    heads = {c.inputs["cos"].shape[0] == 1 for c in draw(spec, 30, sizes={"B": (2, 5)})}
    assert heads == {True, False}


def test_repeated_tensors_are_counted(spec: StructureSpec) -> None:
    counts = set()
    for case in draw(spec, 20, slots=Slots.ALL):
        parts = case.dims["P"]
        counts.add(parts)
        assert [n for n in case.weights if base(n) == "weight"] == [
            f"weight.{i}" for i in range(parts)
        ]
        assert count("held", case.inputs) == parts
        assert not torch.equal(case.inputs["held.0"], case.weights["weight.0"])
    assert len(counts) > 2


def test_state_comes_whole_or_not_at_all(spec: StructureSpec) -> None:
    seen = set()
    for case in draw(spec, 30):
        there = ("held.0" in case.inputs, "more" in case.inputs)
        seen.add(there)
        assert len(case.later) == CALLS - 1
        for call in case.later:
            assert set(call) == {n for n in case.inputs if base(n) not in ("held", "more")}
            assert all(call[n].shape == case.inputs[n].shape for n in call)
            assert not torch.equal(call["x"], case.inputs["x"])
    assert seen == {(True, True), (False, False)}
    assert all("more" not in c.inputs for c in draw(spec, 5, slots=Slots.NONE))


def test_dims_of_what_is_not_there_have_no_size(edited: Edit) -> None:
    spec = edited(("norm: {dims: [Dh]", "norm: {dims: [N]"), ("P: parts", "P: parts, N: other"))
    with_norm = {c.dims.get("N") for c in draw(spec, 20, slots=Slots.ALL)}
    assert None not in with_norm
    assert {c.dims.get("N") for c in draw(spec, 20, slots=Slots.NONE)} == {None}
    assert spec.optional_dims({"kind": "plain"}) == {"N"}


def test_an_axis_that_is_a_size_says_the_drawn_one(spec: StructureSpec) -> None:
    sized = [c for c in draw(spec, 20) if c.variant["kind"] == "sized"]
    assert sized
    assert all(c.variant["head_dim"] == str(c.dims["Dh"]) for c in sized)
    only = {"kind": ["sized"], "head_dim": ["8"], "scale": ["0.5"]}
    for case in draw(spec, 5, variants=only):
        assert case.dims["Dh"] == 8
        assert case.variant == {"kind": "sized", "head_dim": "8", "scale": "0.5"}


def test_a_number_keeps_its_default_unless_it_is_narrowed(spec: StructureSpec) -> None:
    assert {c.variant["scale"] for c in draw(spec, 5)} == {"1.0"}
    with pytest.raises(Refusal) as caught:
        next(draw(spec, 1, variants={"scale": ["nan"]}))
    assert caught.value.reason is Reason.BINDING


def test_sizes_that_the_caller_gives_solve_what_is_left_open(spec: StructureSpec) -> None:
    for case in draw(spec, 10, sizes={"Hq": (12,), "Hkv": (4,)}):
        assert (case.dims["Hq"], case.dims["Hkv"], case.dims["G"]) == (12, 4, 3)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"Hq": (3,), "Hkv": (2,)}, "the constraint Hq == G"),
        ({"R": (64,), "Dh": (32,)}, "the constraint R <= Dh does not hold"),
        ({"R": (3,)}, "the constraint 2 divides R does not hold"),
    ],
)
def test_sizes_that_break_a_constraint_are_refused(
    spec: StructureSpec, sizes: dict[str, tuple[int, ...]], words: str
) -> None:
    with pytest.raises(Refusal) as caught:
        next(draw(spec, 1, sizes=sizes))
    assert caught.value.reason is Reason.SHAPE
    assert words in caught.value.what


def test_ranges_that_do_not_fit_are_refused(edited: Edit) -> None:
    spec = edited(("within: 5*T", "within: T"))
    with pytest.raises(Refusal, match="1 positions hold no 2 disjoint ranges"):
        next(draw(spec, 1, sizes={"T": (1,), "R": (2,)}))
    case = next(draw(spec, 1, sizes={"T": (2,)}, slots=Slots.ALL))
    assert case.inputs["ranges"].tolist() == [[0, 1], [1, 2]]


def test_a_table_of_angles_of_an_odd_width_is_refused(edited: Edit) -> None:
    spec = edited((', "2 divides R"', ""))
    with pytest.raises(Refusal, match="an even width"):
        next(draw(spec, 1, sizes={"R": (3,)}))


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 1000))
def test_ranges_are_sorted_disjoint_and_not_empty(rows: int, extra: int, seed: int) -> None:
    within = rows + extra
    domain = Domain(DomainKind.RANGES, bound=Number(within))
    source = torch.Generator().manual_seed(seed)
    found = values(domain, [rows, 2], {}, source, {})
    assert found.shape == (rows, 2)
    assert bool((found[:, 0] < found[:, 1]).all())
    assert bool((found[1:, 0] >= found[:-1, 1]).all())
    assert int(found.min()) >= 0
    assert int(found.max()) <= within


def test_tables_of_one_shape_share_their_angles_and_others_do_not() -> None:
    source = torch.Generator().manual_seed(0)
    kept: dict[str, torch.Tensor] = {}
    cos = Domain(DomainKind.ANGLE, of=Function.COS)
    sin = Domain(DomainKind.ANGLE, of=Function.SIN)
    first, other = values(cos, [3, 4], {}, source, kept), values(cos, [2, 4], {}, source, kept)
    again = values(sin, [3, 4], {}, source, kept)
    torch.testing.assert_close(first**2 + again**2, torch.ones(3, 4))
    assert not torch.equal(first[:2], other)


def test_a_gap_in_repeated_names_is_refused() -> None:
    assert count("w", ["w.0", "w.1", "x"]) == 2
    assert base("w.x") == "w.x"
    assert base("w.01") == "w.01"
    with pytest.raises(Refusal, match=r"w.1 is missing"):
        count("w", ["w.0", "w.2"])
