"""Which receipts are live: superseded and revoked ones are not, and a cell has one at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flashrt.release.source import Body, Source, short
from flashrt_runtime.reason import Because, Reason, Refusal


@dataclass(frozen=True)
class Resolution:
    """Live receipts by cell digest, cells with two of them, and why the rest are not live."""

    live: dict[str, Body]
    contested: dict[str, tuple[Body, ...]]
    dead: dict[str, Because]
    revokes: tuple[str, ...]


def withdrawn(source: Source) -> frozenset[str]:
    """Receipts that were withdrawn when an earlier release was published: the store remembers."""
    return frozenset(d for record in source.list("revocation") for d in record["revokes"])


def resolve(receipts: Iterable[Body], withdrawn: Iterable[str] = ()) -> Resolution:
    """Apply ``supersedes`` and ``revokes``, and the digests that the caller withdraws.

    A receipt supersedes only one of its own cell: naming another cell's changes nothing there.
    Withdrawing a receipt does not bring back the one that it superseded.
    """
    bodies = {body["digest"]: body for body in receipts}
    revoked = set(withdrawn)
    for body in bodies.values():
        revoked.update(body["revokes"])
    dead = {d: Because(Reason.REVOKED, "the receipt was withdrawn", d) for d in revoked}
    for body in bodies.values():
        older = bodies.get(body["supersedes"] or "")
        if older is not None and older["cell_digest"] == body["cell_digest"]:
            newer = short(body["digest"])
            dead.setdefault(
                older["digest"],
                Because(Reason.REVOKED, f"superseded by receipt {newer}", older["digest"]),
            )
    by_cell: dict[str, list[Body]] = {}
    for digest, body in sorted(bodies.items()):
        if digest not in dead:
            by_cell.setdefault(body["cell_digest"], []).append(body)
    return Resolution(
        live={cell: found[0] for cell, found in by_cell.items() if len(found) == 1},
        contested={cell: tuple(found) for cell, found in by_cell.items() if len(found) > 1},
        dead={digest: why for digest, why in dead.items() if digest in bodies},
        revokes=tuple(sorted(revoked)),
    )


def ambiguous(cell_digest: str, receipts: tuple[Body, ...]) -> Refusal:
    """Two live receipts for one cell: nobody but the author can say which one holds."""
    names = ", ".join(short(body["digest"]) for body in receipts)
    return Refusal(
        Reason.AMBIGUOUS,
        f"{len(receipts)} live receipts claim this cell: {names}",
        subject=f"cell {short(cell_digest)}",
        do="withdraw one with `--revoke DIGEST`",
    )
