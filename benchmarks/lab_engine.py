"""The lab: positions per second of its executors, events per second, and ten thousand requests.

Bar: a workload of 10,000 requests on the memoised engine takes minutes, and each request costs the
same memory at 1,000 as at 10,000. Positions are computed with one thread: the exact executor (one
position after the other, so that every split gives equal bits) beside the plain one (batched, so
that they differ), over a whole prompt and in decoding, one position a call over a cached state.
"""

from __future__ import annotations

import argparse
import os
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from interleave import Arm, Samples, Spread, interleave

from flashrt.lab.engine import Engine, Executor, MemoExecutor, ModelExecutor, Tally
from flashrt.lab.model import ExactExecutor, LoadedArtifact, PlainExecutor
from flashrt.lab.model import Executor as Model
from flashrt.lab.records import (
    ComputeServiceConfig,
    GenerationPolicy,
    InferenceRequest,
    KVCacheConfig,
    KVResidencySystemConfig,
    KVState,
    RequestArrival,
    RequestSchedulingConfig,
    StateTransferConfig,
    Workload,
)

KILOBYTE, MEGABYTE = 1e3, 1e6
PROMPTS = tuple(
    f"{who} asked {whom} what the {what} was for."
    for who in ("The mayor", "A nurse", "Her brother", "The clerk")
    for whom in ("the court", "a neighbour", "the captain")
    for what in ("meeting", "bridge", "second letter")
)


def system(position_bytes: int, active: int = 8) -> KVResidencySystemConfig:
    """Room on the device for some twenty prompts of a hundred positions, twice that on the host."""
    room = 2000 * position_bytes
    return KVResidencySystemConfig(
        scheduling=RequestSchedulingConfig(active),
        kv_cache=KVCacheConfig(room, 2 * room, "exact_prefix_lru"),
        transfer=StateTransferConfig(Fraction(2000), Fraction(5)),
        compute_service=ComputeServiceConfig(Fraction(20_000), Fraction(10_000)),
    )


def workload(requests: int, tokens: int) -> Workload[RequestArrival]:
    """Requests that arrive every 700/3 virtual us, with the prompts in turn."""
    policy = GenerationPolicy(tokens)
    asked = [InferenceRequest(text, policy) for text in PROMPTS]
    return Workload(
        tuple(
            RequestArrival(f"r{i:05d}", Fraction(700 * i, 3), asked[i % len(asked)])
            for i in range(requests)
        )
    )


@dataclass(frozen=True)
class Ran:
    """One workload that was run: what happened, and how long it took here."""

    requests: int
    events: int
    selections: int
    reused: int
    computed: int
    seconds: float
    peak: int = 0

    @property
    def per_request(self) -> float:
        """Peak of what was allocated during the run, in bytes, over the requests."""
        return self.peak / self.requests


def run(executor: Executor, asked: Workload[RequestArrival], *, trace: bool = False) -> Ran:
    """Run a workload, its evidence counted and not kept; ``trace`` measures memory, not time.

    Raises ``RuntimeError`` when a request did not complete: nothing was measured then.
    """
    counted = Tally()
    engine = Engine(system(executor.position_bytes), executor, asked, keeper=counted)
    peak = 0
    start = time.perf_counter()
    if trace:
        tracemalloc.start()
        try:
            execution = engine.run()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    else:
        execution = engine.run()
    seconds = time.perf_counter() - start
    stopped = [o.request_id for o in execution.outcomes if not o.complete]
    if stopped:
        raise RuntimeError(f"{len(stopped)} requests did not complete, first {stopped[0]}")
    return Ran(
        requests=len(asked.requests),
        events=counted.events,
        selections=counted.selections,
        reused=sum(row.reused_positions for row in execution.ledger),
        computed=sum(row.computed_positions + row.recomputed_positions for row in execution.ledger),
        seconds=seconds,
        peak=peak,
    )


def decoding(model: Model, ids: Sequence[int]) -> Arm:
    """One position a call, each over the state that the call before left."""

    def arm() -> KVState | None:
        state: KVState | None = None
        for token in ids:
            state = model.run((token,), state).state
        return state

    return arm


def positions(artifact: LoadedArtifact, length: int, rounds: int) -> Samples:
    """Seconds a position of each executor, over a prompt and in decoding."""
    ids = tuple(i % artifact.architecture.vocabulary for i in range(7, 7 + length))
    exact, plain = ExactExecutor(artifact), PlainExecutor(artifact)
    arms: dict[str, Arm] = {
        "exact, prompt": lambda: exact.run(ids),
        "plain, prompt": lambda: plain.run(ids),
        "exact, decoding": decoding(exact, ids),
        "plain, decoding": decoding(plain, ids),
    }
    return interleave(arms, rounds, scale=1 / length)


def events(executor: MemoExecutor, asked: Workload[RequestArrival], rounds: int) -> Samples:
    """Seconds an event, memoised (everything was run before) and with every step computed."""
    one = run(executor, asked)
    inner = executor.inner
    arms: dict[str, Arm] = {
        "memoised": lambda: run(executor, asked),
        "executed": lambda: run(inner, asked),
    }
    return interleave(arms, rounds, scale=1 / one.events)


def rates(title: str, samples: Samples, unit: str, against: str) -> None:
    """Print a table: how many of ``unit`` a second, and the time's ratio to ``against``."""
    print(f"\n{title}")
    width = max(len(name) for name in samples.seconds)
    print(f"{'arm':<{width}}  {unit + '/s, median [quartiles]':<34}  time to {against}'s")
    for name, taken in samples.seconds.items():
        rate = Spread.of([1 / seconds for seconds in taken])
        print(f"{name:<{width}}  {rate!s:<34}  {samples.ratio(name, against)}")
    rounds = len(samples.seconds[against])
    print(f"{rounds} rounds, arms in a new random order each; load {os.getloadavg()[0]:.2f}")


def main() -> None:
    """Print the tables."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--length", type=int, default=128, help="positions of a prompt")
    parser.add_argument("--tokens", type=int, default=8, help="selections of a request at most")
    parser.add_argument("--small", type=int, default=100, help="requests of the raced workload")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--untrained", action="store_true", help="not the packaged artifact")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    artifact = LoadedArtifact.random() if asked.untrained else LoadedArtifact.load()
    shape = artifact.architecture
    print(f"{artifact.name}: {shape.layers} layers of {shape.width}, {shape.vocabulary} tokens")

    title = f"Positions, {asked.length} of them, one thread"
    rates(title, positions(artifact, asked.length, asked.rounds), "positions", "exact, prompt")

    executor = MemoExecutor(ModelExecutor.of(artifact))
    small = workload(asked.small, asked.tokens)
    samples = events(executor, small, asked.rounds)
    rates(f"Events, {asked.small} requests", samples, "events", "memoised")

    print("\nWorkloads on the memoised engine (bar: minutes, and flat memory a request)")
    print(f"{'requests':>9} {'s':>8} {'events':>9} {'reused':>9} {'computed':>9} "
          f"{'peak MB':>9} {'kB a request':>13}")  # fmt: skip
    for size in asked.sizes:
        many = workload(size, asked.tokens)
        timed, traced = run(executor, many), run(executor, many, trace=True)
        print(
            f"{size:>9} {timed.seconds:>8.2f} {timed.events:>9} {timed.reused:>9} "
            f"{timed.computed:>9} {traced.peak / MEGABYTE:>9.2f} "
            f"{traced.per_request / KILOBYTE:>13.3f}"
        )


if __name__ == "__main__":
    main()
