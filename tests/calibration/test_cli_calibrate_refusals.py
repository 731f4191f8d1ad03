"""Inputs that cannot become a receipt are refused (2), and before any forward where possible."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flashrt.calibration.feed import text_feed
from flashrt_cli.main import run
from flashrt_runtime.reason import Refusal

Call = Callable[..., tuple[int, str]]


@pytest.fixture
def calibrate(
    host_folder: Path, text_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Call:
    def call(*options: str) -> tuple[int, str]:
        base = ["calibrate", "--host", f"transformers:{host_folder}", "--window", "16"]
        base += ["--frames", f"text:{text_folder}", "--store", str(tmp_path / "store")]
        code = run([*base, "--samples", "4", "--held-out", "2", *options])
        return code, capsys.readouterr().err

    return call


@pytest.mark.parametrize("option", ["--seed", "--max-samples", "--samples", "--held-out"])
def test_a_number_that_no_receipt_can_hold(calibrate: Call, option: str) -> None:
    for value in (2**53, 10**30):
        code, err = calibrate(option, str(value))
        assert code == 2
        assert option in err


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 0},
        {"num_attention_heads": "abc"},
        {"hidden_size": -1},
        {"rms_norm_eps": "x"},
        {"head_dim": 7},
        {"tie_word_embeddings": "yes"},
        {"rope_parameters": None, "rope_theta": "x"},
        {"_attn_implementation": "flash_attention_2"},
        {"hidden_act": ["silu"]},
        {"num_hidden_layers": None},
        {"layer_types": 3},
    ],
)
def test_a_config_that_describes_no_model(
    calibrate: Call, host_folder: Path, changes: dict[str, Any]
) -> None:
    config = host_folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    code, err = calibrate()
    assert code == 2
    assert "HOST" in err


def test_positions_that_the_host_does_not_have(
    calibrate: Call, host_folder: Path, tokenizer: Any
) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    shutil.rmtree(host_folder)
    settings = {"n_positions": 8, "n_embd": 32, "n_layer": 1, "n_head": 2}
    config = GPT2Config(vocab_size=len(tokenizer), **settings)
    GPT2LMHeadModel(config).save_pretrained(host_folder)
    tokenizer.save_pretrained(host_folder)
    code, err = calibrate()
    assert code == 2
    assert "cannot run 16 tokens" in err
    assert calibrate("--window", "8")[0] == 0


def test_tokens_that_the_host_does_not_embed(
    calibrate: Call, host_folder: Path, llama: Any
) -> None:
    llama(vocab_size=20).save_pretrained(host_folder)
    code, err = calibrate()
    assert code == 2
    assert "the host embeds 20" in err


def test_names_that_are_not_text(calibrate: Call, text_folder: Path, host_folder: Path) -> None:
    bad = os.fsdecode(b"bad\xff")
    other = text_folder.parent / bad
    shutil.copytree(text_folder, other)
    code, err = calibrate("--frames", f"text:{other}")
    assert (code, "not UTF-8" in err) == (2, True)
    (text_folder / f"{bad}.txt").write_text("w1 w2 " * 90)
    code, err = calibrate()
    assert (code, "not UTF-8" in err) == (2, True)
    host = host_folder.parent / f"host-{bad}"
    shutil.copytree(host_folder, host)
    code, err = calibrate("--host", f"transformers:{host}")
    assert (code, "not UTF-8" in err) == (2, True)


@pytest.mark.parametrize("place", ["file", "file/inner", "made/table"])
def test_a_store_that_cannot_be_written_costs_no_run(
    calibrate: Call, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("here")
    if place == "made/table":
        (tmp_path / "made").mkdir()
        (tmp_path / place).write_text("here")
    code, err = calibrate("--store", str(tmp_path / place.removesuffix("/table")))
    assert code == 2
    assert "STORAGE" in err
    assert "load" not in err
    assert (tmp_path / "file").read_text() == "here"


def test_an_empty_store_is_no_store(
    calibrate: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "cwd"
    empty.mkdir()
    monkeypatch.chdir(empty)
    code, err = calibrate("--store", "")
    assert code == 2
    assert "--store" in err
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("name", ["folder.html", "file/x.html", "link.html/x.png"])
def test_a_picture_that_cannot_be_written_costs_no_run(
    calibrate: Call, tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("here")
    (tmp_path / "link.html").symlink_to("nowhere")
    code, err = calibrate("--plot", str(tmp_path / name))
    assert code == 2
    assert "STORAGE" in err
    assert "load" not in err
    assert not (tmp_path / "store").exists()


def test_a_picture_that_fails_at_the_end_names_the_receipt(
    calibrate: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flashrt.document import atomic

    whole = atomic.os.replace

    def full(source: Any, target: Any) -> None:
        if str(target).endswith(".html"):
            raise OSError(28, "No space left on device")
        whole(source, target)

    monkeypatch.setattr(atomic.os, "replace", full)
    code, err = calibrate("--plot", str(tmp_path / "x.html"))
    (receipt,) = (tmp_path / "store" / "calibration").iterdir()
    assert code == 2
    assert f"flashrt report sha256:{receipt.stem}" in err
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize(
    ("family", "said", "unsaid"),
    [("qwen3", "transformers:FOLDER", "lerobot"), ("pi0", "lerobot:FOLDER", "tokenizer's files")],
)
def test_a_host_without_tokenizer_is_told_what_is_for_its_kind(
    family: str, said: str, unsaid: str
) -> None:
    host = SimpleNamespace(tokenizer=None, name="h", artifact=SimpleNamespace(family=family))
    with pytest.raises(Refusal, match="no tokenizer") as caught:
        text_feed(host)
    assert said in caught.value.do
    assert unsaid not in caught.value.do


@pytest.mark.parametrize("frames", ["browm", "text:", "text:EMPTY", "lerobot:MISSING", "text:GONE"])
def test_what_names_no_frames_is_refused_before_a_host_is_loaded(
    frames: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").mkdir()
    monkeypatch.setattr("flashrt.calibration.source.host_of", lambda *_: pytest.fail("loaded"))
    assert run(["calibrate", "--frames", frames, "--store", str(tmp_path / "store")]) == 2
    assert (frames.partition(":")[2] or frames) in capsys.readouterr().err
