"""Extremes of many tensors of several dtypes, read back in one copy, in the order they were put."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from flashrt.calibration.kinds import Address
from flashrt.calibration.meter import Meter
from flashrt.calibration.slots import Slots

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(-1000, 1000)), max_size=300))
def test_every_amax_comes_back_in_order(put: list[tuple[torch.dtype, int]]) -> None:
    slots = Slots()
    for _ in range(2):  # a frame, and another one in the same places
        for dtype, value in put:
            slots.put(torch.tensor([value, value / 4], dtype=dtype))
        expected = [abs(float(torch.tensor(value, dtype=dtype))) for dtype, value in put]
        assert slots.read().tolist() == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    slots = Slots()
    slots.put(torch.tensor([1.0, bad, -2.0]))
    slots.put(torch.ones(1))
    first, second = slots.read().tolist()
    assert not math.isfinite(first)
    assert second == 1.0


def test_a_host_that_wants_gradients_or_inference_is_measured_too() -> None:
    slots = Slots()
    x = torch.tensor([3.0, -5.0], requires_grad=True)
    with torch.enable_grad():
        slots.put(x * 2)
    with torch.inference_mode():
        slots.put(torch.tensor([-4.0], dtype=torch.bfloat16))
    assert slots.read().tolist() == [10.0, 4.0]
    with pytest.raises(RuntimeError):
        slots.put(torch.ones(0))


@contextmanager
def metered() -> Iterator[tuple[nn.Module, Meter]]:
    model = nn.ModuleDict({"one": nn.Identity(), "two": nn.Identity()}).eval()
    meter = Meter(model, [Address(n, "x", n, "input") for n in ("one", "two")])
    with meter.attached():
        yield model, meter


def test_a_frame_of_thousands_of_calls_is_folded_as_it_goes() -> None:
    calls = 5000
    with metered() as (model, meter):
        for i in range(calls):
            x = torch.tensor([float(i % 4500)])
            model["one"](x)
            model["two"](x)
        taken = meter.take()
    assert taken.amax.tolist() == [4499.0, 4499.0]
    assert [o.calls for o in meter.observations() if o is not None] == [calls, calls]
    assert len(meter._slots._pairs) == 4096


def test_a_tensor_that_was_written_to_is_measured_again() -> None:
    with metered() as (model, meter):
        x = torch.ones(2, 3)
        model["one"](x)
        x.mul_(7.0)
        model["two"](x)
        assert meter.take().amax.tolist() == [1.0, 7.0]


def test_what_is_empty_or_not_a_number_reaches_nothing() -> None:
    with metered() as (model, meter):
        model["one"](torch.ones(0, 3))
        model["two"](torch.ones(2, dtype=torch.int64))
        taken = meter.take()
    assert taken.seen.tolist() == [False, False]
    assert meter.observations() == (None, None)


def test_a_tensor_given_by_name_is_found() -> None:
    with metered() as (model, meter):
        model["one"](input=torch.full((2,), -3.0))
        assert meter.take().amax.tolist() == [3.0, 0.0]
