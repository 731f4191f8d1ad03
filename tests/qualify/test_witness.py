"""A clock that patching Python does not reach, and work that goes on when nobody calls."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from flashrt.gate.integrity import Attack
from flashrt.qualify import deferred as left
from flashrt.qualify.deferred import Left, deferred, looks
from flashrt.qualify.feed import Turn
from flashrt.qualify.witness import HELD, HeldClock, clock_findings, kernel_ns, patched
from flashrt_runtime.capture import capture

TURN = Turn(torch.tensor([[3]]), torch.tensor([0]), None)


def test_nothing_is_patched_and_two_clocks_agree():
    assert patched() == []
    held, machine = HeldClock().now_ns(), kernel_ns()
    HeldClock().sleep(0.01)
    held, machine = HeldClock().now_ns() - held, kernel_ns() - machine
    assert held >= 10_000_000
    assert clock_findings(held, machine, "race") == []


@pytest.mark.parametrize("name", sorted(HELD))
def test_a_patched_clock_is_named_and_does_not_reach_the_race(monkeypatch, name):
    before = HeldClock().now_ns()
    monkeypatch.setattr(time, name, lambda *args: 0)
    assert patched() == [f"time.{name}"]
    assert HeldClock().now_ns() >= before > 0
    (finding,) = clock_findings(1, 1, "race")
    assert finding.attack is Attack.PATCHED_CLOCK
    assert f"time.{name}" in finding.detail


@pytest.mark.parametrize("held", [500_000_000, 2_000_000_000, float("nan")])
def test_a_race_of_another_length_than_the_machines_is_a_patched_clock(held):
    (finding,) = clock_findings(held, 1_000_000_000, "race")
    assert finding.attack is Attack.PATCHED_CLOCK
    assert "by the kernel's" in finding.detail
    assert clock_findings(1_005_000_000, 1_000_000_000, "race") == []


def stage_of(step):
    windows = {"token_ids": torch.zeros((1, 1), dtype=torch.int64), "positions": torch.arange(1)}
    return capture(step, windows, form=("eager",))


def honest(token_ids, positions):
    return token_ids[..., None] * torch.ones(4)


def test_an_honest_step_leaves_nothing_behind():
    assert deferred(looks(stage_of(honest), [TURN]), stage_of(honest), [TURN]) == []


def test_a_thread_that_outlives_every_call_is_seen_though_its_output_is_right():
    done = threading.Event()

    def step(token_ids, positions):
        threading.Thread(target=done.wait, daemon=True).start()
        return honest(token_ids, positions)

    found = deferred(looks(stage_of(honest), [TURN]), stage_of(step), [TURN])
    done.set()
    assert [finding.attack for finding in found] == [Attack.THREAD_WORK]
    assert "outlived" in found[0].detail


def test_a_thread_that_works_while_nobody_calls_is_seen():
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=watch, daemon=True)

    def step(token_ids, positions):
        if not thread.is_alive():
            thread.start()
        return honest(token_ids, positions)

    own = looks(stage_of(honest), [TURN])
    treated = stage_of(step)
    treated.replay()
    found = deferred(own, treated, [TURN])
    stop.set()
    thread.join()
    assert [finding.attack for finding in found] == [Attack.THREAD_WORK]
    assert "without a call" in found[0].detail


@pytest.mark.parametrize(
    ("seen", "attack", "words"),
    [
        (Left(True, 0, 0.0, 0), Attack.THREAD_WORK, "changed after it had returned"),
        (Left(False, 1, 0.0, 0), Attack.THREAD_WORK, "started a thread"),
        (Left(False, 0, 0.19, 0), Attack.THREAD_WORK, "without a call"),
        (Left(False, 0, 0.0, 900_000), Attack.SIDE_STREAM, "after the arm's stream was done"),
    ],
)
def test_what_is_left_behind_has_a_name(monkeypatch, seen, attack, words):
    nothing = Left(False, 0, 0.001, 1000)
    monkeypatch.setattr(left, "look", lambda stage, turn: seen if stage == "treated" else nothing)
    own = looks("host", [TURN])
    (finding,) = deferred(own, "treated", [TURN])
    assert finding.attack is attack
    assert words in finding.detail
    assert deferred(own, "another host", [TURN]) == []
