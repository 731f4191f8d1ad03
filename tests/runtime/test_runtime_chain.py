"""A chain at run time: one producer, its readers, and no way to run a part of it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from flashrt_runtime import swap
from flashrt_runtime.contract import BoundSeam, Point, Seam
from flashrt_runtime.guard import FormContract, Place
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.seat import STREAK_LIMIT, Seat

WIRE, SCALE = torch.float8_e4m3fn, 0.125


class Emit(nn.Module):
    """Doubles, as the host does, and emits e4m3."""

    def forward(self, x):
        return (x * 2 / SCALE).to(WIRE)


class Read(nn.Module):
    """Takes the wire and adds one, as the host does."""

    def forward(self, x):
        assert x.dtype == WIRE
        return x.float() * SCALE + 1


class Doubles(nn.Module):
    def forward(self, x):
        return x * 2


class Adds(nn.Module):
    def forward(self, x):
        assert x.dtype == torch.float32, "no host can read the wire"
        return x + 1


class Chained(nn.Module):
    """``readers`` says which of a and b read what ``up`` returns."""

    def __init__(self):
        super().__init__()
        self.up, self.a, self.b = Doubles(), Adds(), Adds()
        self.readers = "ab"
        self.between = lambda y: y

    def forward(self, x):
        y = self.up(x)
        out = [getattr(self, name)(self.between(y)) for name in self.readers]
        return sum(out)


def seam(path):
    return Seam(path, "linear_proj@1", {"self": path}, {}, {"K": 4}, {"weight": "w"},
                {"x": Point(path, "input")})  # fmt: skip


def part(path, *, unit="up", scale=SCALE, place=Place.ANYWHERE):
    emits = path == "up"
    body = Emit() if emits else Read()
    contract = FormContract(
        torch.device("cpu"), torch.float32 if emits else WIRE, 4, (1, 3), place=place
    )
    link = swap.Link(unit, emits, scale, WIRE)
    bound = BoundSeam({"self": body}, "flashrt::x", 0)
    return swap.Swap(seam(path), bound, contract, "backend", "form", link)


def chain(**given):
    return [part(path, **given) for path in ("up", "a", "b")]


X = torch.tensor([[0.25, 0.5, 1.0, -2.0]])


@pytest.fixture
def model():
    return Chained().eval()


def counts(handle):
    return {
        name: (one.calls, one.dispatched, one.fallbacks) for name, one in handle.report().items()
    }


def test_a_call_runs_the_whole_chain(model):
    expected = model(X)
    handle = swap.attach(model, chain(), on_guard_fail="raise")
    assert torch.equal(model(X), expected)
    assert torch.equal(model(X), expected)
    assert counts(handle) == dict.fromkeys(("up", "a", "b"), (2, 0, 0))
    assert handle.summary()["clean"]
    assert handle.units == {"up": ("up", "a", "b")}


@pytest.mark.parametrize(
    ("rows", "place"), [(9, Place.ANYWHERE), (1, Place.CAPTURED)], ids=["rows", "place"]
)
def test_readers_follow_a_producer_that_runs_its_host(model, rows, place):
    x = torch.randn(rows, 4)
    expected = model(x)
    handle = swap.attach(model, chain(place=place), on_guard_fail="raise")
    assert torch.equal(model(x), expected)
    assert counts(handle) == dict.fromkeys(("up", "a", "b"), (0, 1, 0))


def test_a_producer_outside_its_contract_takes_its_readers_along(model):
    handle = swap.attach(model, chain())
    with pytest.warns(UserWarning, match="host runs instead"), pytest.raises(AssertionError):
        model(X.double())  # this host's readers take float32 alone
    assert handle.report()["up"].fallbacks == 1
    assert handle.report()["a"].dispatched == 1


def test_another_tensor_at_a_reader_is_a_fallback(model):
    handle = swap.attach(model, chain())
    model(X)
    with pytest.warns(UserWarning, match="another tensor"):
        assert torch.equal(model.a(X), X + 1)
    assert counts(handle)["a"] == (1, 0, 1)
    handle.detach()
    raising = swap.attach(model, chain(), on_guard_fail="raise")
    with pytest.raises(Refusal) as caught:
        model.a(X)
    assert caught.value.reason is Reason.SHARED_INPUT
    raising.detach()


@pytest.mark.parametrize("between", [lambda y: y.clone(), lambda y: y.view(y.shape)])
def test_the_wire_from_elsewhere_is_refused(model, between):
    swap.attach(model, chain())
    model.between = between
    with pytest.raises(Refusal) as caught:
        model(X)
    assert caught.value.reason is Reason.SHARED_INPUT
    assert "did not just emit" in str(caught.value)


def test_a_tensor_is_read_once(model):
    swap.attach(model, chain())
    model.readers = "aab"
    with pytest.raises(Refusal) as caught:
        model(X)
    assert caught.value.reason is Reason.SHARED_INPUT


def test_a_reader_that_missed_what_was_sent_is_not_clean(model):
    handle = swap.attach(model, chain())
    model(X)
    model.readers = "a"
    model(X)
    assert handle.summary()["unread"] == ["b"]
    assert not handle.summary()["clean"]
    with pytest.raises(Refusal) as caught:
        handle.raise_unless_clean()
    assert caught.value.reason is Reason.NEVER_CALLED
    with pytest.warns(UserWarning, match="did not read"):
        model(X)
    assert handle.report()["b"].fallbacks == 1


def test_an_interrupted_call_leaves_nothing_behind(model):
    expected = model(X)
    handle = swap.attach(model, chain())

    def stop(y):
        raise KeyboardInterrupt

    model.between = stop
    with pytest.raises(KeyboardInterrupt):
        model(X)
    model.between = lambda y: y
    with pytest.warns(UserWarning, match="did not read"):
        assert torch.equal(model(X), expected)
    assert handle.summary()["unread"] == []


def test_a_streak_of_fallbacks_gives_the_whole_chain_back(model):
    expected = model(X)
    handle = swap.attach(model, chain())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(STREAK_LIMIT):
            model.a(X)
    assert handle.summary()["restored"] == ["up", "a", "b"]
    assert not any(isinstance(module, Seat) for module in model.modules())
    assert torch.equal(model(X), expected)


def test_a_chain_that_leaves_while_something_is_on_the_wire_is_read_first(model):
    expected = model(X)
    handle = swap.attach(model, chain())
    done = []

    def leaving(y):
        if not done:
            done.append(handle.detach_unit("up"))
        return y

    model.between = leaving
    assert torch.equal(model(X), expected)
    assert torch.equal(model(X), expected)
    assert not any(isinstance(module, Seat) for module in model.modules())
    assert counts(handle)["b"][0] == 1


def test_a_unit_is_detached_whole_and_others_stay(model):
    alone = swap.Swap(
        seam("c"), BoundSeam({"self": Read()}, "flashrt::x", 0),
        FormContract(torch.device("cpu"), torch.float32, 4, (1, 3)), "backend", "form",
    )  # fmt: skip
    model.c = Adds().eval()
    handle = swap.attach(model, [*chain(), alone])
    assert handle.units == {"up": ("up", "a", "b"), "c": ("c",)}
    with pytest.raises(Refusal) as caught:
        handle.detach_unit("a")
    assert caught.value.reason is Reason.CONFLICT
    with pytest.raises(Refusal) as caught:
        handle.detach_unit("nothing")
    assert caught.value.reason is Reason.BINDING
    handle.detach_unit("up")
    handle.detach_unit("up")
    assert [n for n, m in model.named_modules() if isinstance(m, Seat)] == ["c"]
    handle.detach()
    assert not handle.attached


@pytest.mark.parametrize(
    ("swaps", "reason"),
    [
        ([part("a"), part("b")], Reason.BINDING),
        ([part("up")], Reason.BINDING),
        ([part("up"), part("a", unit="other"), part("b")], Reason.BINDING),
        ([part("up"), part("a", scale=SCALE * 2), part("b")], Reason.CONFLICT),
    ],
    ids=["no producer", "no reader", "two chains", "two scales"],
)
def test_a_chain_that_is_none_changes_nothing(model, swaps, reason):
    with pytest.raises(Refusal) as caught:
        swap.attach(model, swaps)
    assert caught.value.reason is reason
    assert not any(isinstance(module, Seat) for module in model.modules())
