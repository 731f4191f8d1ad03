"""What runs before each timed run, outside of its time: checks, poison, and the next inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from flashrt.gate.integrity import Attack, Finding
from flashrt.qualify.controls import tensor_digest
from flashrt.qualify.feed import Feed, Turn, logits
from flashrt.qualify.settings import altered, settings
from flashrt.qualify.witness import HeldClock, patched

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.capture import Stage

Key = tuple[str, int]
SETTLE_S = 0.02
SETTLES = 3
AUDIT_SHARE = 0.125


@dataclass(frozen=True)
class Answered:
    """A captured step and digests of what it answered when it was judged, by frame and step."""

    stage: Stage
    answers: Mapping[Key, str]


def answers_of(frames: Mapping[str, torch.Tensor], rows: int) -> dict[Key, str]:
    """Digests of judged logits ``[positions, vocabulary]``, step by step."""
    return {
        (name, step): tensor_digest(part)
        for name, judged in frames.items()
        for step, part in enumerate(judged.split(rows))
    }


@dataclass
class Tally:
    """What the timed runs of one arm were, in their order."""

    right: int = 0
    wrong: int = 0
    first_wrong: int = 0  # runs that were right before the first one that was not
    right_since: int = 0
    no_op: int = 0
    stale: int = 0
    late: int = 0
    wrote: int = 0

    def count(self, is_right: bool) -> None:
        """One more run."""
        if is_right:
            self.right += 1
            self.right_since += self.wrong > 0
        else:
            if self.wrong == 0:
                self.first_wrong = self.right
            self.wrong += 1


class Watch:
    """Feeds two arms and sees what each of their timed runs left behind.

    ``lottery`` draws which runs without a judged answer are run again, untimed, and compared: from
    the operating system, so that an arm cannot know them.
    """

    def __init__(
        self, feed: Feed, arms: Mapping[str, Answered], lottery: Random | None = None
    ) -> None:
        self.feed, self.arms = feed, arms
        self.clock = HeldClock()
        self.lottery = lottery or SystemRandom()
        self.hooks_ns = dict.fromkeys(arms, 0)
        self.tallies = {name: Tally() for name in arms}
        self.patched: set[str] = set()
        self.held = settings()
        self.altered: set[str] = set()
        self._turns: dict[int, int] = {}
        self._last: dict[str, object] = {}
        self._digest: dict[str, str] = {}
        self._known = {name: set(arm.answers.values()) for name, arm in arms.items()}
        self._pending: tuple[str, Turn] | None = None

    def arm(self, name: str) -> Callable[[], None]:
        """The timed run: one replay over the windows as they are, to the end of its device."""
        stage, last = self.arms[name].stage, self._last
        drain = _drain(stage)

        def run() -> None:
            last[name] = stage.replay()
            drain()

        return run

    def before(self, arm: str, sample: int) -> None:
        """See to the run that is over, then write the inputs of the next one, at the very end."""
        started = self.clock.now_ns()
        self.settle()
        stage = self.arms[arm].stage
        index = self._turns.get(id(stage), 0)
        self._turns[id(stage)] = index + 1
        turn = self.feed.turn(index)
        self._pending = arm, turn
        turn.load(stage)
        self.hooks_ns[arm] += self.clock.now_ns() - started

    def settle(self) -> None:
        """Check the last timed run's output and windows, and poison the output."""
        if self._pending is None:
            return
        (arm, turn), self._pending = self._pending, None
        if arm not in self._last:  # interrupted before it returned
            return
        stage, tally = self.arms[arm].stage, self.tallies[arm]
        output = logits(self._last[arm])[0]
        digest = tensor_digest(output)
        self.patched.update(patched())
        self.altered.update(altered(self.held))
        if not turn.intact(stage):
            tally.wrote += 1
        else:
            expected = self._expected(arm, turn, digest)
            if expected is not None:
                tally.count(digest == expected)
                if digest != expected:
                    self._explain(arm, tally, output, digest)
        self._digest[arm] = digest
        output.fill_(math.nan)  # a replay that writes nothing returns this

    def _expected(self, arm: str, turn: Turn, digest: str) -> str | None:
        """The digest that parity judged; far from there that of an untimed replay, at times.

        An answer that was seen before is always looked at again.
        """
        known = self.arms[arm].answers.get(turn.judged) if turn.judged else None
        seen = digest in self._known[arm] or digest == self._digest.get(arm)
        if known is None and (seen or self.lottery.random() < AUDIT_SHARE):
            return "" if seen else tensor_digest(logits(self.arms[arm].stage.replay())[0])
        return known

    def _explain(self, arm: str, tally: Tally, output: torch.Tensor, digest: str) -> None:
        if bool(output.isnan().any()):
            tally.no_op += 1
        elif digest in self._known[arm] or digest == self._digest.get(arm):
            tally.stale += 1
        elif tally.wrong <= SETTLES:
            self.clock.sleep(SETTLE_S)
            tally.late += tensor_digest(output) != digest

    def findings(self) -> list[Finding]:
        """What was seen, once the race is over and :meth:`settle` was called."""
        found = [
            Finding(Attack.PATCHED_CLOCK, "race", f"{name} was replaced by something else")
            for name in sorted(self.patched)
        ]
        found += [Finding(Attack.HOST_CHANGED, "race", what) for what in sorted(self.altered)]
        stages = {id(arm.stage) for arm in self.arms.values()}
        for place, (name, tally) in enumerate(self.tallies.items()):
            is_host = place == 0 and len(stages) > 1
            found += _host(name, tally) if is_host else _treated(name, tally)
        return found


def _host(name: str, tally: Tally) -> list[Finding]:
    if not tally.wrong and not tally.wrote:
        return []
    detail = f"{tally.wrong} of {tally.wrong + tally.right} checked runs, after {tally.first_wrong}"
    return [Finding(Attack.HOST_CHANGED, name, detail)]


def _treated(name: str, tally: Tally) -> list[Finding]:
    found = []
    checked = tally.wrong + tally.right
    for count, attack in (
        (tally.wrote, Attack.INPUT_MUTATION),
        (tally.no_op, Attack.NO_OP_REPLAY),
        (tally.stale, Attack.STALE_ANSWER),
        (tally.late, Attack.THREAD_WORK),
    ):
        if count:
            found.append(Finding(attack, name, f"{count} of {checked + tally.wrote} checked runs"))
    if tally.wrong and tally.first_wrong and not tally.right_since:
        detail = f"right for its first {tally.first_wrong} checked runs, for none of {tally.wrong}"
        found.append(Finding(Attack.FIRST_CALLS, name, f"{detail} after them"))
    elif tally.wrong and not found:
        detail = f"{tally.wrong} of {checked} checked runs differ from what the same step answers"
        found.append(Finding(Attack.TIMED_OUTPUT, name, detail))
    return found


def _drain(stage: Stage) -> Callable[[], None]:
    """What ends a timed run: nothing on a CPU; on a GPU all of its streams, side streams too."""
    device = next(iter(stage.windows.values())).device
    if device.type != "cuda":
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)
