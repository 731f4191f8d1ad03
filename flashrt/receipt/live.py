"""Which receipt of a cell is live: not superseded by a later one, not revoked by any."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from flashrt.receipt.instant import instant
from flashrt_runtime.reason import Reason, Refusal


def heads(
    receipts: Iterable[dict[str, Any]], cell_digest: str, withdrawn: Iterable[str] = ()
) -> tuple[dict[str, Any], ...]:
    """Every receipt of a cell that is neither superseded nor revoked, oldest first.

    A receipt supersedes only within its own cell; any receipt may revoke any other, and so may
    its author (``withdrawn``). What was superseded stays so when its successor is revoked:
    withdrawing a claim revives no older one.
    """
    mine: dict[str, dict[str, Any]] = {}
    gone: set[str] = set(withdrawn)
    for body in receipts:
        gone.update(body["revokes"])
        if body["cell_digest"] == cell_digest:
            mine[body["digest"]] = body
            if body["supersedes"] is not None:
                gone.add(body["supersedes"])
    found = [body for digest, body in mine.items() if digest not in gone]
    return tuple(sorted(found, key=_age))


def _age(body: dict[str, Any]) -> tuple[datetime, str]:
    return instant(body["execution"]["ended_at"]), body["digest"]


def live(
    receipts: Iterable[dict[str, Any]], cell_digest: str, withdrawn: Iterable[str] = ()
) -> dict[str, Any] | None:
    """The one live receipt of a cell (see :func:`heads`), or None.

    Raises :class:`Refusal` (AMBIGUOUS) naming the receipts when several are live.
    """
    found = heads(receipts, cell_digest, withdrawn)
    if len(found) > 1:
        raise Refusal(
            Reason.AMBIGUOUS,
            f"{len(found)} live receipts: {', '.join(body['digest'] for body in found)}",
            subject=cell_digest,
            do="qualify the cell again, which supersedes one, and revoke the others",
        )
    return found[0] if found else None
