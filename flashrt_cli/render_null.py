"""What a null study says of the machine, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashrt.qualify.null_arm import MATMUL
from flashrt_cli.output import Output, Table

if TYPE_CHECKING:
    from flashrt.qualify.request import CellRequest
    from flashrt.race.study import NullStudy


def _gain(value: float | None) -> str:
    return "cannot be told" if value is None else f"{(value - 1) * 100:.1f} %"


def _fitness(study: NullStudy) -> str:
    if study.fit:
        return "fit to certify: 1 is inside an interval narrower than the margin"
    if study.promoted:
        return "NOT fit to certify: an arm was promoted against itself"
    if study.interval is None:
        return "NOT fit to certify: too few blocks without foreign load"
    if study.interval.low <= 1.0 <= study.interval.high:
        return "NOT fit to certify: the interval is wider than the margin"
    return "NOT fit to certify: one seat is favoured, 1 is outside the interval"


def render(host: str, request: CellRequest, study: NullStudy) -> Output:
    """Rates, the interval of the A/A ratio, and the smallest detectable gain."""
    seen = study.interval
    told = f"{seen.low:.4f} to {seen.high:.4f}" if seen else "–"
    judged = study.races - study.lost
    rows = [
        ["false promotions", f"{study.promoted} of {judged}"],
        ["rate, 95 % upper bound", f"{study.bound * 100:.2f} %"],
        ["A/A ratio", f"{seen.median:.4f}x, {told}" if seen else "–"],
        ["noise of a block", "–" if study.noise is None else f"{study.noise * 100:.2f} %"],
        ["pairs to decision, median", str(study.pairs)],
        *(
            [f"smallest gain found within {pairs} pairs", _gain(gain)]
            for pairs, gain in study.detectable.items()
        ),
        ["races lost to foreign load", str(study.lost)],
        ["races undecided", str(study.undecided)],
        ["races with drift / with a shift", f"{study.drifting} / {study.shifting}"],
    ]
    what = "a float32 matrix product" if host == MATMUL else f"{host}, {request.phase}"
    return Output(
        title=f"null races of {what}, margin {study.margin:g}",
        tables=[Table(("of this machine", "value"), rows)],
        lines=[_fitness(study), "one process: layout luck between processes is not in it"],
        data={"host": host, "cell": None if host == MATMUL else request.text, **study.record()},
    )
