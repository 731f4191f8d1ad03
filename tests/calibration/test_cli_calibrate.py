import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flashrt_cli.main import run


@pytest.fixture
def calibrate(
    host_folder: Path, text_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        base = ["calibrate", "--host", f"transformers:{host_folder}"]
        base += ["--store", str(tmp_path / "store"), "--window", "16"]
        if "--frames" not in arguments:
            base += ["--frames", f"text:{text_folder}"]
        code = run([*base, *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


Call = Callable[..., tuple[int, str, str]]


def test_a_receipt_lies_in_the_store(calibrate: Call, tmp_path: Path) -> None:
    code, out, err = calibrate("--samples", "6", "--held-out", "3")
    assert code == 0
    assert "points calibrated over 6 samples of texts" in out
    receipts = list((tmp_path / "store" / "calibration").glob("*.json"))
    tables = list((tmp_path / "store" / "table").glob("*.safetensors"))
    assert len(receipts) == len(tables) == 1
    assert f"receipt sha256:{receipts[0].stem}" in out
    assert "calibrate 6/6" in err
    text = receipts[0].read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["binding"] is None


def test_running_it_again_changes_nothing(calibrate: Call, tmp_path: Path) -> None:
    first = calibrate("--samples", "4", "--held-out", "2")
    assert calibrate("--samples", "4", "--held-out", "2")[1] == first[1]
    assert len(list((tmp_path / "store" / "calibration").iterdir())) == 1


def test_json_is_the_receipt(calibrate: Call) -> None:
    options = ("--samples", "4", "--held-out", "2", "--max-samples", "3", "--seed", "5")
    code, out, _ = calibrate(*options, "--format", "json")
    body = json.loads(out)
    assert code == 0
    assert body["receipt"]["digest"] == body["digest"]
    assert body["receipt"]["samples"] == 3
    assert body["receipt"]["workload"]["seed"] == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--samples", "4000"), "EMPTY_CORPUS"),
        (("--percentile", "0"), "PERCENTILE"),
        (("--frames", "wiki"), "CONFLICT"),
        (("--frames", "text:nowhere-at-all"), "EMPTY_CORPUS"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    calibrate: Call, tmp_path: Path, options: tuple[str, str], said: str
) -> None:
    code, _, err = calibrate("--held-out", "2", *options)
    assert code == 2
    assert said in err
    assert not (tmp_path / "store").exists()


def test_a_nan_weight_stops_the_run_and_is_named(
    calibrate: Call, host_folder: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    path = host_folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = float("nan")
    save_file(tensors, path, metadata={"format": "pt"})
    code, _, err = calibrate("--samples", "4", "--held-out", "2")
    assert code == 2
    assert "NONFINITE" in err
    assert "model.layers.1.mlp.up_proj" in err
    assert not (tmp_path / "store").exists()
