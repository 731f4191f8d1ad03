"""Each fault made in a copy, alone, and seen by its name."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest

from flashrt.lab.ontology import check, load, packaged_code
from flashrt.lab.records import (
    CacheEvent,
    GenerationPolicy,
    InspectionState,
    KVCacheConfig,
    KVState,
    ModelArtifact,
    Placement,
    RunOutcome,
    Says,
)
from tests.lab.ontology.lab_copies import Change, as_it_is, found, said, with_field, with_records

LIFTED = "tests/lab/ontology/test_lab_ontology_faults.py::test_the_ontology_and_the_code_agree"


def test_the_ontology_and_the_code_agree(tmp_path: Path) -> None:
    assert check(load()) == []
    assert found(tmp_path, as_it_is) == []


def without(cls: type, name: str) -> type:
    """A copy of a record class that lacks a field."""
    kept = [(f, Annotated[object, Says("x")]) for f in cls.__annotations__ if f != name]
    fields: list[Any] = [(f, str) for f, _ in kept]
    return make_dataclass(cls.__name__, fields, frozen=True)


def test_a_declared_field_that_the_code_lacks_is_named(tmp_path: Path) -> None:
    problems = found(tmp_path, as_it_is, with_records(without(KVState, "precision")))
    assert said(problems) == ["KVState.precision is declared and the class does not have it"]
    line = problems[0].line
    assert (tmp_path / "ontology.yaml").read_text().splitlines()[line - 1].strip() == "KVState:"


def test_a_declared_record_that_the_code_lacks_is_named(tmp_path: Path) -> None:
    code = packaged_code()
    fewer = {name: cls for name, cls in code.records.items() if name != "Token"}
    problems = found(tmp_path, as_it_is, replace(code, records=fewer))
    assert "Token.kind: there is no record class Token" in said(problems)


def changed_schema(name: str, record: str, field: str, to: dict[str, Any] | None) -> Any:
    """The code with one property of one schema replaced or taken away."""
    code = packaged_code()
    body = code.schemas[name]
    known = dict(body["$defs"][record]["properties"])
    known.pop(field)
    known |= {field: to} if to is not None else {}
    defs = {**body["$defs"], record: {**body["$defs"][record], "properties": known}}
    return replace(code, schemas={**code.schemas, name: {**body, "$defs": defs}})


def test_a_declared_field_that_the_schema_lacks_is_named(tmp_path: Path) -> None:
    code = changed_schema("lab/kv_state", "KVState", "keys", None)
    problems = found(tmp_path, as_it_is, code)
    assert said(problems) == ["KVState.keys is declared and schema lab/kv_state lacks it"]


def test_a_schema_that_gives_a_field_to_another_owner_is_named(tmp_path: Path) -> None:
    code = changed_schema("lab/kv_state", "KVState", "keys", {"x-owner": "KVCache"})
    problems = found(tmp_path, as_it_is, code)
    assert said(problems) == ["KVState.keys: its x-owner in schema lab/kv_state is KVCache"]


def test_a_schema_that_is_missing_or_open_is_named(tmp_path: Path) -> None:
    code = packaged_code()
    fewer = {name: body for name, body in code.schemas.items() if name != "lab/attention"}
    problems = found(tmp_path, as_it_is, replace(code, schemas=fewer))
    assert said(problems) == ["there is no schema lab/attention"]
    body = code.schemas["lab/attention"]
    (record,) = body["$defs"]
    defs = {record: {**body["$defs"][record], "additionalProperties": True}}
    open_one = {**code.schemas, "lab/attention": {**body, "$defs": defs}}
    problems = found(tmp_path, as_it_is, replace(code, schemas=open_one))
    assert said(problems) == ["AttentionOperation is open in schema lab/attention"]


def test_a_field_without_owner_is_named(tmp_path: Path) -> None:
    code = with_records(with_field(RunOutcome, "colour", str))
    problems = found(tmp_path, as_it_is, code)
    assert said(problems) == ["RunOutcome.colour has no owner"]


def test_a_record_without_owner_is_named(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Stray:
        name: str

    problems = found(tmp_path, as_it_is, with_records(Stray))
    assert said(problems) == [f"Stray, of {__name__}, has no owner"]


def test_a_field_with_two_owners_is_named_with_both(tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        body["owners"]["KVCache"]["records"]["RunOutcome"] = ["complete"]

    assert "RunOutcome.complete has 2 owners: InferenceResponse and KVCache" in said(
        found(tmp_path, change)
    )


def claimed(owner: str, record: str, field: str) -> Change:
    """The ontology with one field more, so that only what it leads to is wrong."""

    def change(body: dict[str, Any]) -> None:
        body["owners"][owner]["records"][record].append(field)

    return change


REACHED = [
    (KVState, "where", Placement | None, "KVState.where is a Placement of RequestRouter"),
    (KVState, "placement", str, "KVState.placement"),
    (KVState, "cache", tuple[KVCacheConfig, ...], "KVState.cache is a KVCacheConfig of KVCache"),
    (ModelArtifact, "policy", GenerationPolicy, "ModelArtifact.policy is a GenerationPolicy"),
    (ModelArtifact, "max_output_tokens", int, "ModelArtifact.max_output_tokens"),
    (CacheEvent, "token_ids", tuple[int, ...], "CacheEvent.token_ids"),
    (CacheEvent, "outcome", RunOutcome, "CacheEvent.outcome is a RunOutcome"),
    (InspectionState, "cache", KVCacheConfig, "InspectionState.cache is a KVCacheConfig"),
    (InspectionState, "text", str, "InspectionState.text"),
]


@pytest.mark.parametrize(("record", "field", "hint", "named"), REACHED)
def test_reaching_what_is_excluded_is_named_by_the_way(
    tmp_path: Path, record: type, field: str, hint: Any, named: str
) -> None:
    owner = load().owner_of(record.__name__)
    assert owner is not None
    code = with_records(with_field(record, field, hint))
    found_here = said(found(tmp_path, claimed(owner, record.__name__, field), code))
    assert any(named in what and what.startswith(f"{owner} reaches ") for what in found_here)
    assert all(what.startswith(f"{owner} reaches ") for what in found_here)


def test_the_way_is_followed_through_other_records(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Within:
        deep: Annotated[Placement | None, Says("x")]

    code = with_records(Within, with_field(KVState, "within", Within | None))

    def change(body: dict[str, Any]) -> None:
        body["owners"]["KVState"]["records"]["KVState"].append("within")
        body["owners"]["KVState"]["records"]["Within"] = ["deep"]

    (first, *_) = said(found(tmp_path, change, code))
    assert "KVState.within.deep is a Placement of RequestRouter" in first


MUTABLE = [
    (list[int], "holds a list"),
    (dict[str, int], "holds a dict"),
    (bytearray, "holds a bytearray"),
    (set[int] | None, "holds a set"),
    (tuple[list[int], ...], "holds a list"),
    (Any, "holds a Any"),
]


@pytest.mark.parametrize(("hint", "named"), MUTABLE)
def test_a_frozen_class_whose_field_can_change_is_named(
    tmp_path: Path, hint: Any, named: str
) -> None:
    code = with_records(with_field(KVState, "spare", hint))
    (what,) = said(found(tmp_path, claimed("KVState", "KVState", "spare"), code))
    assert what.startswith("KVState is mutable: its field spare")
    assert named in what


def test_a_class_that_is_not_frozen_is_named(tmp_path: Path) -> None:
    fields: list[Any] = [(name, str) for name in KVState.__annotations__]
    code = with_records(make_dataclass("KVState", fields))
    (what,) = said(found(tmp_path, as_it_is, code))
    assert what == "KVState is mutable: the class is not a frozen dataclass"


@pytest.mark.parametrize("name", ["StateManager", "FastStateManager"])
def test_an_engine_class_of_a_boundary_is_named(tmp_path: Path, name: str) -> None:
    code = packaged_code()
    more = (*code.classes, (name, "flashrt/lab/engine/manager.py"))
    (what,) = said(found(tmp_path, as_it_is, replace(code, classes=more)))
    assert what == (
        f"StateManager is a boundary and flashrt/lab/engine/manager.py has the class {name}"
    )


def test_controls_of_a_boundary_are_named(tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        owner = body["owners"]["KVCache"]
        owner["lifecycle"]["kind"] = "boundary"

    assert "KVCache is a boundary and has controls" in said(found(tmp_path, change))


def lifted(owner: str, kind: str, **limit: str) -> Change:
    """The ontology with a first limit that is marked implemented."""

    def change(body: dict[str, Any]) -> None:
        body["owners"][owner]["lifecycle"]["kind"] = kind
        body["owners"][owner]["limits"][0] |= {"status": "implemented", **limit}

    return change


def test_a_lifted_limit_names_a_test_that_is_there(tmp_path: Path) -> None:
    assert found(tmp_path, lifted("StateManager", "run", test=LIFTED)) == []


def test_a_lifted_limit_without_test_is_named(tmp_path: Path) -> None:
    (what,) = said(found(tmp_path, lifted("StateManager", "run")))
    assert what == "the limit is marked implemented and has no test"


@pytest.mark.parametrize(
    ("test", "named"),
    [
        ("tests/lab/no_such_file.py::test_it", "there is no tests/lab/no_such_file.py"),
        (LIFTED + "_never", "has no test_the_ontology_and_the_code_agree_never"),
    ],
)
def test_a_lifted_limit_whose_test_is_not_there_is_named(
    tmp_path: Path, test: str, named: str
) -> None:
    (what,) = said(found(tmp_path, lifted("StateManager", "run", test=test)))
    assert named in what


def test_an_owner_with_a_lifted_limit_leaves_boundary(tmp_path: Path) -> None:
    (what,) = said(found(tmp_path, lifted("StateManager", "boundary", test=LIFTED)))
    assert what == "a limit of StateManager is implemented and it still is a boundary"


def test_a_limit_that_holds_and_names_a_test_is_named(tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        body["owners"]["StateManager"]["limits"][0]["test"] = LIFTED

    assert said(found(tmp_path, change)) == ["a limit that holds names a test"]


def test_tests_are_not_looked_for_where_the_package_is_installed(tmp_path: Path) -> None:
    installed = replace(packaged_code(), tree=None)
    change = lifted("StateManager", "run", test="tests/lab/no_such_file.py::test_it")
    assert found(tmp_path, change, installed) == []


def test_a_control_path_that_does_not_resolve_is_named(tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        body["owners"]["KVCache"]["controls"].append("kv_cache.page_bytes")

    (what,) = said(found(tmp_path, change))
    assert what == "the control path kv_cache.page_bytes does not resolve"


def test_a_control_of_another_owner_is_named(tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        taken = body["owners"]["KVCache"]["controls"].pop(0)
        body["owners"]["StateTransfer"]["controls"].append(taken)

    (what,) = said(found(tmp_path, change))
    assert what == (
        "kv_cache.device_kv_bytes sets KVCacheConfig.device_kv_bytes, which is not StateTransfer's"
    )


def test_a_setting_that_is_no_control_is_named(tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        body["owners"]["KVCache"]["controls"].remove("kv_cache.host_kv_bytes")

    (what,) = said(found(tmp_path, change))
    assert what == "kv_cache.host_kv_bytes can be set and no owner has it as a control"


def test_a_concept_of_no_owner_or_of_anothers_fields_is_named(tmp_path: Path) -> None:
    def nobody(body: dict[str, Any]) -> None:
        body["concepts"]["Queue"]["owner"] = "Nobody"

    assert said(found(tmp_path, nobody)) == ["there is no owner Nobody"]

    def another(body: dict[str, Any]) -> None:
        body["concepts"]["Sequence state"]["fields"][0] = "CacheEvent.kind"

    assert said(found(tmp_path, another)) == [
        "CacheEvent.kind is no field of KVState, whose concept this is"
    ]


def test_an_exclusion_of_no_owner_is_named(tmp_path: Path) -> None:
    def change(body: dict[str, Any]) -> None:
        body["owners"]["KVState"]["excludes"][0]["owners"].append("Nobody")

    assert said(found(tmp_path, change)) == ["there is no owner Nobody"]
