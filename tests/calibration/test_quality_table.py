"""The quality benchmark: which arms there are, whose scales they have, and where its table goes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from flashrt.calibration.kinds import Address, Observation, Samples

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def quality() -> ModuleType:
    path = ROOT / "benchmarks" / "calibration_quality.py"
    spec = importlib.util.spec_from_file_location("calibration_quality", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def samples() -> Samples:
    amax = np.arange(1, 17, dtype=np.float32).reshape(8, 2) ** 2
    seen = np.ones((8, 2), dtype=bool)
    seen[3, 1] = False
    return Samples(
        (Address("s", "a", "m", "input"), Address("s", "b", "m", "input")),
        tuple(f"f{i}" for i in range(8)),
        amax,
        seen,
        (Observation((1, 1), 4, "float32", 8), Observation((1, 1), 4, "float32", 7)),
    )


def test_a_part_has_the_rows_of_its_frames(quality: ModuleType, samples: Samples) -> None:
    part = quality.part(samples, ["f5", "f2"])
    assert part.frames == ("f2", "f5")
    assert part.amax.tolist() == samples.amax[[2, 5]].tolist()


def test_percentiles_that_are_the_maximum_are_one_arm(
    quality: ModuleType, samples: Samples
) -> None:
    plain, *others = quality.arms_of(samples, samples.frames)
    assert plain.label == "100, 99.9, 99 (the maximum)"
    assert [p.amax for p in plain.reduction.points] == samples.amax.max(axis=0).tolist()
    assert [arm.label for arm in others] == ["99.9 (interpolated)", "99 (interpolated)"]
    kept = samples.amax[samples.seen[:, 1], 1].astype(float)
    for arm, asked in zip(others, (99.9, 99.0), strict=True):
        point = arm.reduction.points[1]
        assert point.amax == np.percentile(kept, asked, method="linear")
        assert point.amax < kept.max()


def test_one_frame_has_one_arm(quality: ModuleType, samples: Samples) -> None:
    assert [arm.count for arm in quality.arms_of(samples, ["f4"])] == [1]


def windows(agree: int, nll: float | None) -> list[dict]:
    fields = {"positions": 10, "kl_sum": 2.0, "nll_host_sum": 20.0}
    return [fields | {"top1_agree": agree, "nll_treated_sum": nll}, fields | {
        "top1_agree": 10, "nll_treated_sum": nll,
    }]  # fmt: skip


def test_parity_is_pooled_and_the_worst_window_stays(quality: ModuleType) -> None:
    parity = quality.Parity.of(windows(6, 25.0))
    assert (parity.positions, parity.agreement, parity.worst) == (20, 0.8, 0.6)
    assert parity.kl == pytest.approx(0.2)
    assert parity.perplexity / parity.host == pytest.approx(np.exp(0.5))


def test_a_window_that_is_not_finite_makes_the_arm_not_finite(quality: ModuleType) -> None:
    assert np.isnan(quality.Parity.of(windows(0, None)).perplexity)


def test_a_row_has_the_gap_of_fit_and_held_out(quality: ModuleType, samples: Samples) -> None:
    arm = next(iter(quality.arms_of(samples, samples.frames)))
    fit, held_out = quality.Parity.of(windows(10, 20.0)), quality.Parity.of(windows(6, 25.0))
    cells = [c.strip() for c in quality.row("int8_static", arm, held_out, fit).split("|")[1:-1]]
    assert len(cells) == quality.HEADER.splitlines()[0].count("|") - 1
    assert cells[:5] == ["int8_static", "8", arm.label, "80.0 %", "60.0 %"]
    assert cells[-2:] == ["+20.0", "+0.0000"]


def test_the_table_goes_between_its_markers_and_nowhere_else(quality: ModuleType) -> None:
    document = f"before\n{quality.BEGIN}\nold\n{quality.END}\nafter\n"
    made = quality.written(document, "new\n")
    assert made == f"before\n{quality.BEGIN}\nnew\n{quality.END}\nafter\n"
    assert quality.written(made, "new") == made
    with pytest.raises(ValueError, match="calibration_quality"):
        quality.written("no markers", "new")


def test_the_document_has_a_table_of_each_scheme_and_count(quality: ModuleType) -> None:
    _, _, rest = quality.DOCUMENT.read_text().partition(quality.BEGIN)
    table = rest.partition(quality.END)[0]
    for scheme in quality.SCHEMES:
        for count in quality.COUNTS:
            assert f"| {scheme} | {count} | 100, 99.9, 99 (the maximum) |" in table
    assert "python benchmarks/calibration_quality.py --write" in quality.DOCUMENT.read_text()


def test_other_single_frames_are_different_ones(quality: ModuleType) -> None:
    ids = [f"f{i:02}" for i in range(64)]
    drawn = quality.others(ids, ["f40"])
    assert len(set(drawn)) == quality.DRAWS
    assert "f40" not in drawn
    assert set(drawn) <= set(ids)
