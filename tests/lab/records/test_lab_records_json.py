"""Every record: to JSON and back the same, as its schema says, and nothing else is read."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.document import schema
from flashrt.document.canonical import canonical_bytes
from flashrt.lab.ontology import load, schema_name
from flashrt_runtime.reason import Reason, Refusal
from tests.lab.records.record_values import OWN, needed, values

ONTOLOGY = load()
OTHERS: tuple[Any, ...] = (
    *(None, True, 3, -3, 2**53, 10**400, 1.5),
    *("1/2", "2/4", "ab", "\x00 neither"),
    *([], [[]], {}, {"type": "None"}),
)


@cache
def validator(name: str) -> Any:
    """The validator of one record class."""
    owner = ONTOLOGY.owner_of(name)
    assert owner is not None
    known = [(body["$id"], body) for body in schema.documents().values()]
    rule = {"$ref": f"{schema.urn(schema_name(owner))}#/$defs/{name}"}
    return jsonschema_rs.Draft202012Validator(
        rule, registry=jsonschema_rs.Registry(known, retriever=schema.nothing)
    )


@pytest.mark.parametrize("name", sorted(OWN))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_record_is_the_same_after_json_and_as_its_schema_says(name: str, data: Any) -> None:
    cls: Any = OWN[name]
    made = data.draw(values(cls))
    text = canonical_bytes(made.record())
    assert cls.from_record(json.loads(text)) == made
    validator(name).validate(json.loads(text))
    assert canonical_bytes(cls.from_record(json.loads(text)).record()) == text


@pytest.mark.parametrize("name", sorted(OWN))
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_key_that_is_unknown_or_missing_is_refused_by_both(name: str, data: Any) -> None:
    cls: Any = OWN[name]
    body = data.draw(values(cls)).record()
    wrong = [{**body, "colour": "red"}]
    wrong += [{k: v for k, v in body.items() if k != key} for key in needed(cls)]
    for one in wrong:
        with pytest.raises(Refusal) as refused:
            cls.from_record(one)
        assert refused.value.reason is Reason.SCHEMA
        assert refused.value.subject.startswith(f"{name}.")
        assert not validator(name).is_valid(one)


def reads(cls: Any, body: Any) -> bool:
    """Whether a class reads a JSON object; it refuses what it does not read."""
    try:
        cls.from_record(body)
    except Refusal:
        return False
    return True


@pytest.mark.parametrize("name", sorted(OWN))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_code_reads_only_what_the_schema_accepts(name: str, data: Any) -> None:
    cls: Any = OWN[name]
    body = data.draw(values(cls)).record()
    if not body:
        return
    key = data.draw(st.sampled_from(sorted(body)))
    changed = {**body, key: data.draw(st.sampled_from(OTHERS))}
    if reads(cls, changed):
        assert validator(name).is_valid(changed)
