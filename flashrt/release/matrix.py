"""The matrix: every cell of a store with its state, its interval and its reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flashrt.release.facts import facts_of
from flashrt.release.resolve import Resolution, resolve, withdrawn
from flashrt.release.source import Body, Source, Verifier, short
from flashrt.release.state import State
from flashrt.report.table import Table
from flashrt_runtime.reason import Because, Reason


@dataclass(frozen=True)
class Row:
    """One cell. ``ratio`` is host time over treated time: median, low, high (unit: 1).

    ``margin`` is the speed-up that its lower end had to exceed; None without a measurement.
    """

    cell_digest: str
    receipt: str
    label: str
    state: State
    band: str
    ratio: tuple[float, float, float] | None
    dtype_ratio: dict[str, float]
    attempts: int
    alpha: float | None
    margin: float | None
    reasons: tuple[Because, ...]

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "cell_digest": self.cell_digest,
            "receipt": self.receipt,
            "label": self.label,
            "state": self.state.value,
            "band": self.band,
            "ratio": dict(zip(("median", "low", "high"), self.ratio, strict=True))
            if self.ratio
            else None,
            "dtype_ratio": self.dtype_ratio,
            "attempts": self.attempts,
            "margin": self.margin,
            "reasons": [b.record() for b in self.reasons],
        }


@dataclass(frozen=True)
class Matrix:
    """Rows sorted by host, shape, device and scheme."""

    rows: tuple[Row, ...]

    def expected_false(self) -> float:
        """At most this many false promotions are expected: the sum of the raced cells' alphas."""
        return sum(row.alpha for row in self.rows if row.alpha is not None and row.ratio)

    def promise(self) -> str:
        """What the error rate amounts to, in a sentence."""
        raced = [row for row in self.rows if row.ratio]
        certified = sum(row.state is State.CERTIFIED_FAST for row in raced)
        return (
            f"{len(self.rows)} cells, {len(raced)} raced, {certified} certified fast; "
            f"at most {self.expected_false():.3g} false promotions are expected"
        )

    def table(self) -> Table:
        """For people: one row a cell."""
        columns = (
            "cell",
            "digest",
            "state",
            "band",
            "ratio",
            "interval",
            "against",
            "tries",
            "why",
        )
        return Table(columns, [_cells(row) for row in self.rows], "host time / treated time")


def label(cell: Body) -> str:
    """A cell in a few words: family, scheme, phase, rows, context, device."""
    shape, device = cell["shape"], cell["device"]
    return (
        f"{cell['model_artifact']['family']} {_bound(cell['precision'])} "
        f"{shape['phase']} B={shape['batch']} M={shape['rows']} ctx={shape['context']} "
        f"{device['class']}{'' if device['class'] == 'cpu' else ' ' + str(device['arch'])}"
    )


def _bound(precision: Body) -> str:
    return f"{precision['scheme']}{'+chains' if precision.get('chains') else ''}"


def said(reasons: Iterable[Because]) -> str:
    """Reasons in one line; one detail of each is enough to read."""
    first: dict[Reason, str] = {}
    for because in reasons:
        first.setdefault(because.reason, because.detail)
    return "; ".join(f"{reason.name}: {detail}" for reason, detail in first.items())


def _cells(row: Row) -> list[str]:
    ratio, interval = "–", "–"
    if row.ratio:
        ratio = f"{row.ratio[0]:.3f}"
        interval = f"{row.ratio[1]:.3f} to {row.ratio[2]:.3f}"
    dtypes = ", ".join(f"{name} {value:.3f}" for name, value in sorted(row.dtype_ratio.items()))
    return [
        row.label, short(row.cell_digest), row.state.value, row.band, ratio, interval,
        dtypes or "–", str(row.attempts), said(row.reasons),
    ]  # fmt: skip


def row_of(receipt: Body, contested: bool = False) -> Row:
    """The row of one qualification receipt."""
    verdict = receipt["verdict"]
    speedup = verdict["statistics"]["speedup"]
    reasons = tuple(Because.from_record(r) for r in verdict["reasons"])
    state = State(verdict["state"])
    if contested:
        state = State.UNKNOWN
        reasons = (Because(Reason.AMBIGUOUS, "two live receipts claim this cell"), *reasons)
    return Row(
        cell_digest=receipt["cell_digest"],
        receipt=receipt["digest"],
        label=label(receipt["cell"]),
        state=state,
        band=verdict["band"],
        ratio=(speedup["median"], speedup["low"], speedup["high"]) if speedup else None,
        dtype_ratio={
            name: value
            for name, value in verdict["statistics"]["dtype_ratio"].items()
            if value is not None
        },
        attempts=len(receipt["attempts"]) + 1,
        alpha=receipt["thresholds"]["alpha"],
        margin=receipt["thresholds"]["margin"],
        reasons=reasons,
    )


def unmeasured_row(record: Body) -> Row:
    """The row of a preflight or of a measurement that was interrupted."""
    request = " ".join(f"{name}={value}" for name, value in sorted(record["request"].items()))
    return Row(
        cell_digest=record["cell_digest"] or "",
        receipt=record["digest"],
        label=label(record["cell"]) if record["cell"] else request,
        state=State.UNKNOWN,
        band="none",
        ratio=None,
        dtype_ratio={},
        attempts=1,
        alpha=None,
        margin=None,
        reasons=tuple(Because.from_record(r) for r in record["verdict"]["reasons"]),
    )


def checked(row: Row, body: Body, verifier: Verifier | None) -> Row:
    """The row as it is when the receipt verifies, else ``unknown`` with what does not hold."""
    wrong = tuple(verifier(body)) if verifier is not None else ()
    return replace(row, state=State.UNKNOWN, ratio=None, reasons=wrong) if wrong else row


def matrix(
    receipts: Iterable[Body],
    unmeasured: Iterable[Body] = (),
    verifier: Verifier | None = None,
    revoked: Iterable[str] = (),
) -> Matrix:
    """Live receipts, one row a cell; of a contested cell, every receipt, as ``unknown``.

    With a ``verifier``, a receipt that does not follow from its own evidence is ``unknown``.
    ``revoked`` are receipts that the store remembers as withdrawn.

    Of the records without a measurement, the last one of each cell that has no receipt.
    """
    found = resolve(receipts, revoked)
    rows = [checked(row_of(body), body, verifier) for body in found.live.values()]
    rows += [row_of(body, contested=True) for bodies in found.contested.values() for body in bodies]
    measured = {row.label for row in rows}
    last = {
        row.label: row
        for row in map(
            unmeasured_row, sorted(unmeasured, key=lambda body: body["execution"]["ended_at"])
        )
        if row.label not in measured
    }
    rows += last.values()
    rows = _told_apart(rows, {body["digest"]: body for body in _bodies(found)})
    return Matrix(tuple(sorted(rows, key=lambda row: (row.label, row.cell_digest, row.receipt))))


def _bodies(found: Resolution) -> Iterator[Body]:
    yield from found.live.values()
    for bodies in found.contested.values():
        yield from bodies


def _told_apart(rows: Iterable[Row], receipts: Mapping[str, Body]) -> list[Row]:
    """The rows; cells that read alike say the first fact in which they differ."""
    alike: dict[str, list[Row]] = {}
    for row in rows:
        alike.setdefault(row.label, []).append(row)
    out = []
    for group in alike.values():
        known = [receipts[row.receipt] for row in group if row.receipt in receipts]
        facts = [fact for body in known for fact in facts_of(body["cell"], "")[:-1]]
        differs = next((f for f in facts if not all(map(f.holds, known))), None)
        for row in group:
            value = differs.found_in(receipts.get(row.receipt, {})) if differs else None
            told = f" {differs.name.removeprefix('cell.')}={_brief(value)}" if differs else ""
            out.append(row if value is None else replace(row, label=row.label + told))
    return out


def _brief(value: Any) -> str:
    text = str(value)
    return short(text) if text.startswith("sha256:") else text


def of_source(source: Source, verifier: Verifier | None = None) -> Matrix:
    """The matrix of a store, its receipts recomputed by ``verifier``."""
    return matrix(
        source.list("qualification"),
        [*source.list("preflight"), *source.list("incomplete")],
        verifier,
        withdrawn(source),
    )
