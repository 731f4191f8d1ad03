"""What the adapters inside a seam's bodies did, for the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.adapters.body import Account, Body

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class AdapterReport:
    """One adapter's counters: its seam and member, and the class of the host module it is in.

    ``calls`` (the core ran), ``dispatched`` (the host's own code, by design) and ``fallbacks``
    (the host's own code, because the call broke the core's boundary) are eager and disjoint;
    ``replayed`` counts the seam's operators in captured stages. A seat counts a call of the body
    as the seam's: only this says whether the core ran in it.
    """

    seam: str
    member: str
    host: str
    calls: int
    dispatched: int
    fallbacks: int
    replayed: int
    last_reason: str | None

    @property
    def ran(self) -> bool:
        """Whether the core ran at all."""
        return self.calls + self.replayed > 0

    def record(self) -> dict[str, Any]:
        """The ledger's fields of one line."""
        return {
            "seam": self.seam,
            "member": self.member,
            "host": self.host,
            "calls": self.calls,
            "dispatched": self.dispatched,
            "fallbacks": self.fallbacks,
            "replayed": self.replayed,
            "last_reason": self.last_reason,
        }


def accounts_in(body: nn.Module) -> list[Account]:
    """The accounts of every adapter that ``body`` is or holds."""
    return [module.account for module in body.modules() if isinstance(module, Body)]


def adapter_report(seam: str, member: str, account: Account, replayed: int) -> AdapterReport:
    """An account as it stands now. ``replayed``: the seam's operators run in captured stages."""
    return AdapterReport(
        seam=seam,
        member=member,
        host=account.subject,
        calls=account.calls,
        dispatched=account.dispatched,
        fallbacks=account.declined,
        replayed=replayed,
        last_reason=None if account.last is None else str(account.last),
    )
