"""Measured and virtual time: two types, and no field that could hold either."""

import importlib
import inspect
import json
import pkgutil
import typing
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path

import pytest

import flashrt.lab.records
import flashrt.record
from flashrt.record import (
    ExecutionBackend,
    ExperimentExecution,
    Provenance,
    VirtualClock,
    WallClock,
    exact,
    exact_text,
)
from flashrt_runtime.reason import Reason, Refusal

WALL = WallClock("2026-01-31T12:00:00Z", "2026-01-31T12:00:05.5Z")
VIRTUAL = VirtualClock(Fraction(0), Fraction(7, 3))
BACKEND = ExecutionBackend("cpu", "host memory", "host memory", "torch 2", "float32")


def execution(**clocks):
    return ExperimentExecution("x", "1", ("flashrt", "lab", "run"), BACKEND, 0, **clocks)


def leaves(hint):
    inner = typing.get_args(hint)
    return {hint} if not inner else set().union(*(leaves(one) for one in inner))


def record_classes():
    for package in (flashrt.record, flashrt.lab.records):
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            module = importlib.import_module(found.name)
            for _, one in inspect.getmembers(module, is_dataclass):
                if one.__module__ == module.__name__:
                    yield one


def test_no_field_of_any_record_could_hold_both_times():
    seen = 0
    for one in record_classes():
        hints = typing.get_type_hints(one)
        for field in fields(one):
            held = leaves(hints[field.name])
            seen += 1
            assert not {WallClock, VirtualClock} <= held, f"{one.__name__}.{field.name}"
            if field.name.endswith("_us"):
                assert held.isdisjoint({float, str}), f"{one.__name__}.{field.name}"
            if field.name.endswith("_at"):
                assert held <= {str, type(None)}, f"{one.__name__}.{field.name}"
    assert seen > 30


def keys(node):
    if isinstance(node, dict):
        yield from node.get("properties", {})
        for value in node.values():
            yield from keys(value)
    elif isinstance(node, list):
        for value in node:
            yield from keys(value)


def test_schemas_of_the_lab_have_no_measured_instant_and_receipts_no_virtual_time():
    schemas = Path(__file__).parents[2] / "schemas"
    lab = {k for p in (schemas / "lab").glob("*.json") for k in keys(json.loads(p.read_bytes()))}
    receipts = {
        key
        for name in ("records", "qualification_receipt", "calibration_receipt", "preflight_record")
        for key in keys(json.loads((schemas / f"{name}.schema.json").read_bytes()))
    }
    assert {"started_us", "ended_us"} <= lab
    assert {"started_at", "ended_at"} <= receipts
    assert not [key for key in lab if key.endswith("_at")]
    assert not [key for key in receipts if key.endswith("_us")]


def test_the_json_of_the_two_clocks_has_no_key_in_common():
    assert set(WALL.record()).isdisjoint(VIRTUAL.record())
    simulated, measured = execution(virtual=VIRTUAL).record(), execution(wall=WALL).record()
    assert set(simulated) ^ set(measured) == {"virtual", "started_at", "ended_at"}
    assert simulated["virtual"] == {"started_us": 0, "ended_us": "7/3"}


@pytest.mark.parametrize("clocks", [{}, {"wall": WALL, "virtual": VIRTUAL}])
def test_an_execution_has_exactly_one_clock(clocks):
    with pytest.raises(Refusal) as caught:
        execution(**clocks)
    assert caught.value.reason is Reason.CONFLICT


@pytest.mark.parametrize("clocks", [{"wall": WALL}, {"virtual": VIRTUAL}])
def test_an_execution_comes_back_with_its_clock_and_provenance(clocks):
    code = Provenance("sha256:" + "1" * 64, "3.11.2", None)
    for made in (execution(**clocks), execution(**clocks, provenance=code)):
        assert ExperimentExecution.from_record(made.record()) == made
    both = execution(wall=WALL).record() | {"virtual": VIRTUAL.record()}
    with pytest.raises(Refusal, match="one clock"):
        ExperimentExecution.from_record(both)


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2026-99-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00+01:00"],
)
def test_what_is_no_instant_in_utc_is_refused(text):
    for pair in ((text, WALL.ended_at), (WALL.started_at, text)):
        with pytest.raises(Refusal) as caught:
            WallClock(*pair)
        assert caught.value.reason is Reason.CONFLICT


def test_a_wall_clock_that_was_set_back_is_kept_and_told():
    assert WALL.ordered
    assert not WallClock(WALL.ended_at, WALL.started_at).ordered


@pytest.mark.parametrize("span", [(0.0, Fraction(1)), (Fraction(0), 1), (Fraction(2), Fraction(1))])
def test_virtual_time_is_exact_and_forward(span):
    with pytest.raises(Refusal) as caught:
        VirtualClock(*span)
    assert caught.value.reason is Reason.CONFLICT


@pytest.mark.parametrize("value", [0, -3, 2**53 - 1, f"{2**53}/1", f"{-(10**30)}/1", "1/3", "-7/2"])
def test_an_exact_number_comes_back(value):
    assert exact_text(exact(value)) == value


@pytest.mark.parametrize(
    "value",
    [1.5, True, None, "1", "2/4", "4/2", "1/0", "0/3", " 1/3", "+1/3", "1/-3", "9" * 900 + "/7",
     2**53, -(10**30), 10**401, "3/1", f"{2**53 - 1}/1", "0.5", "1e3", [1]],
)  # fmt: skip
def test_a_number_in_another_form_is_refused(value):
    with pytest.raises(Refusal) as caught:
        exact(value)
    assert caught.value.reason is Reason.SCHEMA
