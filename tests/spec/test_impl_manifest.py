"""Impl manifests against the catalog: each claim that is wrong at its own line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashrt.binding.audit import audit
from flashrt.spec.skeleton import write


def manifest(tmp_path: Path, change: dict[str, Any], form: dict[str, Any]) -> Path:
    file = write("impl", "decoder_ffn/mine", tmp_path)[1]
    value = json.loads(file.read_text())
    value |= change
    value["forms"][0] |= form
    file.write_text(json.dumps(value, indent=2))
    return file


@pytest.mark.parametrize(
    ("change", "form", "path", "words"),
    [
        ({"structure": "decoder_fnn@1"}, {}, "$.structure", "no structure of this name"),
        ({"structure": "decoder_ffn@4"}, {}, "$.structure", "not in the catalog"),
        ({"structure": "linear_proj@1"}, {}, "$.structure", "the folder is named decoder_ffn"),
        (
            {"structure": "autoregressive_decode_pipeline@1"}, {}, "$.structure", "is a pipeline",
        ),
        ({"backend": "other"}, {}, "$.backend", "the file is named mine"),
        ({"archs": ["9.0"]}, {}, "$.archs", "cpu implementation declares no archs"),
        ({"archs": ["sm90"]}, {}, "$.archs[0]", "does not match"),
        ({"operator": "aten::mm"}, {}, "$.operator", "does not match"),
        ({"device": "tpu"}, {}, "$.device", "is not one of"),
        ({}, {"points": {"x": "none"}}, "$.forms[0].points.x", "no point x"),
        ({}, {"points": {"x_after_norm": "maybe"}}, "$.forms[0].points.x_after_norm", "one of"),
        ({}, {"variants": {"nrm": ["host"]}}, "$.forms[0].variants.nrm", "no variant axis"),
        ({}, {"variants": {"norm": ["layer"]}}, "$.forms[0].variants.norm[0]", "no value layer"),
        ({}, {"rows": [16, 1]}, "$.forms[0].rows", "16 to 1 holds no row"),
        ({}, {"rows": [1]}, "$.forms[0].rows", "too short"),
        ({}, {"speedup": 2}, "$.forms[0]", "speedup"),
    ],
)  # fmt: skip
def test_wrong_claims_are_refused(
    tmp_path: Path, change: dict[str, Any], form: dict[str, Any], path: str, words: str
) -> None:
    file = manifest(tmp_path, change, form)
    found = [p for c in audit([file]) for p in c.problems if p.path == path]
    assert found
    assert words in found[0].what
    leaf = path.rpartition(".")[2].partition("[")[0]
    line = file.read_text().splitlines()[found[0].line - 1]
    assert leaf in line or path.endswith("]")


def test_two_forms_of_one_name_and_a_missing_module_are_refused(tmp_path: Path) -> None:
    file = manifest(tmp_path, {}, {})
    value = json.loads(file.read_text())
    value["forms"] *= 2
    file.write_text(json.dumps(value))
    file.with_suffix(".py").unlink()
    said = [p.what for c in audit([file]) for p in c.problems]
    assert any("two forms are named decode" in what for what in said)
    assert any("mine.py is not beside" in what for what in said)


def test_an_open_band_of_rows_is_legal(tmp_path: Path) -> None:
    assert audit([manifest(tmp_path, {}, {"rows": [2, None]})])[0].problems == ()
