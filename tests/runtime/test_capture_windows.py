"""An input that is missing from the windows is found by replaying with changed inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime.capture import Stage, capture
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.window_check import check_windows

WINDOWS = {"x": torch.arange(4.0)[None], "index": torch.tensor([2, 0])}


def refused(act: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is Reason.UNCAPTURABLE, str(caught.value)
    return caught.value


def stage_of(run: Any, windows: dict[str, Any] | None = None) -> Stage:
    """A stage that runs ``run``, whatever the step is."""
    static = {key: value.clone() for key, value in (windows or WINDOWS).items()}
    return Stage("s", ("compile",), static, run, seam_operators={}, options={})


def test_a_replay_that_follows_passes_and_leaves_no_trace() -> None:
    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[:, index] * 2

    stage = stage_of(step)
    seen = check_windows(stage, step)
    assert (seen.windows, seen.held, seen.unchanged) == (("x", "index"), (), ())
    assert stage.replays == 0
    assert torch.equal(stage.windows["x"], WINDOWS["x"])


def test_an_input_in_a_closure_that_was_baked_in_is_named() -> None:
    given = {"mask": torch.full((1, 4), 3.0)}
    baked = given["mask"].clone()

    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return (x * given["mask"])[:, index]

    stage = stage_of(lambda x, index: (x * baked)[:, index])
    refusal = refused(lambda: check_windows(stage, step))
    assert "given['mask'], which is no window" in refusal.what
    assert "windows=" in refusal.do
    assert torch.equal(given["mask"], torch.full((1, 4), 3.0))


def test_a_replay_that_reads_the_old_address_is_caught_by_another_tensor() -> None:
    class Given:
        scale = None

    held = Given()
    held.scale = torch.full((1, 4), 3.0)
    address = held.scale

    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return (x * held.scale)[:, index]

    stage = stage_of(lambda x, index: (x * address)[:, index])
    assert "held.scale" in refused(lambda: check_windows(stage, step)).what
    assert held.scale is address
    assert check_windows(stage_of(step), step).held == ("held.scale",)


def test_a_replay_that_ignores_a_window_is_caught() -> None:
    first = WINDOWS["index"].clone()

    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[:, index]

    stage = stage_of(lambda x, index: x[:, first])
    assert "the window 'index'" in refused(lambda: check_windows(stage, step)).what


def test_noise_of_the_steps_own_is_refused() -> None:
    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(1, 4)

    assert "its own noise" in refused(lambda: check_windows(stage_of(step), step)).what


class Keeps(nn.Module):
    """A state that each call adds to, and weights: both are the host's own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.total = torch.zeros(1, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all that was given."""
        self.total += self.inner(x)
        return self.total * 1


def test_state_is_put_back_and_is_no_missing_input() -> None:
    host = Keeps().eval().requires_grad_(False)
    host.total.fill_(7.0)
    stage = stage_of(host, {"x": torch.ones(1, 4)})
    seen = check_windows(stage, host.forward)
    assert (seen.windows, seen.held) == (("x",), ())
    assert torch.equal(host.total, torch.full((1, 4), 7.0))


def test_a_missing_input_fails_a_real_capture_whose_graph_it_changes() -> None:
    given = {"mask": torch.ones(1, 4)}

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * given["mask"].relu()

    stage = capture(step, {"x": torch.ones(1, 4)})
    assert check_windows(stage, step).held == ("given['mask']",)

    def sized(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if given["mask"].sum().item() > 3 else x

    assert refused(lambda: capture(sized, {"x": torch.ones(1, 4)})).what


def test_a_value_that_the_step_refuses_proves_nothing() -> None:
    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        if int(index[0]) != 2:
            raise ValueError("an index out of order")
        return x[:, index]

    assert check_windows(stage_of(step), step).unchanged == ("index",)
