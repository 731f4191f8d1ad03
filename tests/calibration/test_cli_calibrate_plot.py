"""`calibrate --plot` and `report DIGEST` draw the receipt; what cannot be drawn costs no run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flashrt_cli.main import run

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def calibrate(
    host_folder: Path, text_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Call:
    def call(*arguments: str) -> tuple[int, str, str]:
        base = ["calibrate", "--host", f"transformers:{host_folder}", "--window", "16"]
        base += ["--frames", f"text:{text_folder}", "--store", str(tmp_path / "store")]
        base += ["--samples", "4", "--held-out", "2"]
        code = run([*base, *arguments])
        return (code, *capsys.readouterr())

    return call


def test_a_page_is_written_and_report_draws_the_same_from_the_store(
    calibrate: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    code, out, _ = calibrate("--plot", str(page), "--format", "json")
    assert code == 0
    body = json.loads(out)["receipt"]
    text = page.read_text()
    for point in body["points"]:
        assert f"{point['seam']}:{point['point']}" in text
        assert f"{point['amax']:.6g}" in text
    again = tmp_path / "again.html"
    store = str(tmp_path / "store")
    assert run(["report", body["digest"], "-o", str(again), "--store", store]) == 0
    assert body["summary"] in capsys.readouterr().out
    assert again.read_text() == text


def test_the_file_is_named_for_a_person(calibrate: Call, tmp_path: Path) -> None:
    code, out, err = calibrate("--plot", str(tmp_path / "p.html"))
    assert code == 0
    assert f"wrote {tmp_path / 'p.html'}" in out
    assert "points calibrated over 4 samples" in out
    progress = [line for line in err.splitlines() if not line.startswith("warning")]
    assert len(progress) == 1
    assert "calibrate 4/4" in progress[0]


@pytest.mark.parametrize("name", ["p.svg", "p"])
def test_what_cannot_be_drawn_is_refused_before_anything_runs(
    calibrate: Call, tmp_path: Path, name: str
) -> None:
    code, _, err = calibrate("--plot", str(tmp_path / name))
    assert code == 2
    assert ".html or .png" in err
    assert not (tmp_path / "store").exists()


def test_report_refuses_a_digest_that_is_not_there(
    calibrate: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrate()
    capsys.readouterr()
    store, out = str(tmp_path / "store"), tmp_path / "x.html"
    for digest in ("sha256:" + "0" * 64, "nonsense"):
        assert run(["report", digest, "-o", str(out), "--store", store]) == 2
        assert "UNKNOWN_CELL" in capsys.readouterr().err
    assert not out.exists()


def test_verbose_lists_each_point(calibrate: Call) -> None:
    code, out, _ = calibrate("--verbose")
    body = json.loads(calibrate("--verbose", "--format", "json")[1])["receipt"]
    assert code == 0
    for point in body["points"]:
        assert f"{point['seam']}:{point['point']}" in out
