"""A guard lets in what its contract serves; the rest runs the host, counted, with a reason."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime.contract import Seam
from flashrt_runtime.guard import FormContract, Place, RowRule, width_of
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.seat import STREAK_LIMIT, Seat
from flashrt_runtime.swap import attach

ONE_ROW = torch.ones(1, 4)


def refused(reason: Reason, act: Callable[[], Any]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


def test_the_implementation_runs_inside_the_contract(net: Any, swap_of: Any) -> None:
    handle = attach(net, [swap_of()])
    expected = net.second(ONE_ROW * 2)
    for _ in range(3):
        assert torch.equal(net(ONE_ROW), expected)
    report = handle.report()["first.seam"]
    assert (report.calls, report.dispatched, report.fallbacks) == (3, 0, 0)
    assert report.form == "decode"
    assert handle.summary()["clean"] is True
    handle.raise_unless_clean()


def test_the_input_may_be_given_by_name(net: Any, swap_of: Any) -> None:
    handle = attach(net, [swap_of()])
    assert torch.equal(net.first(input=ONE_ROW), ONE_ROW * 2)
    assert handle.report()["first.seam"].calls == 1


def test_rows_outside_the_band_dispatch_to_the_host(net: Any, swap_of: Any) -> None:
    many = torch.randn(3, 4)
    expected = net(many)
    handle = attach(net, [swap_of()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(STREAK_LIMIT + 1):
            assert torch.equal(net(many), expected)
    report = handle.report()["first.seam"]
    assert (report.calls, report.dispatched, report.fallbacks) == (0, STREAK_LIMIT + 1, 0)
    assert "rows 1 to 2 declared, 3 given" in str(report.last_reason)
    assert not report.restored
    assert handle.summary()["clean"] is False
    net(ONE_ROW)
    assert handle.summary()["clean"] is True


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (torch.ones(1, 4, dtype=torch.float64), "DTYPE"),
        (torch.ones(1, 4).to_sparse(), "LAYOUT"),
        (torch.ones(1, 4, device="meta"), "DEVICE"),
        (torch.ones(1, 5), "SHAPE"),
        (torch.tensor(1.0), "SHAPE"),
        ([1.0], "FORM"),
        (None, "FORM"),
    ],
)
def test_a_broken_contract_falls_back_and_says_why(
    net: Any, swap_of: Any, wrong: Any, reason: str
) -> None:
    class Anything(nn.Module):
        def forward(self, x: Any) -> str:
            return "host"

    net.first = Anything().eval()
    handle = attach(net, [swap_of()])
    with pytest.warns(UserWarning, match="the host runs instead"):
        assert net.first(wrong) == "host"
    report = handle.report()["first.seam"]
    assert (report.calls, report.fallbacks) == (0, 1)
    assert reason in str(report.last_reason)
    refused(Reason.FALLBACK, handle.raise_on_fallback)


def test_only_the_first_fallback_warns(net: Any, swap_of: Any) -> None:
    net.double()
    handle = attach(net, [swap_of()])
    wrong = ONE_ROW.double()
    with pytest.warns(UserWarning, match="host runs instead"):
        net(wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(wrong)
    assert handle.report()["first.seam"].fallbacks == 2


def test_a_streak_of_fallbacks_restores_the_host_for_good(net: Any, swap_of: Any) -> None:
    host = net.first.double()
    handle = attach(net, [swap_of()])
    right, wrong = ONE_ROW, ONE_ROW.double()
    with pytest.warns(UserWarning, match="host runs instead"):
        net.first(wrong)
    for _ in range(STREAK_LIMIT - 2):
        net.first(wrong)
    net.first(right)
    for _ in range(STREAK_LIMIT - 1):
        net.first(wrong)
    assert isinstance(net.first, Seat)
    seat = net.first
    seat(wrong)
    assert net.first is host
    assert torch.equal(seat(wrong), host(wrong))
    report = handle.report()["first.seam"]
    assert report.restored
    assert report.fallbacks == 2 * STREAK_LIMIT - 1
    assert handle.summary()["restored"] == ["first.seam"]


def test_raise_on_guard_fail_raises_the_reason_but_still_dispatches(net: Any, swap_of: Any) -> None:
    handle = attach(net, [swap_of()], on_guard_fail="raise")
    refused(Reason.DTYPE, lambda: net(ONE_ROW.double()))
    net(torch.ones(3, 4))
    assert handle.report()["first.seam"].dispatched == 1


def test_an_unknown_on_guard_fail_is_refused(net: Any, swap_of: Any) -> None:
    refused(Reason.CONFLICT, lambda: attach(net, [swap_of()], on_guard_fail="maybe"))
    assert not isinstance(net.first, Seat)


def test_eager_calls_are_outside_a_captured_place(net: Any, swap_of: Any) -> None:
    expected = net(ONE_ROW)
    handle = attach(net, [swap_of(place=Place.CAPTURED)])
    assert torch.equal(net(ONE_ROW), expected)
    report = handle.report()["first.seam"]
    assert (report.calls, report.dispatched, report.fallbacks) == (0, 1, 0)
    assert "outside the recorded form" in str(report.last_reason)


@pytest.mark.parametrize(
    ("rows", "rule", "width"),
    [((2, 1), RowRule.CAPACITY, 4), ((0, 1), RowRule.CAPACITY, 4), ((1, 2), RowRule.EXACT, 4),
     ((1, 1), RowRule.EXACT, 0)],
)  # fmt: skip
def test_contracts_that_nothing_fits_are_refused(rows: Any, rule: RowRule, width: int) -> None:
    device, dtype = torch.device("cpu"), torch.float32
    refused(Reason.CONFLICT, lambda: FormContract(device, dtype, width, rows, rule))


def test_the_width_of_a_seam_is_its_d_or_k() -> None:
    seam = Seam("s", "linear_proj@1", {}, {}, {"K": 7, "N": 3}, {})
    assert width_of(seam) == 7
    refused(Reason.BINDING, lambda: width_of(Seam("s", "x@1", {}, {}, {"N": 3}, {})))
