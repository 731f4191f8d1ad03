"""Attach is whole or nothing, and detach gives the host back."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime import swap as swapping
from flashrt_runtime.contract import BoundSeam
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.seat import Seat
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


def test_zero_calls_are_not_clean(net: Any, swap_of: Any) -> None:
    handle = attach(net, [swap_of()])
    assert handle.summary()["never_called"] == ["first.seam"]
    refused(Reason.NEVER_CALLED, handle.raise_unless_clean)
    handle.raise_on_fallback()
    handle.detach()
    refused(Reason.NEVER_CALLED, attach(net, []).raise_unless_clean)


def test_the_handle_is_named_beside_attach() -> None:
    assert swapping.Handle.__name__ == "Handle"
    with pytest.raises(AttributeError):
        _ = swapping.absent
