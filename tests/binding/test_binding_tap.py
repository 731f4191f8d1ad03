"""Taps and steps by themselves: what is seen, in which call, and what a host must not notice."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from flashrt.binding.address import Address, Capture, Step
from flashrt.binding.callee import replaced
from flashrt.binding.model import Held
from flashrt.binding.shaping import shaped, slot_shape
from flashrt.binding.tap import Taps


class Core:
    """A callable that is no module, as an attention processor is."""

    backend = "plain"

    def __call__(self, x: torch.Tensor, gain: float = 2.0) -> torch.Tensor:
        return x * gain


class Attention(torch.nn.Module):
    """Runs its core, then two attentions, and writes its input in place afterwards."""

    heads = 2

    def __init__(self) -> None:
        super().__init__()
        self.core = Core()
        self.inner = torch.nn.Identity()
        self.seen: list[Any] = []

    def forward(self, hidden: torch.Tensor, *, cache: Any = None, **rest: Any) -> torch.Tensor:
        self.seen = [
            isinstance(self.core, Core),
            [*inspect.signature(self.core.__call__).parameters],
        ]
        x = self.inner(self.core(hidden, gain=3.0))
        for _ in range(2):
            x = torch.nn.functional.scaled_dot_product_attention(x, x, x + 1)
        hidden.zero_()
        return x


def watched(*addresses: Address, calls: int = 1) -> tuple[Attention, Taps]:
    model = Attention()
    taps = Taps(dict(model.named_modules()))
    for address in addresses:
        taps.want(address, address.module)
    with taps.watching():
        for k in range(calls):
            model(torch.full((1, 2, 3), float(k + 1)), scale=torch.tensor(7.0))
    return model, taps


def test_the_first_call_is_kept_as_it_was_when_it_was_seen() -> None:
    hidden, rest = Address("", Capture.INPUT, "hidden"), Address("", Capture.INPUT, "scale")
    none, missing = Address("", Capture.INPUT, "cache"), Address("", Capture.INPUT, "nothing")
    _, taps = watched(hidden, rest, none, missing, calls=2)
    assert torch.equal(taps.get(hidden, ""), torch.ones(1, 2, 3))
    assert taps.get(rest, "") == 7.0
    assert taps.get(none, "") is None
    with pytest.raises(LookupError, match="takes no nothing"):
        taps.get(missing, "")


def test_each_attention_of_a_run_has_its_number() -> None:
    first, second = (Address("", Capture.SDPA, "query", nth=n) for n in (0, 1))
    third = Address("", Capture.SDPA, "output", nth=2)
    _, taps = watched(first, second, third)
    assert torch.equal(taps.get(first, ""), torch.full((1, 2, 3), 3.0))
    assert torch.equal(taps.get(second, ""), torch.full((1, 2, 3), 4.0))
    with pytest.raises(LookupError, match="after the first 2"):
        taps.get(third, "")


def test_a_callable_is_wrapped_and_the_host_does_not_notice() -> None:
    given, back = (Address("", Capture.CALL, name, "core") for name in ("gain", "output"))
    model, taps = watched(given, back)
    assert taps.get(given, "") == 3.0
    assert torch.equal(taps.get(back, ""), torch.full((1, 2, 3), 3.0))
    assert model.seen == [True, ["x", "gain"]]
    assert type(model.core) is Core
    inner = Address("", Capture.CALL, "output", "inner")
    assert torch.equal(watched(inner)[1].get(inner, ""), torch.full((1, 2, 3), 3.0))


def test_a_callable_comes_back_when_the_host_fails() -> None:
    model = Attention()

    def fail() -> None:
        with replaced(model, "core", lambda f, a, k: f(*a, **k)):
            assert model.core.backend == "plain"
            assert type(model.core) is not Core
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert type(model.core) is Core
    with replaced(model, "extra_repr", lambda *_: "wrapped"):
        assert model.extra_repr() == "wrapped"
    assert "extra_repr" not in vars(model)


STEPS: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({"item": 1}, (2, 6, 4)),
    ({"axes": [2, 0, 1]}, (4, 2, 6)),
    ({"chunk": [3, 1, 2]}, (2, 2, 4)),
    ({"narrow": [1, 2, "heads"]}, (2, 2, 4)),
    ({"unflatten": [1, "heads"]}, (2, 2, 3, 4)),
    ({"unflatten": [1, -1, "heads"]}, (2, 3, 2, 4)),
    ({"flatten": [0, 1]}, (12, 4)),
    ({"unsqueeze": 0}, (1, 2, 6, 4)),
    ({"squeeze": 0}, (2, 6, 4)),
    ({"add": "b.{i}"}, (2, 6, 4)),
    ({"minus": "b.{i}"}, (2, 6, 4)),
    ({"plus": {"module": "m", "capture": "output"}}, (2, 6, 4)),
]


@pytest.mark.parametrize(("entry", "shape"), STEPS, ids=str)
def test_a_step_makes_the_specs_shape(entry: dict[str, Any], shape: tuple[int, ...]) -> None:
    x = torch.randn(2, 6, 4)
    value: Any = (None, x) if "item" in entry else x
    step = Step.of(entry)
    assert step.record() == entry
    got = shaped(
        value, (step,), {"b.3": torch.ones(4)}, Attention(), 3, look=lambda _: torch.ones(4)
    )
    assert tuple(got.shape) == shape
    signs = {"add": 1.0, "plus": 1.0, "minus": -1.0}
    if step.op in signs:
        assert torch.equal(got, x + signs[step.op])


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (torch.ones(2), {"item": 5}, "then[0] item 5 does not fit"),
    (None, {"axes": [0]}, "then[0] axes"),
    (torch.ones(5), {"unflatten": [0, 2]}, "then[0] unflatten"),
    (torch.ones(2), {"add": "nowhere"}, "then[0] add nowhere"),
    ((torch.ones(2),), {"item": slice(0, 1)}, "a tuple is there and no tensor"),
]


@pytest.mark.parametrize(("value", "entry", "words"), WRONG)
def test_a_step_that_does_not_fit_is_named(value: Any, entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        shaped(value, (Step.of(entry),), {}, Attention(), -1, look=lambda _: torch.ones(1))
    assert words in str(caught.value)


def test_a_flat_kernel_is_a_kernel_of_depth_one() -> None:
    assert slot_shape(Held("w", "conv_out_in_h_w"), (8, 3, 4, 4)) == (8, 3, 1, 4, 4)
    assert slot_shape(Held("w", "conv_out_in_t_h_w"), (8, 3, 2, 4, 4)) == (8, 3, 2, 4, 4)
