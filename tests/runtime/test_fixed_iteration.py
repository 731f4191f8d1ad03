"""A tensor-controlled while becomes init, K times step, readout: bit-exact or refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import flashrt
from flashrt_runtime.fixed_iteration.entry import record_entry
from flashrt_runtime.fixed_iteration.normalise import FixedIteration, Untouched, normalise
from flashrt_runtime.fixed_iteration.record import record
from flashrt_runtime.fixed_iteration.values import changed, identical
from flashrt_runtime.reason import Reason, Refusal


def refused(reason: Reason, act: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


class Toy(nn.Module):
    """One linear of width 4 under a loop that ends when a tensor says so."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.body = body

    def sample(self, observation: torch.Tensor, noise: torch.Tensor | None = None) -> Any:
        """``[1, 4]`` from ``[1, 4]``."""
        return self.body(self, observation, noise)


def toy(body: Any) -> Toy:
    torch.manual_seed(0)
    return Toy(body).eval().requires_grad_(False)


def euler(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
    dt, time = torch.tensor(-0.25), torch.tensor(1.0)
    x = noise
    while time >= -dt / 2:
        x = x + dt * host.inner(x + observation * time)
        time += dt
    return {"actions": x.clamp(-1, 1), "steps": 4}


def of(body: Any, **given: torch.Tensor) -> FixedIteration | Untouched:
    host = toy(body)
    given = {"observation": torch.ones(1, 4), "noise": torch.full((1, 4), 0.5)} | given
    return normalise(record_entry(lambda: host.sample(**given), host, "toy"), host, "toy")


def test_the_loop_is_three_parts_and_the_windows_name_themselves() -> None:
    found = of(euler)
    assert isinstance(found, FixedIteration)
    assert (found.steps, found.noise, found.observation) == (4, ("noise",), ("observation",))
    assert [(p.name, p.repeat) for p in found.schedule.parts] == [
        ("init", 1),
        ("step", 4),
        ("readout", 1),
    ]
    given = {"observation": torch.rand(1, 4), "noise": torch.rand(1, 4)}
    assert identical(found.schedule(**given), toy(euler).sample(**given))


def test_writes_into_a_carried_value_leave_the_window_as_it_was() -> None:
    def body(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
        left = torch.tensor(3)
        while left > 0:
            noise += host.inner(observation)
            left -= 1
        return noise

    noise = torch.zeros(1, 4)
    found = of(body, noise=noise.clone())
    assert isinstance(found, FixedIteration)
    window = noise.clone()
    once = found.schedule(observation=torch.ones(1, 4), noise=window)
    assert torch.equal(window, noise)
    assert torch.equal(once, toy(body).sample(torch.ones(1, 4), noise.clone()))


def test_a_loop_that_asks_about_its_input_is_left_to_the_host() -> None:
    def body(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
        while noise.abs().max() > 0.1:
            noise = noise * 0.5
        return noise

    found = of(body)
    assert isinstance(found, Untouched)
    assert "values of its input" in found.because
    host = toy(body)
    given = (torch.ones(1, 4), torch.ones(1, 4))
    refusal = refused(
        Reason.UNCAPTURABLE, lambda: flashrt.capture(lambda: host.sample(*given), model=host)
    )
    assert "test_fixed_iteration.py" in refusal.what, "it is captured as written, and says why not"


def test_a_for_loop_follows_the_ordinary_path() -> None:
    def body(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
        for _ in range(2):
            noise = noise + host.inner(observation)
        return noise

    found = of(body)
    assert found == Untouched("sample runs no tensor-controlled while")


def _own_noise(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
    return euler(host, observation, torch.randn(1, 4))


def _schedule_by_step(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
    left, step = torch.tensor(3), 0
    while left > 0:
        step += 1
        noise = noise * step
        left -= 1
    return noise


def _grows(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
    left, seen = torch.tensor(3), [noise]
    while left > 0:
        seen.append(torch.cat(seen).sum(0, keepdim=True))
        left -= 1
    return seen[-1]


def _mean_of_all(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
    left, seen = torch.tensor(3), []
    while left > 0:
        noise = host.inner(noise)
        seen.append(noise)
        left -= 1
    return torch.stack(seen).mean(0)


def _from_nothing(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
    x, left = torch.zeros(1, 4), torch.tensor(3)
    while left > 0:
        x = host.inner(x + observation)
        left -= 1
    return x


def _writes_a_weight(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
    left = torch.tensor(3)
    while left > 0:
        host.inner.bias.add_(1)
        noise = host.inner(noise)
        left -= 1
    return noise


OUTSIDE = torch.full((1, 4), 2.0)


def _reads_a_global(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
    left = torch.tensor(3)
    while left > 0:
        noise = host.inner(noise * OUTSIDE)
        left -= 1
    return noise


def _shape_by_value(host: Toy, observation: torch.Tensor, noise: Any) -> Any:
    left = torch.tensor(3)
    while left > 0:
        noise = noise + noise[noise > 0].sum()
        left -= 1
    return noise


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (_own_noise, "draws its own noise"),
        (_schedule_by_step, "other arguments"),
        (_grows, "step"),
        (_mean_of_all, "reads a value of step"),
        (_from_nothing, "start from no window"),
        (_writes_a_weight, "writes into a tensor that the call did not make"),
        (_reads_a_global, "that is no argument"),
        (_shape_by_value, "shape that depends on the input's values"),
    ],
)
def test_a_fixed_loop_that_cannot_be_normalised_is_refused(body: Any, told: str) -> None:
    assert told in refused(Reason.UNCAPTURABLE, lambda: of(body)).what


def test_a_schedule_that_is_not_bit_exact_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from flashrt_runtime.fixed_iteration import normalise as module

    def off_by_a_bit(entry: Any, windows: Any, model: Any, name: str) -> Any:
        made = record(entry, windows, model, name)
        assert made is not None
        for node in made.graph.graph.nodes:
            if node.target is torch.ops.aten.clamp.default:
                node.args = (node.args[0], -1, 0.25)
        return made

    monkeypatch.setattr(module, "record", off_by_a_bit)
    assert "not bit-exact" in refused(Reason.UNCAPTURABLE, lambda: of(euler)).what


def test_an_entry_is_one_call_with_named_tensors() -> None:
    host = toy(euler)
    noise = torch.ones(1, 4)

    def twice() -> None:
        host.sample(noise, noise)
        host.sample(noise, noise)

    assert "2 times" in refused(Reason.FORM, lambda: record_entry(twice, host, "toy")).what
    assert "0 times" in refused(Reason.FORM, lambda: record_entry(dict, host, "toy")).what
    assert "sample" not in vars(host), "the wrappers are gone"
    entry = record_entry(lambda: host.sample(noise, noise=noise), host, "toy")
    assert (entry.name, list(entry.windows)) == ("sample", ["observation", "noise"])
    refused(Reason.FORM, lambda: flashrt.capture(lambda: host.sample(noise, noise)))
    host.train()
    refused(Reason.TRAINING, lambda: flashrt.capture(lambda: host.sample(noise, noise), model=host))


def test_other_values_stay_values_of_the_same_place() -> None:
    assert torch.equal(changed(torch.tensor([4, 1])), torch.tensor([1, 4]))
    assert torch.equal(changed(torch.tensor([4])), torch.tensor([3]))
    assert changed(torch.tensor([0])) is None
    assert changed(torch.ones(3, dtype=torch.bool)) is None
    assert not torch.equal(changed(torch.zeros(2)), torch.zeros(2))
    assert not identical([torch.ones(1)], (torch.ones(1),))
    assert not identical(torch.ones(1), torch.ones(1, dtype=torch.float64))
    assert identical(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
