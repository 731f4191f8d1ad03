"""``qualify --overrides FILE``: stated scales reach the plan, and the cell says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashrt.document.problem import InputError
from flashrt.qualify.cell import build_cell, cell_digest
from flashrt.qualify.prepare import prepare
from flashrt.qualify.request import CellRequest
from flashrt.receipt.store import Store
from flashrt.scheme import Overrides
from flashrt_cli import main
from flashrt_cli.exit_codes import ExitCode
from flashrt_runtime.reason import Reason, Refusal

STATIC = CellRequest.parse("int8_static@decode")
PLAIN = CellRequest.parse("fp16_weight@decode")
DEVICE = {"class": "cpu", "threads": 1}


@pytest.fixture
def ready(at_home, source, tmp_path):
    def make(overrides=None, request=STATIC):
        return prepare(
            source[0],
            source[1],
            (request,),
            Store(tmp_path / "store"),
            calibration=None,
            seed=0,
            tell=lambda *_, **__: None,
            overrides=overrides,
        )

    return make


@pytest.fixture
def stated(ready, tmp_path):
    """A file that states one scale that the plan uses; its seam and its point."""
    plan = ready().plan(STATIC)
    seam, scales = next((s["seam"]["id"], s["scales"]) for s in plan["seams"] if s["scales"])
    point = min(scales)
    path = tmp_path / "scales.yaml"
    path.write_text(f"schema: flashrt.scale_overrides/1\nseams:\n  {seam}: {{{point}: 0.25}}\n")
    return path, seam, point


def test_the_plan_and_the_cell_name_the_file(ready, stated):
    path, seam, point = stated
    plain, given = ready().plan(STATIC), ready(path).plan(STATIC)
    assert given["overrides"] == Overrides.read(path).digest
    assert "overrides" not in plain
    scales = {s["seam"]["id"]: s["scales"] for s in given["seams"]}
    assert scales[seam][point] == 0.25
    cells = [build_cell(STATIC, plan, DEVICE, {}) for plan in (plain, given)]
    assert "overrides" not in cells[0]["precision"], "old receipts keep their digests"
    assert cells[1]["precision"]["overrides"] == given["overrides"]
    assert cell_digest(cells[0]) != cell_digest(cells[1])


def test_a_scheme_that_uses_no_stated_scale_refuses_the_cell(ready, stated):
    with pytest.raises(Refusal) as caught:
        ready(stated[0], PLAIN).plan(PLAIN)
    assert caught.value.reason is Reason.CONFLICT


def test_a_bad_file_is_refused_before_the_host_is_loaded(tmp_path, capsys):
    path = tmp_path / "scales.yaml"
    path.write_text("schema: flashrt.scale_overrides/1\nseams:\n  a: {x: 0}\n")
    with pytest.raises(InputError):
        prepare("transformers:/nowhere", "text:/nowhere", (STATIC,), Store(Path(tmp_path)),
                calibration=None, seed=0, tell=lambda *_, **__: None, overrides=path)  # fmt: skip
    words = ["qualify", "--cell", STATIC.text, "--overrides", str(path)]
    assert main.run([*words, "--host", "transformers:/nowhere"]) == ExitCode.REFUSED
    assert f"{path}:3" in capsys.readouterr().err
