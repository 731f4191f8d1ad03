"""One assignment for each control; what is not said, or said twice, is refused."""

from dataclasses import replace
from fractions import Fraction

import pytest

from flashrt.lab.execution import assign, compose, control, controls, differing, resolve
from flashrt.lab.execution.control import read_setting
from flashrt.lab.records import ExecutionSpec
from flashrt_runtime.reason import Reason, Refusal

WHOLE = {
    "scheduling.max_active_requests": 2,
    "kv_cache.device_kv_bytes": 4096,
    "kv_cache.host_kv_bytes": 0,
    "kv_cache.retention_policy": "exact_prefix_lru",
    "transfer.link_bytes_per_us": "1000/3",
    "transfer.link_latency_us": 5,
    "compute_service.compute_flops_per_us": 10,
    "compute_service.memory_bytes_per_us": "7/2",
}


def spec(**changes):
    said = WHOLE | {key.replace("__", "."): value for key, value in changes.items()}
    controls = tuple(assign(k, v) for k, v in said.items() if v is not None)
    return ExecutionSpec(controls=controls)


def test_a_whole_spec_resolves_exactly():
    system = resolve(spec())
    assert system.transfer.link_bytes_per_us == Fraction(1000, 3)
    assert system.compute_service.memory_bytes_per_us == Fraction(7, 2)
    assert system.execution.implementation == "cached"
    assert resolve(spec(execution__implementation="full_prefix")) != system


def test_the_controls_are_the_ontologys_and_so_are_their_owners():
    from flashrt.lab import ontology

    declared = {one.path: ontology.load().owner_of(one.record) for one in ontology.controls()}
    assert {path: one.subject for path, one in controls().items()} == declared


@pytest.mark.parametrize("setting", [4096, 8192, "4096"])
def test_two_assignments_are_refused_even_when_equal(setting):
    other = ExecutionSpec(controls=(assign("kv_cache.device_kv_bytes", setting),))
    with pytest.raises(Refusal, match=r"assigned twice: 4096 and") as found:
        compose(spec(), other)
    assert found.value.reason is Reason.CONFLICT
    assert found.value.subject == "kv_cache.device_kv_bytes"


def test_a_spec_that_repeats_itself_does_not_resolve():
    one = spec()
    with pytest.raises(Refusal, match="assigned twice"):
        resolve(ExecutionSpec(controls=(*one.controls, one.controls[0])))


def test_specs_without_a_common_control_are_put_together_in_order():
    first, second = (
        spec(scheduling__max_active_requests=None),
        ExecutionSpec(controls=(assign("scheduling.max_active_requests", 2),)),
    )
    assert [c.control for c in compose(first, second).controls][-1] == (
        "scheduling.max_active_requests"
    )
    assert resolve(compose(first, second)) == resolve(spec())


def test_an_unknown_path_names_the_nearest():
    with pytest.raises(Refusal, match=r"write kv_cache\.device_kv_bytes") as found:
        control("kv_cache.device_bytes")
    assert found.value.reason is Reason.SCHEMA


def test_a_control_that_is_not_said_is_named():
    with pytest.raises(Refusal, match=r"no setting for kv_cache\.host_kv_bytes"):
        resolve(spec(kv_cache__host_kv_bytes=None))


def test_another_owner_than_the_controls_is_refused():
    one = replace(assign("kv_cache.host_kv_bytes", 0), subject="StateTransfer")
    with pytest.raises(Refusal, match="a setting of KVCache, not of StateTransfer"):
        compose(ExecutionSpec(controls=(one,)))


@pytest.mark.parametrize(
    ("path", "setting"),
    [
        ("scheduling__max_active_requests", 0),
        ("scheduling__max_active_requests", "2"),
        ("kv_cache__device_kv_bytes", -1),
        ("kv_cache__retention_policy", "lru"),
        ("transfer__link_bytes_per_us", 0),
        ("transfer__link_bytes_per_us", "2/4"),
        ("transfer__link_latency_us", "-1/2"),
        ("compute_service__compute_flops_per_us", "fast"),
        ("ceilings__publication_buffer_tokens", 0),
        ("execution__implementation", "batched"),
    ],
)
def test_settings_out_of_type_or_bounds_are_refused(path, setting):
    with pytest.raises(Refusal) as found:
        resolve(spec(**{path: setting}))
    assert found.value.reason in (Reason.SCHEMA, Reason.CONFLICT)


def test_what_differs_between_specs():
    assert differing([spec(), spec()]) == []
    other = spec(kv_cache__host_kv_bytes=1, execution__implementation="cached")
    assert differing([spec(), other]) == ["kv_cache.host_kv_bytes", "execution.implementation"]


@pytest.mark.parametrize(
    ("text", "setting"), [("12", 12), ("-1", -1), ("1/2", "1/2"), ("none", "none"), ("٣", "٣")]
)
def test_settings_written_by_hand(text, setting):
    assert read_setting(text) == setting
