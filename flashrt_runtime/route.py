"""Choosing a route by exact facts. Never the nearest: one fact that differs is another cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    from flashrt_runtime.facts import Facts
    from flashrt_runtime.release_reader import ReleaseContent
    from flashrt_runtime.route_record import Route

_DEVICE = ("class", "arch", "name", "isa", "threads")


class AcceptBand(Enum):
    """Bands below ``warn`` that the caller accepts by name."""

    LOW = "low"


@dataclass(frozen=True)
class Want:
    """What the caller asks for beside the facts. ``scheme`` ``None`` takes the best by rank.

    ``rows`` and ``context`` (positions) choose among routes of several shapes; ``None`` takes the
    only shape there is.
    """

    phase: str = "decode"
    scheme: str | None = None
    accept_band: AcceptBand | None = None
    rows: int | None = None
    context: int | None = None


@dataclass(frozen=True)
class Mismatch:
    """The first fact that differs, with both values."""

    fact: str
    expected: Any
    found: Any
    position: int

    def __str__(self) -> str:
        return f"{self.fact}: expected {self.expected!r}, found {self.found!r}"


def _pairs(route: Route, facts: Facts, want: Want) -> Iterator[tuple[str, Any, Any]]:
    cell = route.cell
    for name in _DEVICE:
        yield f"device.{name}", cell["device"].get(name), facts.device.get(name)
    for name in sorted(cell["software"]):
        yield f"software.{name}", cell["software"][name], facts.software.get(name)
    artifact = cell["model_artifact"]
    digest = facts.checkpoint_digest
    yield "model_artifact.checkpoint_digest", artifact.get("checkpoint_digest"), digest
    # A cell measured before this fact was recorded has none, and none never matches.
    digest = facts.architecture_digest
    yield "model_artifact.architecture_digest", artifact.get("architecture_digest"), digest
    yield "model_artifact.dtype", artifact.get("dtype"), facts.dtype
    yield "form", cell["form"], list(facts.form)
    yield "shape.phase", cell["shape"]["phase"], want.phase
    if want.rows is not None:
        yield "shape.rows", cell["shape"]["rows"], want.rows
    if want.context is not None:
        yield "shape.context", cell["shape"]["context"], want.context
    if want.scheme is not None:
        yield "precision.scheme", route.scheme, want.scheme


def first_mismatch(route: Route, facts: Facts, want: Want | None = None) -> Mismatch | None:
    """The first fact of the route's cell that is not exactly the one found, or ``None``.

    A fact that could not be read (``None``) never matches. Order: device, software, checkpoint,
    architecture, dtype, form, phase, rows, context, scheme.
    """
    chosen = want if want is not None else Want(phase=route.cell["shape"]["phase"])
    for position, (fact, expected, found) in enumerate(_pairs(route, facts, chosen)):
        if expected is None or found is None or expected != found:
            return Mismatch(fact, expected, found, position)
    return None


def _unknown(content: ReleaseContent, misses: list[tuple[Route, Mismatch]]) -> Refusal:
    if not misses:
        return Refusal(Reason.UNKNOWN_CELL, "the release holds no route", subject=content.name)
    # The route that agrees with most facts says most about what is different here.
    route, miss = max(misses, key=lambda pair: pair[1].position)
    return Refusal(
        Reason.UNKNOWN_CELL,
        f"no receipt was earned here; first difference of cell {route.cell_digest[7:19]}: {miss}",
        subject=content.name,
        do="qualify this cell, or activate with policy='host'",
    )


def _live(content: ReleaseContent, matching: list[Route]) -> list[Route]:
    live = [r for r in matching if r.receipt not in content.revoked | content.superseded]
    if not live:
        gone = matching[0].receipt
        what = f"the receipt {gone} was withdrawn or replaced"
        raise Refusal(Reason.REVOKED, what, subject=content.name, do="get a newer release")
    cells: dict[str, str] = {}
    for route in live:
        other = cells.setdefault(route.cell_digest, route.receipt)
        if other != route.receipt:
            what = f"two live receipts, {other} and {route.receipt}, for one cell"
            raise Refusal(Reason.AMBIGUOUS, what, subject=route.cell_digest)
    return live


def _short(content: ReleaseContent, route: Route, want: Want) -> Because | None:
    """Why a matching, live route is still not activated."""
    if route.state != "certified_fast":
        verdict = content.receipts[route.receipt]["verdict"]
        reasons = verdict.get("reasons") or []
        try:
            because = Because.from_record(reasons[0])
        except (KeyError, IndexError, TypeError, AttributeError):
            because = Because(Reason.LOSS, "its receipt gives no reason")
        return Because(because.reason, f"the cell is {route.state}: {because.detail}")
    if route.band == "low" and want.accept_band is not AcceptBand.LOW:
        return Because(Reason.BAND_LOW, "the cell's parity band is low; accept_band='low' takes it")
    if route.band == "none":
        return Because(Reason.BAND_LOW, "the cell has no parity band")
    return None


def _one_shape(content: ReleaseContent, usable: list[Route]) -> None:
    """Refuse several shapes: a rank says nothing about a route of another shape."""
    shapes = [route.cell["shape"] for route in usable]
    found = sorted({(shape["rows"], shape["context"]) for shape in shapes})
    if len(found) > 1:
        listed = "; ".join(f"rows={rows} context={context}" for rows, context in found)
        raise Refusal(
            Reason.AMBIGUOUS,
            f"routes of {len(found)} shapes fit: {listed}",
            subject=content.name,
            do="pass rows= or context=",
        )


def choose(content: ReleaseContent, facts: Facts, want: Want) -> Route:
    """The route with the best rank among those whose cell is exactly these facts.

    Raises :class:`Refusal`: UNKNOWN_CELL (with the first fact that differs), REVOKED, AMBIGUOUS,
    BAND_LOW, or the receipt's own reason when its state is below ``certified_fast``.
    """
    misses: list[tuple[Route, Mismatch]] = []
    matching: list[Route] = []
    for route in content.routes:
        miss = first_mismatch(route, facts, want)
        if miss is None:
            matching.append(route)
        else:
            misses.append((route, miss))
    if not matching:
        raise _unknown(content, misses)
    ranked = sorted(_live(content, matching), key=lambda route: route.rank)
    short = [(route, _short(content, route, want)) for route in ranked]
    usable = [route for route, because in short if because is None]
    if not usable:
        route, because = short[0]
        assert because is not None
        raise Refusal(because.reason, because.detail, subject=route.cell_digest)
    _one_shape(content, usable)
    if len(usable) > 1 and usable[0].rank == usable[1].rank:
        what = f"two routes of rank {usable[0].rank} fit"
        do = "name one with scheme="
        raise Refusal(Reason.AMBIGUOUS, what, subject=content.name, do=do)
    return usable[0]
