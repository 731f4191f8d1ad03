"""Work that an arm leaves behind when it returns: on a thread, or on a side stream."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashrt.gate.integrity import Attack, Finding
from flashrt.qualify.controls import tensor_digest
from flashrt.qualify.feed import Turn, logits
from flashrt.qualify.witness import HeldClock

if TYPE_CHECKING:
    from flashrt_runtime.capture import Stage

PAUSE_S = 0.1
TRIES = 3
BUSY_SHARE = 0.25
STREAM_NS = 200_000
_process_s, _thread_s = time.process_time, time.thread_time


@dataclass(frozen=True)
class Left:
    """What one replay left behind.

    ``late``: its output changed after it had returned. ``threads``: threads that it started and
    that were alive when it returned. ``others_s``: CPU seconds that this process's other threads
    used while nobody was calling. ``stream_ns``: how long the device went on after the arm's own
    stream was done.
    """

    late: bool
    threads: int
    others_s: float
    stream_ns: int


def _threads() -> set[int]:
    """Ids of this process's threads, Python's and others, where the kernel lists them."""
    found = {thread.native_id or 0 for thread in threading.enumerate()}
    with suppress(OSError):
        found |= {int(name) for name in os.listdir("/proc/self/task")}
    return found


def _others_s() -> float:
    """CPU seconds of this process's threads but the calling one."""
    return _process_s() - _thread_s()


def look(stage: Stage, turn: Turn) -> Left:
    """Replay one step, once, and see what goes on before it is called and after it returned."""
    clock = HeldClock()
    before = _threads()
    turn.load(stage)
    used = -_others_s()
    clock.sleep(PAUSE_S)  # an arm that watches its windows works now
    used += _others_s()
    output = logits(stage.replay())
    first = output.clone()  # in the order of the arm's own stream, where it has one
    stream_ns = _beyond_own_stream(output, clock)
    threads = len(_threads() - before)
    used -= _others_s()
    clock.sleep(PAUSE_S)
    used += _others_s()
    late = tensor_digest(output) != tensor_digest(first)
    return Left(late, threads, used, stream_ns)


def _beyond_own_stream(output: object, clock: HeldClock) -> int:
    """Nanoseconds from the end of the current stream to the end of every stream of the device."""
    import torch

    if not isinstance(output, torch.Tensor) or not output.is_cuda:
        return 0
    torch.cuda.current_stream(output.device).synchronize()
    started = clock.now_ns()
    torch.cuda.synchronize(output.device)
    return clock.now_ns() - started


def looks(stage: Stage, turns: Sequence[Turn]) -> list[Left]:
    """Three replays, looked at one by one."""
    return [look(stage, turns[i % len(turns)]) for i in range(TRIES)]


def deferred(own: Sequence[Left], treated: Stage, turns: Sequence[Turn]) -> list[Finding]:
    """Findings about the treated arm.

    ``own`` are :func:`looks` at the host from before any arm was built: what thread pools do by
    themselves. A thread that outlives its call counts when every try leaves one, CPU time when the
    least of the tries is far above the host's most: a pool that grows once or spins down is
    neither.
    """
    seen = looks(treated, turns)
    found = []
    late = sum(left.late for left in seen)
    if late:
        detail = f"its output changed after it had returned, in {late} of {TRIES} replays"
        found.append(Finding(Attack.THREAD_WORK, "treated", detail))
    if min(left.threads for left in seen) > 0:
        detail = f"every replay started a thread that outlived it, {seen[0].threads} in the first"
        found.append(Finding(Attack.THREAD_WORK, "treated", detail))
    excess = min(left.others_s for left in seen) - max(left.others_s for left in own)
    if excess > BUSY_SHARE * 2 * PAUSE_S:
        detail = f"other threads used {excess:.3f} s of CPU in {2 * PAUSE_S:g} s without a call"
        found.append(Finding(Attack.THREAD_WORK, "treated", detail))
    behind = min(left.stream_ns for left in seen) - max(left.stream_ns for left in own)
    if behind > STREAM_NS:
        detail = f"the device went on for {behind} ns after the arm's stream was done"
        found.append(Finding(Attack.SIDE_STREAM, "treated", detail))
    return found
