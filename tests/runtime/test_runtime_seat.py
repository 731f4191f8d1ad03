"""A seat: one thread, hooks once, and the members of one seam together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime.contract import BoundSeam, Seam
from flashrt_runtime.guard import FormContract
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.swap import Swap, attach

ONE_ROW = torch.ones(1, 4)


def in_thread(act: Callable[[], Any]) -> BaseException | None:
    caught: list[BaseException | None] = []

    def run() -> None:
        try:
            act()
            caught.append(None)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return caught[0]


def test_a_second_thread_is_refused_at_the_root_before_anything_runs(
    net: Any, swap_of: Any
) -> None:
    handle = attach(net, [swap_of("second")])
    net(ONE_ROW)
    ran: list[int] = []
    net.first.register_forward_hook(lambda *_: ran.append(1))
    error = in_thread(lambda: net(ONE_ROW))
    assert isinstance(error, Refusal)
    assert error.reason is Reason.THREAD
    assert not ran
    error = in_thread(lambda: net.second(ONE_ROW))
    assert isinstance(error, Refusal)
    assert error.reason is Reason.THREAD
    assert handle.report()["second.seam"].calls == 1


def test_hooks_on_a_seat_are_honoured_and_can_be_removed(net: Any, swap_of: Any) -> None:
    handle = attach(net, [swap_of()])
    net(ONE_ROW)
    seen: list[str] = []
    pre = net.first.register_forward_pre_hook(lambda m, a: seen.append("pre"))
    post = net.first.register_forward_hook(lambda m, a, out: out + 1)
    assert torch.equal(net.first(ONE_ROW), ONE_ROW * 2 + 1)
    assert seen == ["pre"]
    pre.remove()
    post.remove()
    for _ in range(2):
        assert torch.equal(net.first(ONE_ROW), ONE_ROW * 2)
    assert seen == ["pre"]
    assert handle.report()["first.seam"].calls == 4


def test_hooks_of_the_host_and_global_hooks_run_once(net: Any, swap_of: Any) -> None:
    seen: list[str] = []
    net.first.register_forward_hook(lambda *_: seen.append("host"))
    attach(net, [swap_of(), swap_of("second")])
    net.first(ONE_ROW)
    net.first(torch.ones(3, 4))
    assert seen == ["host", "host"]
    net.second(ONE_ROW)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: seen.append("all"))
    try:
        net.second(ONE_ROW)
    finally:
        handle.remove()
    assert seen.count("all") == 1


class Siblings(nn.Module):
    """Three linears over one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of the three."""
        return self.q(x) + self.k(x) + self.v(x)


class Constant(nn.Module):
    """Says which member's body ran."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Its constant."""
        return torch.full_like(x, self.value)


def siblings_handle(model: nn.Module) -> Any:
    members = {"k": "k", "q": "q", "v": "v"}  # as canonical JSON orders them
    record = Seam("qkv", "qkv_pack@1", members, {}, {"D": 4}, {}).record()
    seam = Seam.from_record(record)
    bodies = {"q": Constant(1), "k": Constant(10), "v": Constant(100)}
    contract = FormContract(torch.device("cpu"), torch.float32, 4, (1, 2))
    return attach(model, [Swap(seam, BoundSeam(bodies, "flashrt::x", 0), contract, "b", "f")])


def test_members_run_together_and_count_once() -> None:
    model = Siblings().eval().requires_grad_(False)
    handle = siblings_handle(model)
    for _ in range(2):
        assert model(ONE_ROW)[0, 0] == 111
    assert handle.report()["qkv"].calls == 2
    many = torch.ones(3, 4)
    model(many)
    report = handle.report()["qkv"]
    assert (report.calls, report.dispatched, report.fallbacks) == (2, 1, 0)
    handle.detach()
    assert [type(m) for m in (model.q, model.k, model.v)] == [nn.Linear] * 3


def test_a_member_out_of_turn_or_with_another_tensor_falls_back() -> None:
    model = Siblings().eval().requires_grad_(False)
    host = model.k
    expected = host(ONE_ROW)
    handle = siblings_handle(model)
    with pytest.warns(UserWarning, match="host runs instead"):
        assert torch.equal(model.k(ONE_ROW), expected)
    assert model.q(ONE_ROW)[0, 0] == 1
    assert torch.equal(model.k(ONE_ROW.clone()), expected)
    assert model.k(ONE_ROW)[0, 0] == 10
    assert torch.equal(model.k(ONE_ROW), expected)
    report = handle.report()["qkv"]
    assert (report.calls, report.fallbacks) == (1, 3)
    assert "SHARED_INPUT" in str(report.last_reason)
