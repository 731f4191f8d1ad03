"""A simulated machine: time and load come from here, so no test reads a clock or waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from flashrt.race.load import Reading


class Machine:
    """A clock, a load meter and two arms whose times are drawn, not measured.

    ``drift`` is the growth of both arms' time per second of simulated time; ``foreign(t)`` the
    share of the machine that others use at second t.
    """

    def __init__(
        self,
        seed: int,
        *,
        ratio: float = 1.0,
        noise: float = 0.02,
        drift: float = 0.0,
        base_ns: int = 20_000_000,
        foreign: Callable[[float], float] = lambda _: 0.0,
    ) -> None:
        self.rng = Random(seed)
        self.time = 0
        self.busy = 0.0
        self.own = 0.0
        self.slept = 0.0
        self.calls: list[str] = []
        self.ratio, self.noise, self.drift = ratio, noise, drift
        self.base, self.foreign = base_ns, foreign

    def now_ns(self) -> int:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self._pass(seconds, own=0.0)

    def read(self) -> Reading:
        return Reading(2 * self.time / 1e9, self.busy, self.own)

    def _pass(self, seconds: float, own: float) -> None:
        self.busy += own + 2 * seconds * self.foreign(self.time / 1e9)
        self.own += own
        self.time += max(1, round(seconds * 1e9))

    def _run(self, name: str, scale: float) -> None:
        self.calls.append(name)
        growth = 1.0 + self.drift * self.time / 1e9
        seconds = self.base / 1e9 * scale * growth * math.exp(self.rng.gauss(0.0, self.noise))
        self._pass(seconds, own=seconds)

    def host(self) -> None:
        self._run("host", 1.0)

    def treated(self) -> None:
        self._run("treated", 1.0 / self.ratio)

    @property
    def arms(self) -> dict[str, Callable[[], None]]:
        return {"host": self.host, "treated": self.treated}


@pytest.fixture
def machine() -> type[Machine]:
    return Machine
