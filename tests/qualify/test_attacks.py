"""Arms that cheat are raced for real; each ends unknown under the name of what it did."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from flashrt.gate.integrity import REQUIRED, Attack
from flashrt.gate.thresholds import declare
from flashrt.qualify import timing
from flashrt.qualify.deferred import looks
from flashrt.qualify.feed import Feed, logits_of
from flashrt.qualify.integrity import Looked, look_for_attacks
from flashrt.qualify.job import Job
from flashrt.qualify.request import Budget, CellRequest
from flashrt.qualify.run import qualify
from flashrt.qualify.solo import read_fragment
from flashrt.qualify.timing import Raced, race_stages
from flashrt.qualify.watch import Answered, Watch, answers_of
from flashrt.qualify.witness import HeldClock
from flashrt.race.load import ProcStat, Reading
from flashrt.receipt.spec_gates import catalog_gates
from flashrt_runtime.capture import Stage, capture
from flashrt_runtime.reason import Because, Reason

ROWS, CONTEXT = 2, 64
DECODE = CellRequest.parse("fp16_weight@decode")


def _arms() -> ModuleType:
    path = Path(__file__).parent / "attack_arms.py"
    spec = importlib.util.spec_from_file_location("attack_arms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def the_clock_comes_back() -> Iterator[None]:
    genuine, threads = time.perf_counter_ns, torch.get_num_threads()
    yield
    time.perf_counter_ns = genuine
    torch.set_num_threads(threads)


@pytest.fixture
def arms() -> ModuleType:
    """Fresh arms: one of them spoils what the host reads."""
    return _arms()


def stage_of(step: Any) -> Stage:
    windows = {
        "token_ids": torch.zeros((1, ROWS), dtype=torch.int64),
        "positions": torch.arange(ROWS),
    }
    return capture(step, windows, form=("eager",))


FRAMES = {
    "news#0": torch.tensor([5, 1, 9, 2, 7, 3, 5, 4, 9, 6, 8, 1]),
    "prose#0": torch.tensor([9, 8, 5, 6, 7, 7, 1, 2, 9, 3, 4, 4]),
}
JUDGED = sum(frame.numel() // ROWS for frame in FRAMES.values())


def measure(arms: ModuleType, step: Any) -> tuple[dict[str, Any], Raced]:
    """What a measuring process looks for around a race with this arm, and the race."""
    gates = catalog_gates("autoregressive_decode_pipeline", 1)
    declared = declare(gates).race_rule(600.0, budget_pairs=8)  # ends by pairs, never by time
    rule = replace(declared, block_s=0.02, spare_blocks=6, pauses=1)
    job = Job("host", "frames", (), {}, Budget(), {}, (), 0, 0)
    feed = Feed(FRAMES, ROWS, CONTEXT)
    host, treated = stage_of(arms.host), stage_of(step)
    own = looks(host, feed.turns)
    answered = []
    for stage in (host, treated):
        judged = {name: logits_of(stage, frame, ROWS) for name, frame in FRAMES.items()}
        answered.append(Answered(stage, answers_of(judged, ROWS)))
    null = race_stages(job, rule, feed, (answered[0], answered[0]), salt="null")
    raced = race_stages(job, rule, feed, (answered[0], answered[1]), salt="race")
    after = {name: logits_of(treated, frame, ROWS) for name, frame in FRAMES.items()}
    same = answers_of(after, ROWS) == answered[1].answers
    return look_for_attacks(Looked(own, treated, feed, (null, raced), same), []), raced


def test_an_honest_arm_passes_the_same_checks(arms, judged):
    seen, raced = measure(arms, arms.honest)
    assert seen["findings"] == []
    assert set(seen["looked_for"]) == REQUIRED
    assert raced.series["pairs"]
    assert judged(seen) == []


CHEATS = [
    ("no_op_replay", Attack.NO_OP_REPLAY, Reason.NEVER_CALLED, "no-op replay"),
    ("memoised_on_pointers", Attack.STALE_ANSWER, Reason.CONSTANT, "memoisation"),
    ("memoised_on_first_elements", Attack.STALE_ANSWER, Reason.CONSTANT, "memoisation"),
    ("first_calls_only", Attack.FIRST_CALLS, Reason.INTEGRITY, "correct only for the first calls"),
    ("wrong_while_timed", Attack.TIMED_OUTPUT, Reason.INTEGRITY, "not the one that was judged"),
    ("mutates_its_inputs", Attack.INPUT_MUTATION, Reason.INTEGRITY, "input mutation"),
    ("leaves_work_on_a_thread", Attack.THREAD_WORK, Reason.INTEGRITY, "work left on a thread"),
    ("patches_the_clock", Attack.PATCHED_CLOCK, Reason.INTEGRITY, "a patched clock"),
    ("narrows_the_host", Attack.HOST_CHANGED, Reason.INTEGRITY, "threads were"),
    ("sabotages_the_host", Attack.HOST_CHANGED, Reason.INTEGRITY, "host sabotage"),
]


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat[0])
def test_an_arm_that_cheats_is_unknown_and_named(arms, judged, cheat):
    name, attack, reason, words = cheat
    # Whoever counts its calls knows how many of them are judged.
    seen, _ = measure(arms, getattr(arms, name)(JUDGED))
    assert attack.label in {finding["attack"] for finding in seen["findings"]}
    because = [b for b in judged(seen) if b.reason is reason]
    assert any(words in b.detail for b in because), because
    assert all(b.subject.startswith("process 0") for b in because)


def test_an_arm_faster_than_the_roofline_is_implausible(run_of, fake):
    fake.ratio = 1e7  # 20 ms against 2 ns: less than the operations of its own cost function take
    (result,) = qualify(run_of(), (DECODE,), lambda text: None, fake)
    assert result.state == "unknown"
    assert {b.reason for b in result.because} == {Reason.IMPLAUSIBLE}
    assert all("the roofline allows" in b.detail for b in result.because)


def test_an_attack_that_was_not_looked_for_is_no_innocence(judged):
    seen = {"looked_for": sorted(REQUIRED - {"pointer_memo"}), "findings": []}
    (because,) = judged(seen)
    assert because.reason is Reason.INCOMPLETE
    assert "pointer_memo" in because.detail


def test_a_process_that_looked_for_nothing_is_incomplete(run_of, fake):
    def spoil(fragment: dict[str, Any]) -> None:
        if fragment["process"] == 1:
            del fragment["integrity"]

    fake.change = spoil
    (result,) = qualify(run_of(), (DECODE,), lambda text: None, fake)
    assert result.state == "unknown"
    assert [(b.reason, b.subject) for b in result.because] == [(Reason.INCOMPLETE, "integrity")]


def test_an_arm_whose_windows_are_not_followed_is_unknown(run_of, fake):
    refused = Because(Reason.UNCAPTURABLE, "a replay does not follow 'x'", "decode").record()

    def spoil(fragment: dict[str, Any]) -> None:
        if fragment["process"] == 2:
            empty: dict[str, Any] = {"windows": [], "held": [], "unchanged": []}
            fragment["window_check"][1] |= {**empty, "refused": refused}

    fake.change = spoil
    (result,) = qualify(run_of(), (DECODE,), lambda text: None, fake)
    assert result.state == "unknown"
    assert result.receipt["evidence"]["window_check"][5]["refused"] == refused
    assert [(b.reason, b.subject) for b in result.because] == [
        (Reason.UNCAPTURABLE, "process 2, windows of the treated arm")
    ]


class Virtual:
    """Time that only arms and hooks spend, so that whose time it was is exact."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0
        settle = Watch.settle

        def slow(watch: Watch) -> None:
            self.now += 3_000_000
            settle(watch)

        patch.setattr(Watch, "settle", slow)
        patch.setattr(HeldClock, "now_ns", lambda clock: self.now)
        patch.setattr(HeldClock, "sleep", lambda clock, seconds: None)
        patch.setattr(timing, "kernel_ns", lambda: self.now)
        patch.setattr(ProcStat, "read", lambda meter: Reading(self.now, 0.0, 0.0))

    def step(self, spent: int) -> Any:
        def run(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            self.now += spent
            return token_ids[..., None] * 1.0 + positions[None, :, None]

        return run


def test_hooks_set_up_and_overhead_are_in_neither_arm(monkeypatch):
    box = Virtual(monkeypatch)
    gates = catalog_gates("autoregressive_decode_pipeline", 1)
    job = Job("host", "frames", (), {}, Budget(), {}, (), 0, 0)
    arms = tuple(Answered(stage_of(box.step(ns)), {}) for ns in (30_000_000, 20_000_000))
    raced = race_stages(
        job, declare(gates).race_rule(1e6), Feed(FRAMES, ROWS, CONTEXT), arms, salt=""
    )
    assert raced.findings == ()
    pairs, repeat = raced.series["pairs"], raced.series["repeat"]
    assert {tuple(pair) for pair in pairs} == {(30_000_000, 20_000_000)}
    outside = raced.outside(bind_s=1.5)
    assert outside["bind"] == 1.5
    for seconds in outside["pre_hooks"].values():
        assert seconds >= 0.003 * len(pairs) * repeat
    whole = sum(map(sum, pairs)) * repeat / 1e9 + sum(outside["pre_hooks"].values())
    assert outside["host_overhead"] == pytest.approx(box.now / 1e9 - whole, abs=0.1)


def test_times_outside_the_samples_reach_the_receipt(run_of, fake):
    outside = {"bind": 0.5, "pre_hooks": {"host": 1.0, "treated": 2.0}, "host_overhead": 3.0}
    fake.change = lambda fragment: fragment.update(outside_s=outside)
    (result,) = qualify(run_of(), (DECODE,), lambda text: None, fake)
    runs = result.receipt["evidence"]["processes"]
    assert [run["outside_s"] for run in runs] == [outside] * 3
    assert [run["setup_s"] for run in runs] == [{"host": 1.0, "treated": 1.5}] * 3


def test_a_race_alone_is_not_decided_when_its_arm_cheated(prepared, fake):
    gates = declare(catalog_gates("autoregressive_decode_pipeline", 1))
    plans, rules = {DECODE.label: prepared.plan(DECODE)}, {DECODE.label: gates.record()}
    job = Job("host", "frames", (DECODE,), plans, Budget(), rules, prepared.held_out, 0, 1)
    fragment = fake.fragment(job, DECODE)
    assert read_fragment(fragment, gates).decided
    finding = {"attack": "kept_output", "subject": "a.seam", "detail": "flashrt::f did"}
    body = {"process": 1, "looked_for": sorted(REQUIRED), "findings": [finding]}
    seen = read_fragment({**fragment, "integrity": body}, gates)
    assert not seen.decided
    assert [(b.reason, b.subject) for b in seen.reasons] == [
        (Reason.INTEGRITY, "process 1, a.seam")
    ]
