"""Attach is whole or nothing, guards and counts every call, and detach gives the host back."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime import swap as swapping
from flashrt_runtime.contract import BoundSeam, Seam
from flashrt_runtime.guard import FormContract, Place, RowRule, width_of
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.seat import STREAK_LIMIT, Seat
from flashrt_runtime.swap import Swap, attach

ONE_ROW = torch.ones(1, 4)


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything that detach must restore: objects, attributes, order, bytes."""
    return {
        path: (id(module), list(module.__dict__), dict(module._forward_pre_hooks))
        for path, module in model.named_modules()
    }


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


def test_detach_restores_the_same_objects(net: Any, swap_of: Any) -> None:
    before, keys = snapshot(net), list(net.state_dict())
    output = net(ONE_ROW)
    handle = attach(net, [swap_of(), swap_of("second")])
    assert not torch.equal(net(ONE_ROW), output)
    assert handle.attached
    handle.detach()
    handle.detach()
    assert not handle.attached
    assert snapshot(net) == before
    assert list(net.state_dict()) == keys
    assert torch.equal(net(ONE_ROW), output)


def test_the_state_dict_is_the_hosts_while_attached(net: Any, swap_of: Any) -> None:
    whole, part = net.state_dict(), net.first.state_dict(prefix="first.")
    names = [name for name, _ in net.named_parameters()]
    modules = [path for path, _ in net.named_modules()]
    attach(net, [swap_of()])
    assert list(net.state_dict()) == list(whole)
    assert all(torch.equal(value, whole[key]) for key, value in net.state_dict().items())
    assert list(net.first.state_dict(prefix="first.")) == list(part)
    assert net.state_dict()._metadata == whole._metadata
    assert [name for name, _ in net.named_parameters()] == names
    assert [path for path, _ in net.named_modules()] == modules
    assert net.first.in_features == 4
    assert net.first.weight is whole_weight(net)


def whole_weight(net: Any) -> Any:
    return dict(net.named_parameters())["first.weight"]


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_hold_the_host(net: Any, swap_of: Any, how: str) -> None:
    expected = net(ONE_ROW)
    plain = list(net.__dict__)
    attach(net, [swap_of()])
    copied = copy.deepcopy(net) if how == "deepcopy" else pickle.loads(pickle.dumps(net))
    assert type(copied.first) is nn.Linear
    assert list(copied.__dict__) == plain
    assert torch.equal(copied(ONE_ROW), expected)
    copied.train()
    assert copied.training


@pytest.mark.parametrize(
    ("reason", "act"),
    [
        (Reason.TRAINING, lambda m: m.train()),
        (Reason.TRAINING, lambda m: m.first.train()),
        (Reason.MIGRATION, lambda m: m.to(torch.float64)),
        (Reason.MIGRATION, lambda m: m.half()),
        (Reason.MIGRATION, lambda m: m.cuda()),
        (Reason.MIGRATION, lambda m: m.first.bfloat16()),
        (Reason.MIGRATION, lambda m: m.second.double()),
        (Reason.LOAD_STATE, lambda m: m.load_state_dict(m.state_dict())),
        (Reason.LOAD_STATE, lambda m: m.first.load_state_dict({})),
    ],
)
def test_mutations_are_refused_whole(
    net: Any, swap_of: Any, reason: Reason, act: Callable[[Any], Any]
) -> None:
    bytes_before = {key: value.clone() for key, value in net.state_dict().items()}
    handle = attach(net, [swap_of("second")])
    refused(reason, lambda: act(net))
    assert not net.training
    for key, value in net.state_dict().items():
        assert value.dtype == bytes_before[key].dtype
        assert torch.equal(value, bytes_before[key])
    assert net.eval() is net
    handle.detach()
    assert net.train().training


def test_training_hosts_are_refused(net: Any, swap_of: Any) -> None:
    net.second.train()
    refusal = refused(Reason.TRAINING, lambda: attach(net, [swap_of()]))
    assert refusal.subject == "second"
    assert type(net.first) is nn.Linear


def test_attaching_twice_is_refused(net: Any, swap_of: Any) -> None:
    attach(net, [swap_of()])
    refused(Reason.CONFLICT, lambda: attach(net, [swap_of("second")]))
    refused(Reason.CONFLICT, lambda: attach(net.second, []))
    assert type(net.second) is nn.Linear


@pytest.mark.parametrize(
    ("path", "reason"),
    [("absent", Reason.BINDING), ("", Reason.BINDING), ("first", Reason.CONFLICT)],
)
def test_bad_swaps_are_refused_and_nothing_is_attached(
    net: Any, swap_of: Any, path: str, reason: Reason
) -> None:
    before = snapshot(net)
    refused(reason, lambda: attach(net, [swap_of("first"), swap_of(path)]))
    assert snapshot(net) == before


def test_a_module_of_two_paths_is_refused(net: Any, swap_of: Any) -> None:
    net.second = net.first
    refused(Reason.TIED, lambda: attach(net, [swap_of()]))


def test_nested_seams_are_refused(net: Any, swap_of: Any) -> None:
    outer = nn.ModuleDict({"inner": net}).eval()
    refused(Reason.CONFLICT, lambda: attach(outer, [swap_of("inner"), swap_of("inner.first")]))


def test_bodies_must_be_the_members(net: Any, swap_of: Any) -> None:
    one = swap_of()
    bodies: Any
    for bodies in ({"other": one.bound.bodies["self"]}, {"self": "no module"}):
        broken = Swap(one.seam, BoundSeam(bodies, "flashrt::x", 0), one.contract, "b", "f")
        refused(Reason.BINDING, partial(attach, net, [broken]))


def test_a_failure_while_attaching_restores_everything(
    net: Any, swap_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flashrt_runtime import handle as handling

    before = snapshot(net)
    put = handling._Place.put

    def fail(self: Any, module: Any) -> None:
        if self.name == "second" and isinstance(module, Seat):
            raise MemoryError
        put(self, module)

    monkeypatch.setattr(handling._Place, "put", fail)
    with pytest.raises(MemoryError):
        attach(net, [swap_of(), swap_of("second")])
    assert snapshot(net) == before


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


def test_zero_calls_are_not_clean(net: Any, swap_of: Any) -> None:
    handle = attach(net, [swap_of()])
    assert handle.summary()["never_called"] == ["first.seam"]
    refused(Reason.NEVER_CALLED, handle.raise_unless_clean)
    handle.raise_on_fallback()
    handle.detach()
    refused(Reason.NEVER_CALLED, attach(net, []).raise_unless_clean)


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


def test_the_handle_is_named_beside_attach() -> None:
    assert swapping.Handle.__name__ == "Handle"
    with pytest.raises(AttributeError):
        _ = swapping.absent
