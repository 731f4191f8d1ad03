"""Memory and time of the reduction over 10,000 samples x 4,096 points.

Bar: at most 5 MB over the kept vectors, and equal to ``numpy.percentile`` to the bit. Arms: ours
over kept vectors, ours as a stream that never holds them (its memory is all there is), and numpy
over the whole table.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from flashrt.calibration.kinds import Address, Samples
from flashrt.calibration.reduce import reduce
from flashrt.calibration.streaming import TopK

MEGABYTE = 1e6


def synthetic(frames: int, points: int) -> Samples:
    """Samples with the heavy tail that amax has; every value differs."""
    rng = np.random.default_rng(0)
    amax = rng.gamma(2.0, 3.0, size=(frames, points)).astype(np.float32)
    addresses = tuple(Address(f"s{i}", "x", f"m{i}", "input") for i in range(points))
    names = tuple(f"f{i:06d}" for i in range(frames))
    return Samples(addresses, names, amax, np.ones(amax.shape, dtype=bool), (None,) * points)


def measured(work: Callable[[], np.ndarray]) -> tuple[np.ndarray, float, float]:
    """The result, peak MB that was allocated, and seconds (of a run without tracing)."""
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    tracemalloc.start()
    try:
        result = work()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return result, peak / MEGABYTE, seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=4_096)
    parser.add_argument("--percentile", type=float, default=99.9)
    asked = parser.parse_args()
    samples = synthetic(asked.frames, asked.points)
    q = asked.percentile

    def kept() -> np.ndarray:
        return np.array([point.amax for point in reduce(samples, q).points])

    def streamed() -> np.ndarray:
        top = TopK(asked.points, asked.frames, q)
        for row in samples.amax:
            top.add(row)
        return top.result()

    def whole() -> np.ndarray:
        return np.asarray(np.percentile(samples.amax.astype(np.float64), q, axis=0))

    arms = {"kept vectors": kept, "stream": streamed, "numpy.percentile": whole}
    results = {name: measured(work) for name, work in arms.items()}
    expected = results["numpy.percentile"][0]
    print(f"\nReduction (bar: 5 MB over the kept vectors), {asked.frames} samples x {asked.points}")
    print(f"points, percentile {q:g}; the vectors take {samples.amax.nbytes / MEGABYTE:.1f} MB")
    print(f"{'arm':<18} {'peak MB':>9} {'s':>7}  equal to numpy to the bit")
    for name, (result, peak, seconds) in results.items():
        same = result.tobytes() == expected.tobytes()
        print(f"{name:<18} {peak:>9.2f} {seconds:>7.2f}  {same}")


if __name__ == "__main__":
    main()
