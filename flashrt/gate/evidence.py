"""The evidence of one cell, read into types. Nothing here judges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashrt.gate.integrity import Integrity, read_integrity
from flashrt.gate.metrics import Window
from flashrt.gate.reading import (
    Malformed,
    array,
    check_integer,
    check_number,
    field,
    flag,
    integer,
    many,
    mapping,
    number,
    optional_number,
    pair,
    text,
)
from flashrt.gate.samples import read_series
from flashrt.gate.window_check import Followed, read_followed
from flashrt.race.series import Series

HELD_OUT, FIT_RESIDUAL = "held_out", "fit_residual"
DISTRIBUTION, VALUE, TOKENS = "distribution", "value", "tokens"
UNITS = {DISTRIBUTION: "positions", VALUE: "elements", TOKENS: "tokens"}


@dataclass(frozen=True)
class Twice:
    """Two digests of the host's output in one process: of two runs, or before and after."""

    process: int
    digests: tuple[str, str]


@dataclass(frozen=True)
class PathRun:
    """What one process's captured graph runs: operators by seam, calls by seam, counters.

    ``chains`` are the seams, each producer's first, that were attached as one.
    """

    process: int
    expected: dict[str, str]
    graph_calls: dict[str, int]
    replays: int
    fallbacks: int
    chains: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Poison:
    """Whether replays rewrote poisoned outputs, and honoured inputs changed after capture."""

    process: int
    outputs_rewritten: bool
    inputs_honoured: bool


@dataclass(frozen=True)
class Parity:
    """Windows before and after the race, over the same frames in the same order."""

    kind: str
    label: str
    before: tuple[Window, ...]
    after: tuple[Window, ...]


@dataclass(frozen=True)
class ProcessRun:
    """Both races of one process."""

    process: int
    null: Series
    race: Series


@dataclass(frozen=True)
class Cost:
    """Work of one step (FLOP, bytes) and the machine's peaks (per second), where known."""

    flops: float
    bytes: float
    peak_flops: float | None
    peak_bytes_per_s: float | None

    def least_ns(self) -> float:
        """Nanoseconds below which no machine with these peaks can do the work; 0 if unknown."""
        bounds = [0.0]
        if self.peak_flops is not None and self.peak_flops > 0:
            bounds.append(self.flops / self.peak_flops * 1e9)
        if self.peak_bytes_per_s is not None and self.peak_bytes_per_s > 0:
            bounds.append(self.bytes / self.peak_bytes_per_s * 1e9)
        return max(bounds)


@dataclass(frozen=True)
class Evidence:
    """Everything that was measured for one cell.

    ``integrity`` is empty in evidence of the race's first protocol, ``window_check`` in evidence
    from before it was recorded. ``driver`` is the device driver's version, None for arms that ran
    on a CPU.
    """

    empty_control: tuple[Twice, ...]
    path: tuple[PathRun, ...]
    parity: Parity
    processes: tuple[ProcessRun, ...]
    dtype_hosts: dict[str, tuple[tuple[int, int], ...]]
    rollback: tuple[Twice, ...]
    poison: tuple[Poison, ...]
    cost: Cost
    incomplete: str | None
    integrity: tuple[Integrity, ...] = ()
    window_check: tuple[Followed, ...] = ()
    driver: str | None = None


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise Malformed(path, "a non-empty string was expected")
    return value


def _twice(body: Any, path: str) -> Twice:
    digests = pair(field(body, "digests", path), f"{path}.digests", _string)
    return Twice(integer(body, "process", path), digests)


def _path(body: Any, path: str) -> PathRun:
    return PathRun(
        integer(body, "process", path),
        mapping(body, "expected", path, _string),
        mapping(body, "graph_calls", path, check_integer),
        integer(body, "replays", path),
        integer(body, "fallbacks", path),
        many(body, "chains", path, _chain) if "chains" in body else (),
    )


def _chain(body: Any, path: str) -> tuple[str, ...]:
    return _string(field(body, "producer", path), f"{path}.producer"), *many(
        body, "readers", path, _string
    )


def _poison(body: Any, path: str) -> Poison:
    return Poison(
        integer(body, "process", path),
        flag(body, "outputs_rewritten", path),
        flag(body, "inputs_honoured", path),
    )


def _positive(value: Any, path: str) -> int:
    return check_integer(value, path, 1)


def _time_pair(value: Any, path: str) -> tuple[int, int]:
    return pair(value, path, _positive)


def _range(body: Any, path: str) -> tuple[float, float] | None:
    value = field(body, "norm_ratio", path)
    return None if value is None else pair(value, f"{path}.norm_ratio", check_number)


def _window(body: Any, path: str, kind: str) -> Window:
    found = _tokens(body, path) if kind == TOKENS else _compared(body, path, kind)
    if found.agree + found.near_ties > found.units:
        raise Malformed(f"{path}.top1_agree", "more positions are counted than there are")
    return found


def _tokens(body: Any, path: str) -> Window:
    units, same = integer(body, "tokens", path, 1), integer(body, "identical", path)
    first = field(body, "first_difference", path)
    if (first is None) is not (same == units) or (
        first is not None and check_integer(first, f"{path}.first_difference") >= units
    ):
        raise Malformed(f"{path}.first_difference", "does not follow from the tokens that differ")
    return Window(
        frame=text(body, "frame", path),
        units=units,
        nonfinite=0,
        distinct=integer(body, "distinct", path),
        cosine=None,
        max_abs=None,
        norm_ratio=None,
        scale=None,
        agree=same,
        first_difference=first,
    )


def _compared(body: Any, path: str, kind: str) -> Window:
    distribution = kind == DISTRIBUTION
    return Window(
        frame=text(body, "frame", path),
        units=integer(body, UNITS[kind], path, 1),
        nonfinite=integer(body, "nonfinite", path),
        distinct=integer(body, "distinct", path),
        cosine=optional_number(body, "cosine_min" if distribution else "cosine", path),
        max_abs=optional_number(body, "max_abs", path),
        norm_ratio=_range(body, path),
        scale=optional_number(body, "scale", path),
        agree=integer(body, "top1_agree", path) if distribution else 0,
        near_ties=integer(body, "near_ties", path) if distribution else 0,
        kl_sum=optional_number(body, "kl_sum", path) if distribution else None,
        kl_max=optional_number(body, "kl_max", path) if distribution else None,
        nll_host_sum=optional_number(body, "nll_host_sum", path) if distribution else None,
        nll_treated_sum=optional_number(body, "nll_treated_sum", path) if distribution else None,
        rows_alike=flag(body, "rows_alike", path) if "rows_alike" in body else False,
        treated=text(body, "treated", path) if "treated" in body else None,
    )


def _parity(body: Any, path: str) -> Parity:
    kind, label = text(body, "kind", path), text(body, "label", path)
    if kind not in UNITS:
        raise Malformed(f"{path}.kind", f"one of {', '.join(UNITS)} was expected")
    if label not in (HELD_OUT, FIT_RESIDUAL):
        raise Malformed(f"{path}.label", f"{HELD_OUT} or {FIT_RESIDUAL} was expected")

    def read(value: Any, where: str) -> Window:
        return _window(value, where, kind)

    before, after = many(body, "before", path, read), many(body, "after", path, read)
    if [(w.frame, w.units) for w in before] != [(w.frame, w.units) for w in after]:
        raise Malformed(f"{path}.after", "not the frames that were judged before the race")
    if len({w.frame for w in before}) != len(before):
        raise Malformed(f"{path}.before", "a frame is judged twice")
    return Parity(kind, label, before, after)


def _process(body: Any, path: str) -> ProcessRun:
    return ProcessRun(
        integer(body, "process", path),
        read_series(field(body, "null", path), f"{path}.null"),
        read_series(field(body, "race", path), f"{path}.race"),
    )


def _driver(body: Any, path: str) -> str | None:
    where = f"{path}.environment"
    value = field(field(body, "environment", path), "driver", where)
    return None if value is None else _string(value, f"{where}.driver")


def read_evidence(body: Any, path: str = "$.evidence") -> Evidence:
    """Evidence from its JSON form. Raises :class:`Malformed` with the path of what is wrong."""
    dtype_hosts: dict[str, tuple[tuple[int, int], ...]] = {}
    for i, host in enumerate(array(body, "dtype_hosts", path)):
        where = f"{path}.dtype_hosts[{i}]"
        pairs = many(host, "pairs", where, _time_pair)
        if not pairs or text(host, "dtype", where) in dtype_hosts:
            raise Malformed(where, "one series of pairs for each dtype was expected")
        dtype_hosts[text(host, "dtype", where)] = pairs
    cost = field(body, "cost", path)
    incomplete = field(body, "incomplete", path)
    return Evidence(
        empty_control=many(body, "empty_control", path, _twice),
        path=many(body, "path", path, _path),
        parity=_parity(field(body, "parity", path), f"{path}.parity"),
        processes=many(body, "processes", path, _process),
        dtype_hosts=dtype_hosts,
        rollback=many(body, "rollback", path, _twice),
        poison=many(body, "poison", path, _poison),
        cost=Cost(
            number(cost, "flops", f"{path}.cost"),
            number(cost, "bytes", f"{path}.cost"),
            optional_number(cost, "peak_flops", f"{path}.cost"),
            optional_number(cost, "peak_bytes_per_s", f"{path}.cost"),
        ),
        incomplete=None if incomplete is None else _string(incomplete, f"{path}.incomplete"),
        integrity=many(body, "integrity", path, read_integrity) if "integrity" in body else (),
        window_check=many(body, "window_check", path, read_followed)
        if "window_check" in body
        else (),
        driver=_driver(body, path),
    )
