"""Records: frozen, checked where people write them, exact, and free of torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.lab.records import (
    OPERATIONS,
    CacheEvent,
    ComputeServiceConfig,
    CustomerInteraction,
    ExperimentDesign,
    GenerationPolicy,
    KVCacheConfig,
    KVState,
    ModelArchitecture,
    RequestArrival,
    RequestSchedulingConfig,
    StateTransferConfig,
    Token,
)
from flashrt_runtime.reason import Reason, Refusal
from tests.lab.records.record_values import OWN, values

STATE = KVState("sha256:a", "sha256:b", (1, 2), (b"k" * 8,), (b"v" * 8,), "float32", "exact-1")


@pytest.mark.parametrize("name", sorted(OWN))
@settings(max_examples=1, deadline=None)
@given(data=st.data())
def test_no_record_can_be_changed_or_given_more(name: str, data: Any) -> None:
    made = data.draw(values(OWN[name]))
    for field in fields(made):
        with pytest.raises(FrozenInstanceError):
            setattr(made, field.name, None)
    assert hash(made) == hash(replace(made))


def test_a_state_is_named_by_what_it_was_computed_from() -> None:
    assert STATE.name == KVState.name_of(("sha256:a", "sha256:b"), (1, 2), "float32", "exact-1")
    others = [
        replace(STATE, checkpoint_sha256="sha256:c"),
        replace(STATE, tokenizer_sha256="sha256:c"),
        replace(STATE, token_ids=(2, 1)),
        replace(STATE, token_ids=(1, 2, 3)),
        replace(STATE, precision="bfloat16"),
        replace(STATE, executor="exact-2"),
    ]
    assert len({STATE.name, *(other.name for other in others)}) == 7
    assert replace(STATE).name == STATE.name
    assert (STATE.positions, STATE.nbytes) == (2, 16)


def test_the_name_of_a_state_is_no_other_split_of_the_same_letters() -> None:
    swapped = KVState.name_of(("sha256:b", "sha256:a"), (1, 2), "float32", "exact-1")
    joined = KVState.name_of(("sha256:a", "sha256:b"), (12,), "float32", "exact-1")
    assert len({STATE.name, swapped, joined}) == 3


ONE = Fraction(1)
BAD = [
    (lambda: KVCacheConfig(-1, 0, "none"), "KVCacheConfig.device_kv_bytes", "-1 is below 0"),
    (lambda: StateTransferConfig(Fraction(0), ONE), "link_bytes_per_us", "0 is not above 0"),
    (lambda: ComputeServiceConfig(Fraction(-1), ONE), "compute_flops", "-1 is not above 0"),
    (lambda: RequestSchedulingConfig(0), "max_active_requests", "0 is below 1"),
    (lambda: GenerationPolicy(0), "max_output_tokens", "0 is below 1"),
    (lambda: KVCacheConfig(2**53, 0, "none"), "device_kv_bytes", f"{2**53} is beyond {2**53 - 1}"),
    (lambda: ModelArchitecture(0, 8, 1, 8, 8, 8), "ModelArchitecture.layers", "0 is below 1"),
]


@pytest.mark.parametrize(("make", "subject", "what"), BAD)
def test_what_is_out_of_bounds_is_refused_by_its_field(make: Any, subject: str, what: str) -> None:
    with pytest.raises(Refusal) as refused:
        make()
    assert refused.value.reason is Reason.CONFLICT
    assert subject in refused.value.subject
    assert refused.value.what.startswith(what)


def typed(cls: Any, *given_values: Any) -> Any:
    return cls(*given_values)


WRONG_TYPES: list[tuple[Any, tuple[Any, ...], str]] = [
    (StateTransferConfig, (1.5, ONE), "Fraction was expected, not '1.5'"),
    (StateTransferConfig, (float("nan"), ONE), "Fraction was expected"),
    (RequestSchedulingConfig, (True,), "int was expected, not 'True'"),
    (KVCacheConfig, (1, 1, "forever"), "none or exact_prefix_lru"),
    (CustomerInteraction, ([],), "was expected, not '[]'"),
    (RequestArrival, ("r", ONE, "text"), "InferenceRequest was expected, not 'text'"),
]


@pytest.mark.parametrize(("cls", "given_values", "what"), WRONG_TYPES)
def test_what_is_of_another_type_is_refused(
    cls: Any, given_values: tuple[Any, ...], what: str
) -> None:
    with pytest.raises(Refusal) as refused:
        typed(cls, *given_values)
    assert what in refused.value.what


EVENT = CacheEvent(1, (0,), "arrival", Fraction(1, 3)).record()
JSON: list[tuple[Any, dict[str, Any], str, str]] = [
    (CacheEvent, {**EVENT, "time_us": 0.5}, "CacheEvent.time_us", "'0.5' is no exact number"),
    (CacheEvent, {**EVENT, "time_us": "2/6"}, "CacheEvent.time_us", "is no exact number"),
    (CacheEvent, {**EVENT, "kind": "other"}, "CacheEvent.kind", "'other' is none of arrival"),
    (CacheEvent, {**EVENT, "causes": [0, "1"]}, "CacheEvent.causes[1]", "an integer was expected"),
    (CacheEvent, {**EVENT, "causes": 0}, "CacheEvent.causes", "an array was expected"),
    (Token, {"id": 1, "piece": "AB", "kind": "piece"}, "Token.piece", "lower-case hexadecimal"),
    (Token, {"id": 1, "piece": "a", "kind": "piece"}, "Token.piece", "it is not hexadecimal"),
    (CustomerInteraction, {"actions": [{"type": "x"}]}, "actions[0]", "is none of SubmitAction"),
    (CustomerInteraction, {"actions": [{"type": []}]}, "actions[0]", "is none of SubmitAction"),
    (CustomerInteraction, {"actions": [3]}, "actions[0]", "'3' is none of SubmitAction"),
    (ExperimentDesign, {"schema": "flashrt.lab.design/2"}, "schema", "it is not flashrt.lab.des"),
    (ExperimentDesign, {}, "ExperimentDesign.schema", "it is not flashrt.lab.design/1"),
]


@pytest.mark.parametrize(("cls", "body", "subject", "what"), JSON)
def test_json_of_another_shape_is_refused_where_it_is(
    cls: Any, body: dict[str, Any], subject: str, what: str
) -> None:
    with pytest.raises(Refusal) as refused:
        cls.from_record(body)
    assert refused.value.reason is Reason.SCHEMA
    assert refused.value.subject.endswith(subject)
    assert what in refused.value.what


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(Refusal, match="an object was expected"):
        typed(Token.from_record, [])


def test_each_operation_is_named_as_its_owner() -> None:
    assert [type(one).__name__ for one in OPERATIONS] == [f"{o.name}Operation" for o in OPERATIONS]
    assert len({one.name for one in OPERATIONS}) == 7


def test_importing_records_and_ontology_imports_no_torch() -> None:
    code = "import sys, flashrt.lab.ontology.schemas; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
