"""Schemas are held against draft 2020-12 with what is packaged, and nothing is ever fetched."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from referencing.exceptions import Unresolvable

from flashrt.document import explain, meta, schema
from flashrt.document.meta import DRAFT

OWN = "urn:flashrt:schema:x:1"
PLAN = "urn:flashrt:schema:plan:1"


def said(**keywords: Any) -> list[tuple[str, str]]:
    """Path and words of each problem of a schema with these keywords; ``_`` stands for ``$``."""
    body = {"$schema": DRAFT, "$id": OWN}
    body |= {k.replace("_", "$", 1) if k.startswith("_") else k: v for k, v in keywords.items()}
    return [(p.path, p.what) for p in meta.problems(body, "x", "x.schema.json")]


@pytest.mark.parametrize("name", schema.schema_names())
def test_every_packaged_schema_is_one_and_all_its_references_are_there(name: str) -> None:
    assert meta.problems(schema.documents()[name], name, name) == []


@pytest.mark.parametrize(
    "reference",
    ["#", "#/$defs/a", "#a", f"{OWN}#/$defs/a", PLAN, f"{PLAN}#", "#/allOf/0", "#/$defs/b~1c%20d"],
)  # fmt: skip
def test_a_reference_to_what_is_there_is_none_of_the_problems(reference: str) -> None:
    defs = {"a": {"$anchor": "a"}, "b/c d": True}
    assert said(_defs=defs, allOf=[{"$ref": reference}]) == []


ADDRESSES = [
    "http://127.0.0.1:1/x",
    "file:///etc/hostname",
    "other.schema.json",
    "urn:flashrt:schema:nothing:1",
    "#/$defs/none",
    "#none",
    "#/allOf/7",
    f"{PLAN}#/nowhere",
    "//[",
]


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_reference_to_what_is_not_there_is_refused_at_its_path(
    keyword: str, address: str
) -> None:
    found = said(properties={"a": {"items": {keyword: address}}}, allOf=[{}])
    assert [path for path, _ in found] == [f"$.properties.a.items.{keyword}"]


@pytest.mark.parametrize("draft", ["http://127.0.0.1:1/meta", "file:///etc/hostname", "urn:x", 5])
def test_another_draft_is_one_problem_wherever_it_is_named(draft: Any) -> None:
    assert said(_schema=draft) == [("$.$schema", "it is not a schema of draft 2020-12")]
    inner = said(properties={"a": {"$id": "urn:b", "$schema": draft}})
    assert "$.properties.a.$schema" in {path for path, _ in inner}


def test_data_and_properties_that_are_named_like_keywords_are_no_references() -> None:
    data = {"$ref": "http://127.0.0.1:1/x", "$schema": "urn:x", "$id": "urn:y"}
    assert said(const=data, default=data, enum=[data], examples=[data]) == []
    assert said(properties={"$ref": True, "$schema": {"type": "string"}, "const": {}}) == []
    assert said(properties={"const": {"$ref": "#none"}})[0][0] == "$.properties.const.$ref"


def test_what_the_draft_does_not_accept_is_said_at_its_path() -> None:
    assert said(type="nonsense")[0][0] == "$.type"
    assert said(properties={"a": {"minLength": -1}})[0][0] == "$.properties.a.minLength"
    assert said(pattern="(")[0][0] == "$.pattern"
    assert said(x={"$ref": 5, "$anchor": [1]}) == [("$.x.$ref", "5 is not there")]
    assert "no JSON Schema" in said(_ref="#\ud800")[0][1]


def test_a_name_and_an_id_that_differ_are_refused() -> None:
    assert said(_id="urn:other") == [("$.$id", f"$id is not {OWN}")]


def test_no_validator_of_ours_has_a_retriever_that_answers() -> None:
    with pytest.raises(LookupError, match="is not a packaged schema"):
        schema.nothing("http://127.0.0.1:1/x")
    asks = {"$id": "urn:asks", "$schema": DRAFT, "$ref": "urn:nobody"}
    with pytest.raises(Unresolvable):
        list(explain.validator({"asks": asks}, "asks").iter_errors(1))
    with pytest.raises((ValueError, jsonschema_rs.ReferencingError), match="urn:nobody"):
        jsonschema_rs.Draft202012Validator(asks, retriever=schema.nothing)


def test_of_very_many_problems_the_first_thousand_are_said() -> None:
    found = said(allOf=[{"$ref": f"#n{i}"} for i in range(3000)])
    assert len(found) == schema.MAX_PROBLEMS + 1
    assert found[-1] == ("$", "there are more problems")
