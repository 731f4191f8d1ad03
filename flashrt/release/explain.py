"""Why a cell has, or has not, a receipt: every receipt and the first fact that did not match."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flashrt.release.facts import Fact
from flashrt.release.matrix import label, said
from flashrt.release.resolve import resolve
from flashrt.release.source import Body, Verifier, short
from flashrt.release.state import State
from flashrt.report.table import Table
from flashrt_runtime.reason import Because, Reason

__all__ = ["Considered", "Fact", "consider", "table"]


@dataclass(frozen=True)
class Considered:
    """One receipt, how many facts matched before the first that did not, and what became of it.

    ``dead`` says why it counts for nothing whatever matches: superseded, revoked, claimed by two
    live receipts, or not what its own evidence gives.
    """

    receipt: Body
    matched: int
    mismatch: Fact | None
    dead: Because | None

    @property
    def serves(self) -> bool:
        """Whether this receipt answers: live, every fact the same, and something was earned."""
        earned = State(self.receipt["verdict"]["state"]) is not State.UNKNOWN
        return self.mismatch is None and self.dead is None and earned

    @property
    def contested(self) -> bool:
        """Whether every fact is the same, but another live receipt claims the same cell."""
        return (
            self.mismatch is None and self.dead is not None and self.dead.reason is Reason.AMBIGUOUS
        )

    @property
    def chains(self) -> list[dict[str, Any]]:
        """The seams that the receipt's verdict is one for, producer by producer."""
        return list(self.receipt["cell"]["precision"].get("chains", []))

    def told(self) -> list[str]:
        """One line a chain: the seams that were bound and judged as one."""
        name = short(self.receipt["digest"])
        return [
            f"receipt {name}: one unit: {chain['producer']} -> {', '.join(chain['readers'])}"
            for chain in self.chains
        ]

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
        if self.chains:
            out["chains"] = self.chains
        if self.mismatch:
            found = self.mismatch.found_in(self.receipt)
            out["mismatch"] = {
                "fact": self.mismatch.name, "expected": self.mismatch.expected, "found": found,
            }  # fmt: skip
        return out


def _not_live(
    bodies: Sequence[Body], verifier: Verifier | None, revoked: Iterable[str]
) -> dict[str, Because]:
    """Why receipts count for nothing, by digest, as the matrix and a release see it."""
    found = resolve(bodies, revoked)
    dead = dict(found.dead)
    for claimed in found.contested.values():
        names = ", ".join(short(body["digest"]) for body in claimed)
        what = f"{len(claimed)} live receipts claim this cell: {names}"
        dead |= {b["digest"]: Because(Reason.AMBIGUOUS, what, b["digest"]) for b in claimed}
    if verifier is not None:
        for body in bodies:
            wrong = [] if body["digest"] in found.dead else verifier(body)
            if wrong:
                dead[body["digest"]] = wrong[0]
    return dead


def _against(body: Body, facts: Sequence[Fact]) -> tuple[int, Fact | None]:
    for matched, fact in enumerate(facts):
        if not fact.holds(body):
            return matched, fact
    return len(facts), None


def consider(
    receipts: Iterable[Body],
    facts: Sequence[Fact],
    verifier: Verifier | None = None,
    revoked: Iterable[str] = (),
) -> list[Considered]:
    """Every receipt against the facts, in their order; those that matched furthest come first.

    With a ``verifier``, a receipt that does not follow from its own evidence answers nothing.
    ``revoked`` are receipts that the store remembers as withdrawn.
    """
    bodies = list(receipts)
    dead = _not_live(bodies, verifier, revoked)
    out = [Considered(body, *_against(body, facts), dead.get(body["digest"])) for body in bodies]
    return sorted(
        out, key=lambda c: (not c.serves, -c.matched, c.dead is not None, c.receipt["digest"])
    )


def _text(value: Any) -> str:
    if value is None:
        return "unknown"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def differ(expected: Any, found: Any) -> tuple[str, str]:
    """Both values in words; of two lists, only what the other has not."""
    if isinstance(expected, list) and isinstance(found, list):
        more = [part for part in expected if part not in found]
        less = [part for part in found if part not in expected]
        if more or less:  # else: the same parts in another order, or another number of times
            return _text(more) if more else "(no more)", _text(less) if less else "(no more)"
    return _text(expected), _text(found)


def table(considered: Sequence[Considered]) -> Table:
    """For people: one row a receipt."""
    rows = []
    for item in considered:
        fact = item.mismatch
        why = said(map(Because.from_record, item.receipt["verdict"]["reasons"]))
        wanted, has = differ(fact.expected, fact.found_in(item.receipt)) if fact else ("", "")
        rows.append(
            (
                label(item.receipt["cell"]),
                short(item.receipt["digest"]),
                item.receipt["verdict"]["state"],
                fact.name.removeprefix("cell.") if fact else "",
                wanted,
                has,
                f"{item.dead.reason.name}: {item.dead.detail}" if item.dead else why,
            )
        )
    columns = ("cell", "receipt", "state", "first mismatch", "expected", "found", "why")
    return Table(columns, rows, "receipts considered")
