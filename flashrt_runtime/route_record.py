"""A route: what a release binds for one cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashrt_runtime.chain_route import ChainRoute
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.strict_json import canonical_digest, is_digest, take

STATES = ("supported_correct", "certified_fast")
BANDS = ("pass", "warn", "low", "none")


@dataclass(frozen=True)
class SeamRoute:
    """One seam of a route: the impl that serves it, its scales, and the rows it serves."""

    seam: Seam
    impl: Mapping[str, str]
    scales: Mapping[str, float]
    rows: tuple[int, int]


@dataclass(frozen=True)
class Route:
    """One cell's claim and what to bind for it."""

    cell: Mapping[str, Any]
    cell_digest: str
    receipt: str
    state: str
    band: str
    rank: int
    seams: tuple[SeamRoute, ...]
    chains: tuple[ChainRoute, ...] = ()

    @property
    def scheme(self) -> str:
        """The quantisation scheme's name."""
        return str(self.cell["precision"]["scheme"])


def _strings(record: Any, name: str, source: str) -> dict[str, str]:
    found = take(record, name, dict, source)
    if not all(isinstance(value, str) for value in found.values()):
        raise Refusal(Reason.SCHEMA, f"{name}: text was expected", subject=source)
    return found


def _read_seam(record: Any, source: str) -> SeamRoute:
    seam = take(record, "seam", dict, source)
    for name in ("members", "variant", "weights"):
        _strings(seam, name, source)
    impl = _strings(record, "impl", source)
    for name in ("structure", "backend", "form"):
        take(impl, name, str, source)
    scales = take(record, "scales", dict, source)
    rows = take(record, "rows", list, source)
    positive = all(type(v) in (int, float) and v > 0 for v in scales.values())
    if not positive or len(rows) != 2 or not all(type(r) is int and r >= 1 for r in rows):
        raise Refusal(Reason.SCHEMA, "scales or rows are not positive numbers", subject=source)
    take(seam, "id", str, source)
    take(seam, "structure", str, source)
    take(seam, "dims", dict, source)
    try:
        read = Seam.from_record({"points": {}, **seam})
    except (KeyError, TypeError, AttributeError) as error:
        raise Refusal(Reason.SCHEMA, f"not a seam: {error}", subject=source) from error
    return SeamRoute(read, impl, scales, (rows[0], rows[1]))


def _read_cell(record: Any, source: str) -> dict[str, Any]:
    cell: dict[str, Any] = take(record, "cell", dict, source)
    for name in ("device", "software", "model_artifact", "precision", "shape"):
        take(cell, name, dict, f"{source}.cell")
    take(cell["precision"], "scheme", str, f"{source}.cell")
    take(cell, "form", list, f"{source}.cell")
    for name in ("batch", "rows", "context"):
        take(cell["shape"], name, int, f"{source}.cell.shape")
    take(cell["shape"], "phase", str, f"{source}.cell.shape")
    return cell


def read_route(record: Any, source: str) -> Route:
    """A route from JSON. Raises :class:`Refusal`: SCHEMA, or DIGEST when ``cell_digest`` is not
    the digest of ``cell``."""
    cell = _read_cell(record, source)
    digest = take(record, "cell_digest", str, source)
    if canonical_digest(cell, source) != digest:
        raise Refusal(Reason.DIGEST, "cell_digest is not the cell's", subject=source)
    state = take(record, "state", str, source)
    band = take(record, "band", str, source)
    receipt = take(record, "receipt", str, source)
    if state not in STATES or band not in BANDS or not is_digest(receipt):
        what = f"state {state!r}, band {band!r} or receipt {receipt!r} is unknown"
        raise Refusal(Reason.SCHEMA, what, subject=source)
    seams = [
        _read_seam(one, f"{source}.seams[{index}]")
        for index, one in enumerate(take(record, "seams", list, source))
    ]
    stated = take(record, "chains", list, source) if "chains" in record else []
    return Route(
        cell=cell,
        cell_digest=digest,
        receipt=receipt,
        state=state,
        band=band,
        rank=take(record, "rank", int, source),
        seams=tuple(seams),
        chains=tuple(
            ChainRoute.from_record(one, f"{source}.chains[{index}]")
            for index, one in enumerate(stated)
        ),
    )
