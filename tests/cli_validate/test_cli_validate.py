"""``flashrt validate``: every kind of file, file:line:path for each problem, exit 2 when any."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flashrt.binding.audit import audit, kind_of, packaged
from flashrt.document.canonical import canonical_bytes, seal
from flashrt.document.problem import InputError
from flashrt.document.yaml_source import Document
from flashrt.spec.skeleton import write
from flashrt_cli.main import app
from flashrt_runtime.reason import Reason


def flashrt(*args: str | Path) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args], env={"CI": "", "COLUMNS": "200"})


def plan(**change: Any) -> dict[str, Any]:
    body = {"schema": "flashrt.plan/1", "scheme": "none"}
    return seal({**body, **change})


def test_this_tree_is_valid() -> None:
    checked = audit()
    assert [str(p) for c in checked for p in c.problems] == []
    kinds = {c.kind for c in checked}
    assert kinds >= {"schema", "structure", "digests_lock", "region_binding"}
    assert len(checked) == len(packaged())


def test_the_command_says_so_and_exits_0() -> None:
    result = flashrt("validate", "--format", "human")
    assert result.exit_code == 0
    assert "catalog/decoder_ffn/structure.yaml" in result.stdout
    assert ", 0 problems" in result.stdout


def test_a_problem_is_file_line_path_and_exit_2(tmp_path: Path) -> None:
    file = write("binding", "mine", tmp_path)[0]
    file.write_text(file.read_text().replace("weight: {at", "wait: {at"))
    result = flashrt("validate", tmp_path, "--format", "human")
    assert result.exit_code == 2
    line = next(n for n, t in enumerate(file.read_text().splitlines(), 1) if "wait: {at" in t)
    said = f"{file}:{line}: $.regions.head.weights.wait: linear_proj@1 has no slot wait"
    assert said in result.output.replace("\n", "")


def test_json_lists_every_problem(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("schema: flashrt.binding/1\nschema: x\n")
    (tmp_path / "b.yaml").write_text("schema: flashrt.nothing/1\n")
    result = flashrt("validate", tmp_path, "--format", "json")
    assert result.exit_code == 2
    text = json.dumps(json.loads(result.stdout))
    assert "duplicate key" in text
    assert "is not a schema that flashrt knows" in text


FILES: dict[str, tuple[bytes, str]] = {
    "no schema": (b"name: x\n", "does not say which schema"),
    "unknown schema": (b"schema: flashrt.kernel/1\n", "not a schema that flashrt knows"),
    "schema is a list": (b"schema: [a]\n", "not a schema that flashrt knows"),
    "alias bomb": (b"a: &a [x]\nschema: *a\n", "aliases are refused"),
    "tag": (b"schema: !!python/object:x {}\n", "is refused"),
    "deep": (b"schema: " + b"[" * 999, "not YAML"),
    "huge": (b"#" * (1024 * 1024 + 1), "over the limit"),
    "binary": (b"\xff\xfe\x00", "not UTF-8"),
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_hostile_yaml_is_a_problem_and_not_a_crash(tmp_path: Path, name: str) -> None:
    data, words = FILES[name]
    file = tmp_path / "x.yaml"
    file.write_bytes(data)
    (checked,) = audit([file])
    assert words in checked.problems[0].what
    assert file.read_bytes() == data


JSON: dict[str, tuple[bytes, str]] = {
    "duplicate": (b'{"schema": "a", "schema": "b"}', "duplicate key"),
    "nan": (b'{"schema": NaN}', "NaN is not JSON"),
    "infinite": (b'{"schema": 1e999}', "not a finite number"),
    "deep": (b'{"schema":' + b"[" * 100_000, "nested too deeply"),
    "cut": (b'{"schema": "flashrt.', "not JSON"),
    "list": (b"[]", "an object was expected"),
    "no schema": (b"{}", "does not say which schema"),
}


@pytest.mark.parametrize("name", sorted(JSON))
def test_hostile_json_is_a_problem_and_not_a_crash(tmp_path: Path, name: str) -> None:
    data, words = JSON[name]
    file = tmp_path / "x.json"
    file.write_bytes(data)
    (checked,) = audit([file])
    assert words in checked.problems[0].what


def test_a_path_that_is_not_there_and_an_empty_folder_are_problems(tmp_path: Path) -> None:
    assert "No such file" in audit([tmp_path / "none.yaml"])[0].problems[0].what
    assert "no file that flashrt knows" in audit([tmp_path])[0].problems[0].what


def test_json_of_others_is_passed_over_in_a_folder_only(tmp_path: Path) -> None:
    write("binding", "mine", tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    assert len(audit([tmp_path])) == 1
    assert audit([tmp_path / "tokenizer.json"])[0].problems


def test_an_artefact_that_was_edited_or_renamed_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flashrt.document.schema.problems", lambda *a, **k: [])
    body = plan()
    good = tmp_path / f"{body['digest'].removeprefix('sha256:')}.json"
    good.write_bytes(canonical_bytes(body))
    assert audit([good])[0].problems == ()
    renamed = tmp_path / f"{'0' * 64}.json"
    renamed.write_bytes(good.read_bytes())
    assert [p.reason for p in audit([renamed])[0].problems] == [Reason.DIGEST]
    good.write_bytes(canonical_bytes({**body, "scheme": "int8_static"}))
    (problem,) = audit([good])[0].problems
    assert problem.reason is Reason.DIGEST
    assert problem.path == "$.digest"


def test_a_receipt_is_told_by_its_kind() -> None:
    def kind(**value: str) -> str:
        return kind_of(Document("x.json", {"schema": "flashrt.receipt/1", **value}, ""))

    assert kind(kind="qualification") == "qualification_receipt"
    assert kind(kind="preflight") == kind(kind="incomplete") == "preflight_record"
    with pytest.raises(InputError, match="has kind 'other'"):
        kind(kind="other")


def test_a_ledger_is_checked_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text('\n{"schema": "flashrt.ledger/1", "kind": "seam"}\nnot json\n{"schema": "x"}\n')
    found = audit([file])[0].problems
    assert {p.line for p in found} == {2, 3, 4}


def test_a_recorded_digest_that_is_gone_is_noted_and_not_a_failure(tmp_path: Path) -> None:
    file = write("binding", "mine", tmp_path)[0]
    file.write_text(re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, file.read_text()))
    (checked,) = audit([file])
    assert checked.problems == ()
    assert [n.reason for n in checked.notices] == [Reason.STALE_SPEC]
    assert flashrt("validate", file).exit_code == 0


def test_a_reference_runs_only_where_it_is_trusted(tmp_path: Path) -> None:
    _, reference = write("structure", "mine", tmp_path)
    proof = tmp_path / "ran"
    reference.write_text(reference.read_text() + f"open({str(proof)!r}, 'w').close()\n")
    assert flashrt("validate", tmp_path).exit_code == 0
    assert not proof.exists()
    assert flashrt("validate", tmp_path, "--catalog", tmp_path / "catalog").exit_code == 0
    assert proof.exists()


def test_a_reference_that_raises_is_a_problem(tmp_path: Path) -> None:
    _, reference = write("structure", "mine", tmp_path)
    reference.write_text("raise SystemExit(0)\n")
    result = flashrt("validate", tmp_path, "--catalog", tmp_path / "catalog")
    assert result.exit_code == 2
    assert "does not load" in result.output


def test_a_schema_that_is_not_one_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "x.schema.json"
    file.write_text('{"type": "nonsense"}')
    assert audit([file])[0].problems
    draft = "https://json-schema.org/draft/2020-12/schema"
    file.write_text(f'{{"$schema": "{draft}",\n"$id": "urn:other"}}')
    (problem,) = audit([file])[0].problems
    assert "urn:flashrt:schema:x:1" in problem.what
    assert (problem.line, problem.path) == (2, "$.$id")


def test_a_catalog_whose_bytes_moved_fails_at_its_lock(tmp_path: Path) -> None:
    folder = write("structure", "mine", tmp_path)[0].parent
    (folder.parent / "digests.lock").write_text(
        "schema: flashrt.digests/1\nstructures:\n"
        f'  - {{name: mine, version: 1, digest: "sha256:{"0" * 64}", status: active}}\n'
    )
    result = flashrt("validate", tmp_path / "catalog", "--format", "json")
    assert result.exit_code == 2
    assert "STALE_SPEC" in result.stdout
