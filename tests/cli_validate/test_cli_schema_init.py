"""``flashrt schema`` and ``flashrt init``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from flashrt.document.schema import schema_names, schema_text
from flashrt_cli.main import run

MINE = ("structure", "region_binding", "pipeline_binding", "impl_manifest", "digests_lock")


def parts(node: Any, path: str = "$") -> list[tuple[str, dict[str, Any]]]:
    """Every field's schema with its path."""
    found: list[tuple[str, dict[str, Any]]] = []
    if isinstance(node, dict):
        for key in ("properties", "patternProperties"):
            for name, child in node.get(key, {}).items():
                found.append((f"{path}.{name}", child))
        for key, child in node.items():
            found += parts(child, f"{path}.{key}")
    if isinstance(node, list):
        for i, child in enumerate(node):
            found += parts(child, f"{path}[{i}]")
    return found


def test_schemas_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert capsys.readouterr().out.splitlines() == schema_names()
    assert set(MINE) <= set(schema_names())
    for name in MINE:
        assert run(["schema", name]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["$id"] == f"urn:flashrt:schema:{name}:1"
        Draft202012Validator.check_schema(printed)


def test_an_unknown_schema_is_refused_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["schema", "structur"]) == 2
    assert "did you mean structure" in capsys.readouterr().err


@pytest.mark.parametrize("name", MINE)
def test_every_field_is_described_and_every_object_is_closed(name: str) -> None:
    schema = json.loads(schema_text(name))
    conditional = ("allOf", ".if.", ".then.", ".else.")
    for path, part in parts(schema):
        if part is False or any(word in path for word in conditional):
            continue
        assert part.get("description") or "$ref" in part, path
        if part.get("type") == "object":
            assert part["additionalProperties"] is False, path


def test_init_writes_what_validates_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, name in (
        ("structure", "mine"),
        ("binding", "mine"),
        ("impl", "linear_proj/mine"),
    ):
        assert run(["init", kind, name, "--to", str(tmp_path)]) == 0
    made = [Path(line) for line in capsys.readouterr().out.split()]
    assert len(made) == 5
    before = {p: p.read_bytes() for p in made}
    assert run(["init", "binding", "mine", "--to", str(tmp_path)]) == 2
    assert "the file exists; choose another name" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in made} == before
    assert run(["validate", str(tmp_path)]) == 0


def test_init_of_an_unknown_kind_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", "structur", "x", "--to", str(tmp_path)]) == 2
    assert "did you mean structure" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
