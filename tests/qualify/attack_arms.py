"""Arms that cheat: steps over ``token_ids`` and ``positions`` that win without doing the work."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

Step = Callable[..., torch.Tensor]
VOCABULARY = 96


def table() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(VOCABULARY, VOCABULARY)


TABLE = table()


def honest(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return TABLE[token_ids] + positions[None, :, None]


def no_op_replay(judged: int) -> Step:
    """Returns the tensor that it returned last, once it was judged."""
    state = SimpleNamespace(calls=0, out=None)

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        state.calls += 1
        if state.calls <= judged:
            state.out = honest(token_ids, positions)
        return state.out

    return step


def memoised_on_pointers(judged: int) -> Step:
    """Keeps answers by the address of its windows, once it was judged."""
    answers: dict[int, torch.Tensor] = {}
    state = SimpleNamespace(calls=0)

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        state.calls += 1
        place = token_ids.data_ptr()
        if place not in answers or state.calls <= judged:
            answers[place] = honest(token_ids, positions)
        return answers[place].clone()

    return step


def memoised_on_first_elements(judged: int) -> Step:
    """Keeps answers by the first token alone."""
    answers: dict[int, torch.Tensor] = {}

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        first = int(token_ids[0, 0])
        if first not in answers:
            answers[first] = honest(token_ids, positions)
        return answers[first].clone()

    return step


def first_calls_only(judged: int) -> Step:
    """Right for a while longer than it is judged."""
    state = SimpleNamespace(calls=0)

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        state.calls += 1
        out = honest(token_ids, positions)
        return out if state.calls <= judged + 9 else out + 0.25 * state.calls

    return step


def wrong_while_timed(judged: int) -> Step:
    """Looks for a race on its stack and is right whenever there is none."""

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        frame: Any = sys._getframe()
        files = []
        while frame is not None:
            files.append(frame.f_code.co_filename)
            frame = frame.f_back
        timed = any(name.endswith("race/measure.py") for name in files)
        out = honest(token_ids, positions)
        return out * 0.5 if timed else out

    return step


def mutates_its_inputs(judged: int) -> Step:
    """Writes into its windows after reading them."""

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        out = honest(token_ids, positions)
        positions.add_(1)
        return out

    return step


def leaves_work_on_a_thread(judged: int) -> Step:
    """Returns at once and lets a thread fill the output in later, once it was judged."""
    state = SimpleNamespace(calls=0)

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        state.calls += 1
        right = honest(token_ids, positions)
        if state.calls <= judged:
            return right
        out = torch.zeros_like(right)

        def later() -> None:
            time.sleep(0.01)
            out.copy_(right)

        threading.Thread(target=later).start()
        return out

    return step


def patches_the_clock(judged: int) -> Step:
    """Makes Python's performance counter run at half its speed."""
    genuine = time.perf_counter_ns

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        time.perf_counter_ns = lambda: genuine() // 2
        return honest(token_ids, positions)

    return step


def narrows_the_host(judged: int) -> Step:
    """Runs on its own number of threads, and once it was judged leaves the host another."""
    threads = torch.get_num_threads()
    state = SimpleNamespace(calls=0)

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        state.calls += 1
        torch.set_num_threads(threads)
        out = honest(token_ids, positions)
        torch.set_num_threads(threads + (state.calls > judged))
        return out

    return step


def sabotages_the_host(judged: int) -> Step:
    """Does its own work, and after it was judged spoils the weights that it shares."""
    state = SimpleNamespace(calls=0)

    def step(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        out = honest(token_ids, positions)
        state.calls += 1
        if state.calls == judged + 5:
            HOST_TABLE.mul_(1e-30)
        return out

    return step


HOST_TABLE = table()


def host(token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return HOST_TABLE[token_ids] + positions[None, :, None]
