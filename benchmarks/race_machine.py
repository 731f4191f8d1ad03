"""A simulated machine: times are drawn, not measured; it drifts, spikes and remembers on demand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from flashrt.race.load import Reading

BASE_S = 0.02


@dataclass(frozen=True)
class Weather:
    """What a machine does to every sample, whoever runs. Shares, not percent.

    ``noise``: standard deviation of each sample. ``drift``: growth of times over 100 samples, for
    ever. ``spikes``: share of samples that take 1.5 to 6 times as long. ``memory``: standard
    deviation of a level that the samples share and that forgets 2 % a sample (an AR(1) of 0.98).
    """

    name: str
    noise: float
    drift: float = 0.0
    spikes: float = 0.0
    memory: float = 0.0


WEATHERS = (
    Weather("quiet, 2 % noise", 0.02),
    Weather("quiet, 3 % noise", 0.03),
    Weather("drift, −3 % in 100 samples", 0.02, drift=-0.03),
    Weather("drift, +3 % in 100 samples", 0.02, drift=0.03),
    Weather("spikes, 5 % of samples", 0.02, spikes=0.05),
    Weather("memory, AR(1) of 4 %", 0.02, memory=0.04),
    Weather("noisy, 5 % noise", 0.05),
)
FORGET = 0.98


class Machine:
    """Clock, load meter and two arms; ``speedup`` is the host's time over the treated arm's."""

    def __init__(self, weather: Weather, speedup: float, seed: int) -> None:
        self.weather, self.speedup = weather, speedup
        self.rng = Random(seed)
        self.level = self.rng.gauss(0.0, weather.memory)
        self.elapsed_ns = 0
        self.samples = 0

    def now_ns(self) -> int:
        """Simulated nanoseconds."""
        return self.elapsed_ns

    def sleep(self, seconds: float) -> None:
        """Simulated waiting."""
        self.elapsed_ns += round(seconds * 1e9)

    def read(self) -> Reading:
        """One busy core, and it is ours: the load is not what is simulated here."""
        seconds = self.elapsed_ns / 1e9
        return Reading(2 * seconds, seconds, seconds)

    def sample(self, scale: float) -> float:
        """Seconds of one run."""
        weather, gauss = self.weather, self.rng.gauss
        if weather.memory:
            step = weather.memory * math.sqrt(1 - FORGET**2)
            self.level = FORGET * self.level + gauss(0.0, step)
        seconds = (
            BASE_S
            * scale
            * math.exp(gauss(0.0, weather.noise) + self.level + weather.drift * self.samples / 100)
        )
        if weather.spikes and self.rng.random() < weather.spikes:
            seconds *= 1.5 + 4.5 * self.rng.random()
        self.samples += 1
        self.elapsed_ns += max(1, round(seconds * 1e9))
        return seconds

    def host(self) -> float:
        """One run of the host, in seconds."""
        return self.sample(1.0)

    def treated(self) -> float:
        """One run of the treated arm, in seconds."""
        return self.sample(1.0 / self.speedup)

    @property
    def arms(self) -> dict[str, Callable[[], None]]:
        """Both arms, in the form that the race takes."""

        def host() -> None:
            self.sample(1.0)

        def treated() -> None:
            self.sample(1.0 / self.speedup)

        return {"host": host, "treated": treated}
