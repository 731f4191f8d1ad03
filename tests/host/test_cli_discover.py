import json
from pathlib import Path

import pytest

from flashrt_cli.main import run


def test_seams_and_refusals_are_listed(
    host_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["discover", "--host", f"transformers:{host_folder}"]) == 0
    out, _ = capsys.readouterr()
    assert "model.layers.1.mlp" in out
    assert "qkv_pack@1" in out
    assert "22 seams, 7 refused" in out


def test_json_is_what_was_found(host_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["discover", "--host", f"transformers:{host_folder}", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert len(found["seams"]) == 22
    assert found["binding"] is None
    assert found["model_artifact"]["family"] == "llama"


def test_a_host_without_the_structures_says_what_was_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, tie_word_embeddings=False)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt")
    assert run(["discover", "--host", f"transformers:{tmp_path / 'gpt'}"]) == 0
    out, _ = capsys.readouterr()
    assert "laid out [in, out]" in out
    assert "no three sibling projections read one tensor" in out


def test_a_host_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["discover", "--host", f"transformers:{tmp_path / 'absent'}"]) == 2
    assert "HOST" in capsys.readouterr().err


def test_a_binding_of_ones_own_is_compared_and_proven(
    host_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "smollm2.yaml"
    mine.write_text(Path("bindings/smollm2.yaml").read_text())
    host = ["discover", "--host", f"transformers:{host_folder}"]
    run([*host, "--binding", str(mine), "--prove", "--format", "json"])
    bound = json.loads(capsys.readouterr().out)["bound"]
    assert bound["name"] == "smollm2"
    assert bound["seams"] > 0
    assert all(proof["ok"] or proof["unseen"] for proof in bound["proofs"])
    assert run([*host, "--binding", str(tmp_path / "absent.yaml")]) == 2
    assert "absent.yaml" in capsys.readouterr().err


def test_nothing_to_prove_is_said(host_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = ["discover", "--host", f"transformers:{host_folder}"]
    assert run(host) == 0
    assert "no binding is packaged for this host" in capsys.readouterr().out
    assert run([*host, "--prove"]) == 2
    assert "nothing to prove" in capsys.readouterr().err
