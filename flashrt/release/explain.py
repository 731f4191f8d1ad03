"""Why a cell has, or has not, a receipt: every receipt and the first fact that did not match."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flashrt.release.matrix import label, said
from flashrt.release.resolve import Resolution, resolve
from flashrt.release.source import Body, short
from flashrt.release.state import State
from flashrt.report.table import Table
from flashrt_runtime.reason import Because


@dataclass(frozen=True)
class Fact:
    """One fact that was asked for: where it stands in a receipt, and the value expected there."""

    name: str  # "cell.shape.phase"
    expected: Any

    def found_in(self, receipt: Body) -> Any:
        """The receipt's value; ``None`` where it has none."""
        value: Any = receipt
        for part in self.name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def holds(self, receipt: Body) -> bool:
        """Whether the receipt says the same. A fact that is unknown on either side never does."""
        found = self.found_in(receipt)
        return found is not None and self.expected is not None and found == self.expected


@dataclass(frozen=True)
class Considered:
    """One receipt, how many facts matched before the first that did not, and what became of it."""

    receipt: Body
    matched: int
    mismatch: Fact | None
    dead: Because | None

    @property
    def serves(self) -> bool:
        """Whether this receipt answers: live, every fact the same, and something was earned."""
        earned = State(self.receipt["verdict"]["state"]) is not State.UNKNOWN
        return self.mismatch is None and self.dead is None and earned

    def record(self) -> dict[str, Any]:
        """JSON form."""
        out: dict[str, Any] = {
            "receipt": self.receipt["digest"],
            "cell_digest": self.receipt["cell_digest"],
            "label": label(self.receipt["cell"]),
            "state": self.receipt["verdict"]["state"],
            "reasons": self.receipt["verdict"]["reasons"],
            "matched": self.matched,
            "mismatch": None,
            "dead": self.dead.record() if self.dead else None,
        }
        if self.mismatch:
            found = self.mismatch.found_in(self.receipt)
            out["mismatch"] = {
                "fact": self.mismatch.name, "expected": self.mismatch.expected, "found": found,
            }  # fmt: skip
        return out


def _why_dead(found: Resolution, receipt: Body) -> Because | None:
    return found.dead.get(receipt["digest"])


def consider(receipts: Iterable[Body], facts: Sequence[Fact]) -> list[Considered]:
    """Every receipt against the facts, in their order; those that matched furthest come first."""
    bodies = list(receipts)
    found = resolve(bodies)
    out = []
    for body in bodies:
        matched, mismatch = 0, None
        for fact in facts:
            if not fact.holds(body):
                mismatch = fact
                break
            matched += 1
        out.append(Considered(body, matched, mismatch, _why_dead(found, body)))
    return sorted(
        out, key=lambda c: (not c.serves, -c.matched, c.dead is not None, c.receipt["digest"])
    )


def _text(value: Any) -> str:
    if value is None:
        return "unknown"
    return " ".join(value) if isinstance(value, list) else str(value)


def table(considered: Sequence[Considered]) -> Table:
    """For people: one row a receipt."""
    rows = []
    for item in considered:
        fact = item.mismatch
        why = said(map(Because.from_record, item.receipt["verdict"]["reasons"]))
        rows.append(
            (
                label(item.receipt["cell"]),
                short(item.receipt["digest"]),
                item.receipt["verdict"]["state"],
                fact.name.removeprefix("cell.") if fact else "",
                _text(fact.expected) if fact else "",
                _text(fact.found_in(item.receipt)) if fact else "",
                item.dead.detail if item.dead else why,
            )
        )
    columns = ("cell", "receipt", "state", "first mismatch", "asked for", "receipt has", "why")
    return Table(columns, rows, "receipts considered")
