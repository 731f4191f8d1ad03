"""Dims that can be no size are refused at their line, and nothing too large is ever drawn."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from flashrt.document.problem import InputError
from flashrt.spec.dims import constraint, evaluate, parse
from flashrt.spec.draw import draw
from flashrt.spec.draw_sizes import MOST, NoSize
from flashrt.spec.expr import MAX_DIM
from flashrt.spec.reader import read
from flashrt.spec.skeleton import write
from flashrt.spec.trial import try_reference
from flashrt.spec.written import unfit
from flashrt_runtime.reason import Reason, Refusal

Edit = Callable[[str, str], Path]
SLOT = "gain: {dims: [D]"
MANY = "*".join(["(D+1)"] * 33)


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    """The skeleton with one text replaced; returns its folder."""

    def edit(old: str, new: str) -> Path:
        folder = write("structure", "scaled", tmp_path)[0].parent
        file = folder / "structure.yaml"
        text = file.read_text()
        assert text.count(old) == 1, text
        file.write_text(text.replace(old, new))
        return folder

    return edit


NEVER = [
    ("D/0", "divides by zero"),
    ("D-D", "0 is not a size"),
    ("0", "0 is not a size"),
    ("1-D", "0 is not a size"),
    ("D/D/2", "1/2 is not a size"),
    ("D/(M-M)", "divides by zero"),
    ("0-D*M", "-1 is not a size"),
    ("D | D-D", "0 is not a size"),
    (f"{MAX_DIM}*D*{MAX_DIM}", "larger than any dim"),
    (MANY, "multiplies more than 8 names"),
    ("D | D | D | D", "written twice"),
]


@pytest.mark.parametrize(("text", "words"), NEVER)
def test_a_dim_that_is_never_a_size_is_refused_at_its_line_without_running_anything(
    edited: Edit, text: str, words: str
) -> None:
    folder = edited(SLOT, f'gain: {{dims: ["{text}"]')
    with pytest.raises(InputError) as caught:
        read(folder)
    (problem,) = caught.value.problems
    assert problem.path == "$.weights.gain.dims[0]"
    assert words in problem.what
    assert problem.do
    written = (folder / "structure.yaml").read_text().splitlines()
    assert SLOT.partition(":")[0] in written[problem.line - 1]


@pytest.mark.parametrize(
    ("rule", "never"),
    [
        ("D <= 0", True),
        ("D == D+1", True),
        ("0 divides D", True),
        ("2*D == 2*M+1", True),
        ("D == 7*M", False),
        ("64 divides D/3", False),
        ("D <= 1", False),
        ("D*M == 1000", False),
    ],
)
def test_a_constraint_that_no_sizes_satisfy_is_refused(rule: str, never: bool) -> None:
    assert bool(unfit(constraint(rule))) is never


@pytest.mark.parametrize(
    "text",
    ["D/7", "D-1", "1000-D", "D-1000000", "D/17", "D/(D-1)", "P-Q", "D/192", "(P+2*Q)*D", "B | 1"],
)  # fmt: skip
def test_a_dim_that_is_a_size_for_some_sizes_is_kept(text: str) -> None:
    assert unfit(parse(text)) == ""


def test_a_size_over_the_largest_is_none() -> None:
    assert evaluate(parse("D*2"), {"D": MAX_DIM // 2}) == MAX_DIM
    with pytest.raises(Refusal, match="larger than any dim"):
        evaluate(parse("D*2"), {"D": MAX_DIM})


def test_a_tensor_that_nothing_could_hold_is_refused_at_its_dims(edited: Edit) -> None:
    with pytest.raises(InputError) as caught:
        read(edited(SLOT, "gain: {dims: [D, 2097152, 2097152]"))
    assert [p.path for p in caught.value.problems if "elements" in p.what] == [
        "$.weights.gain.dims"
    ]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (SLOT, 'gain: {dims: ["D*20000000"]', "$.weights.gain.dims[0]"),
        (SLOT, f"gain: {{dims: [{MAX_DIM}]", "$.weights.gain.dims[0]"),
        (SLOT, 'gain: {dims: ["D | D*20000000"]', "$.weights.gain.dims[0]"),
        (SLOT, "gain: {dims: [D/7]", "$.weights.gain.dims[0]"),
        ("boundary:\n", 'constraints: ["D == 7*M", "7000 <= M"]\nboundary:\n', "$.constraints[1]"),
        (
            "boundary:\n",
            'constraints: ["P == 100000*M"]\nboundary:\n',
            "$.weights.gain.repeat",
        ),
    ],
)
def test_a_size_that_is_never_drawn_is_refused_there_before_anything_is_drawn(
    edited: Edit, old: str, new: str, path: str
) -> None:
    folder = edited(old, new)
    if "P ==" in new:
        file = folder / "structure.yaml"
        text = file.read_text().replace(SLOT, "gain: {repeat: P, dims: [D]")
        file.write_text(text.replace("dims:\n", "dims:\n  P: parts\n", 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (problem,) = try_reference(read(folder), [folder.parent])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (problem.file, problem.path) == (str(folder / "structure.yaml"), path)
    assert problem.reason is Reason.SHAPE
    assert problem.line > 1
    assert grown < 512 * 1024  # kilobytes; torch may be imported here


def test_sizes_that_a_caller_names_are_bounded_too(edited: Edit) -> None:
    spec = read(edited("version: 1", "version: 1"))
    with pytest.raises(NoSize, match="more than are drawn"):
        next(draw(spec, 1, sizes={"M": (MAX_DIM,)}))
    case = next(draw(spec, 1, sizes={"M": (2,), "D": (2 * MOST // 100,)}))
    assert case.dims["M"] == 2


def test_as_many_positions_as_are_shuffled_for_ranges_are_bounded(edited: Edit) -> None:
    x = 'x: {dims: [M, D], dtype: "@binding"}'
    ranges = "r: {dims: [2, 2], dtype: int64, domain: {kind: ranges, within: 20000000*D}}"
    folder = edited(x, f"{x}\n    {ranges}")
    with pytest.raises(NoSize, match="positions are more than are drawn") as caught:
        next(draw(read(folder), 1))
    assert caught.value.path == "$.boundary.inputs.r.domain"
