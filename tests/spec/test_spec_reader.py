"""Reading one spec: hostile YAML, and specs that mean nothing, each at its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flashrt.document.problem import InputError
from flashrt.spec.model import Kind, Presence
from flashrt.spec.reader import read
from flashrt.spec.registry import catalog_root
from flashrt_runtime.reason import Reason, Refusal

FOLDER = catalog_root() / "decoder_ffn"


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Path]:
    """decoder_ffn with one text replaced by another."""

    def edit(old: str, new: str, folder: str = "decoder_ffn") -> Path:
        text = (FOLDER / "structure.yaml").read_text()
        assert old in text
        target = tmp_path / folder
        target.mkdir()
        (target / "structure.yaml").write_text(text.replace(old, new))
        (target / "reference.py").write_bytes((FOLDER / "reference.py").read_bytes())
        return target

    return edit


def test_decoder_ffn_is_read_whole() -> None:
    spec = read(FOLDER)
    assert (spec.id, spec.kind, spec.rows) == ("decoder_ffn@1", Kind.REGION, "M")
    assert list(spec.points) == ["x_after_norm", "act_after_mul"]
    assert [str(d) for d in spec.slots["gate"].dims] == ["F", "D"]
    assert spec.slots["gate_bias"].presence is Presence.OPTIONAL
    assert not spec.slots["norm"].applies({"norm": "host"})
    assert spec.gates.record() == {
        "metric": "cosine",
        "bands": {"pass": 0.999, "warn": 0.995},
        "margin": 1.02,
        "report": ["max_abs", "norm_ratio", "nonfinite"],
    }
    assert spec.weight_dims() == {"D", "F"}


def test_the_pipeline_judges_distributions_and_its_reference_is_the_host() -> None:
    spec = read(catalog_root() / "autoregressive_decode_pipeline")
    assert spec.kind is Kind.PIPELINE
    assert spec.reference is None
    assert (spec.gates.metric, dict(spec.gates.bands)) == (
        "top1_agreement",
        {"pass": 0.95, "warn": 0.85},
    )
    assert spec.stages["modality"].presence is Presence.OPTIONAL
    assert spec.stages["decode"].cadence == "per_token"


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ("gate: {dims: [F, D]", "gate: {dims: [F, E]", "$.weights.gate.dims[1]", "E is not decl"),
        ("gate: {dims: [F, D]", 'gate: {dims: ["F;", D]', "$.weights.gate.dims[0]", "not part of"),
        ("rows: M", "rows: N", "$.boundary.rows", "N is not declared"),
        ("residual: [add]", "residual: [plus]", "$.boundary.inputs.residual.when.residual", "plus"),
        ("{norm: [rms_d", "{nrm: [rms_d", "$.weights.norm.when.nrm", "no variant axis"),
        ("act_after_mul:", "y:", "$.calibration.points.y", "is an output too"),
        ("pass: 0.999", "pass: 0.9", "$.gates.bands", "pass is below warn"),
        ("reference.py", "missing.py", "$.reference", "not beside the spec"),
        ("version: 1", "version: true", "$.version", "integer"),
        ("margin: 1.02", "margin: 0.5", "$.gates.margin", "minimum"),
        ("  F: width", "  G: unused\n  F: width", "$.dims.G", "no tensor has the dim G"),
        ("kind: region", "kind: region\nextra: 1", "$", "extra"),
        ("kind: region", "kind: pipeline", "$", ""),
    ],
)
def test_a_spec_that_means_nothing_is_refused_at_its_line(
    edited: Callable[..., Path], old: str, new: str, path: str, words: str
) -> None:
    folder = edited(old, new)
    with pytest.raises(InputError) as caught:
        read(folder)
    found = [p for p in caught.value.problems if p.path == path]
    assert found, [str(p) for p in caught.value.problems]
    assert words in found[0].what
    assert found[0].file == str(folder / "structure.yaml")
    lines = (folder / "structure.yaml").read_text().splitlines()
    leaf = path.rpartition(".")[2].partition("[")[0]
    assert path == "$" or leaf in lines[found[0].line - 1]


def test_folder_and_name_agree(edited: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="the folder is named other"):
        read(edited("version: 1", "version: 1", "other"))


def test_an_older_version_says_so_by_its_folder(catalog: Path) -> None:
    assert read(catalog / "scaled" / "v1").id == "scaled@1"
    (catalog / "scaled" / "v1").rename(catalog / "scaled" / "v3")
    with pytest.raises(InputError, match="the folder says v3"):
        read(catalog / "scaled" / "v3")


HOSTILE = {
    "alias bomb": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "python tag": b"schema: !!python/object/apply:os.system ['true']\n",
    "tag on a mapping": b"schema: !!python/object:os.system {}\n",
    "tag on a list": b"schema: !!python/tuple [1]\n",
    "a long number": b"version: 0x" + b"f" * 5000,
    "a longer number": b"version: " + b"9" * 5000,
    "very deep": b"[" * 500_000,
    "own tag": b"schema: !thing x\n",
    "deep": b"a: " + b"[" * 500 + b"]" * 500,
    "duplicate": b"schema: flashrt.structure/1\nschema: flashrt.structure/1\n",
    "number key": b"1: x\n",
    "nan": b"schema: .nan\n",
    "not utf-8": b"schema: \xff\xfe\n",
    "huge": b"# " + b"x" * (2 * 1024 * 1024),
    "empty": b"",
    "two documents": b"a: 1\n---\nb: 2\n",
    "a list": b"- 1\n- 2\n",
    "unclosed": b"a: {b: [\n",
    "merge key": b"a: {<<: {b: 1}}\n",
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_yaml_is_refused_by_file_and_line(tmp_path: Path, name: str) -> None:
    file = tmp_path / "structure.yaml"
    file.write_bytes(HOSTILE[name])
    with pytest.raises(InputError) as caught:
        read(file)
    assert all(p.file == str(file) and p.line >= 1 for p in caught.value.problems)
    assert file.read_bytes() == HOSTILE[name]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read(tmp_path / "structure.yaml")


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ({"norm": "layer"}, "no norm 'layer'"),
        ({"nrm": "host"}, "no variant axis 'nrm'"),
        ({"norm": "host", "activation": "silu", "residual": "host"}, "needs a value for modul"),
        ({"norm": "rms_direct", "eps": "nan"}, "no eps 'nan'"),
        ({"norm": "rms_direct", "eps": "-1"}, "no eps '-1'"),
        ({"norm": "host", "eps": "1e-5"}, "no eps under this variant"),
    ],
)
def test_variants_are_closed(variant: dict[str, str], words: str) -> None:
    with pytest.raises(Refusal) as caught:
        read(FOLDER).complete(variant)
    assert words in caught.value.what
    assert caught.value.reason is Reason.BINDING


def test_a_numeric_axis_has_a_default_where_it_means_something() -> None:
    rest = {"activation": "silu", "residual": "host", "modulation": "none"}
    assert read(FOLDER).complete({"norm": "rms_direct", **rest})["eps"] == "1e-06"
    assert "eps" not in read(FOLDER).complete({"norm": "host", **rest})
