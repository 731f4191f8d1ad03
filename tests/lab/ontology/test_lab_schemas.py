"""The lab's schemas: as the tool writes them, closed, with an owner a field and units."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flashrt.document import schema
from flashrt.lab.ontology import load, packaged_code, schema_name
from flashrt_cli.main import run

ROOT = Path(__file__).resolve().parents[3]
NAMES = [name for name in schema.schema_names() if name.startswith("lab/")]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lab_schemas", ROOT / "tools" / "lab_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_schemas_are_what_the_tool_writes() -> None:
    assert tool().stale(ROOT / "schemas") == []


def test_the_tool_writes_what_is_stale_and_takes_away_what_is_left_over(tmp_path: Path) -> None:
    assert len(tool().write(tmp_path)) == 42
    (tmp_path / "lab" / "kv_state.schema.json").write_text("{}\n")
    (tmp_path / "lab" / "nobody.schema.json").write_text("{}\n")
    changed = ["lab/kv_state.schema.json", "lab/nobody.schema.json"]
    assert tool().stale(tmp_path) == changed
    assert tool().write(tmp_path) == changed
    assert tool().stale(tmp_path) == []


def test_there_is_one_for_each_owner() -> None:
    assert sorted(schema_name(owner.name) for owner in load().owners) == sorted(NAMES)
    assert schema_name("KVCache") == "lab/kv_cache"
    assert schema_name("ApiError") == "lab/api_error"


def records(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from schema.documents()[name]["$defs"].items()


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_closed_and_every_field_has_one_owner(name: str) -> None:
    ontology = load()
    body = schema.documents()[name]
    assert list(records(name))
    for record, part in records(name):
        assert part["additionalProperties"] is False
        assert set(part["required"]) <= set(part["properties"])
        for field in part["properties"].values():
            assert len(field["description"]) >= 5
            assert field["x-owner"] == body["x-owner"] == ontology.owner_of(record)


def numeric(part: dict[str, Any]) -> bool:
    parts = [part, *part.get("anyOf", ()), part.get("items") or {}, *part.get("prefixItems", ())]
    return any(one.get("type") in ("integer", "number") for one in parts)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_unit(name: str) -> None:
    bare = [
        f"{record}.{field}"
        for record, part in records(name)
        for field, body in part["properties"].items()
        if numeric(body) and not body.get("x-unit")
    ]
    assert bare == []


def test_virtual_and_wall_time_share_no_field() -> None:
    units: dict[str, set[str]] = {}
    for name in NAMES:
        for record, part in records(name):
            for field, body in part["properties"].items():
                units.setdefault(f"{record}.{field}", set()).add(body.get("x-unit", ""))
    virtual = {field for field, known in units.items() if "virtual us" in known}
    wall = {field for field, known in units.items() if "ns" in known}
    assert "CacheEvent.time_us" in virtual
    assert "LocalMeasurement.wall_ns" in wall
    assert virtual & wall == set()


def test_every_declared_field_is_in_a_schema() -> None:
    known = {
        f"{record}.{field}"
        for name in NAMES
        for record, part in records(name)
        for field in part["properties"]
    }
    assert set(load().fields) <= known
    assert packaged_code().schemas.keys() == set(NAMES)


def test_they_are_printed_as_the_others_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "kv_state"]) == 0
    short = capsys.readouterr().out
    assert run(["schema", "lab/kv_state"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(short)
    assert printed["$id"] == "urn:flashrt:schema:lab/kv_state:1"
    assert run(["schema", "lab/kv_stat"]) == 2
    assert "lab/kv_state" in "".join(capsys.readouterr())
    assert run(["schema", "ontology"]) == 0
