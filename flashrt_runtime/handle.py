"""What :func:`flashrt_runtime.swap.attach` returns: counters, accounts, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from flashrt_runtime import chain
from flashrt_runtime.adapters.accounts import AdapterReport, accounts_in, adapter_report
from flashrt_runtime.guard import GuardFail
from flashrt_runtime.ledger import RunLine, export, lines
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.roots import RootGuards, ThreadOwner
from flashrt_runtime.seat import SeamState, Seat, Turn, make_seat

if TYPE_CHECKING:
    from flashrt_runtime.capture import Stage
    from flashrt_runtime.contract import Seam
    from flashrt_runtime.swap import Swap


@dataclass(frozen=True)
class SeamReport:
    """One seam's counters. ``calls`` (eager, by the implementation), ``dispatched`` (the host, by
    design) and ``fallbacks`` (the host, because a call broke the contract) are disjoint;
    ``replayed`` counts operators run inside captured stages."""

    seam: str
    structure: str
    backend: str
    form: str
    calls: int
    dispatched: int
    fallbacks: int
    replayed: int
    last_reason: str | None
    restored: bool
    contract: str
    chain: str | None = None  # the chain that it is attached and taken out with

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class _Place:
    """Where one host module sat."""

    parent: nn.Module
    name: str
    host: nn.Module
    seat: nn.Module

    def put(self, module: nn.Module) -> None:
        """Put a module at this place, under the same key and so in the same order."""
        self.parent._modules[self.name] = module


class Handle:
    """An attachment. Made by :func:`flashrt_runtime.swap.attach`, which has checked the swaps."""

    def __init__(self, model: nn.Module, swaps: Sequence[Swap], on_fail: GuardFail) -> None:
        self.model = model
        self.run = RunLine()
        self._swaps = {swap.seam.id: swap for swap in swaps}
        self._states: dict[str, SeamState] = {}
        self._places: dict[str, tuple[_Place, ...]] = {}
        self._wires = {s.link.unit: chain.Wire(s.link.unit) for s in swaps if s.link is not None}
        self._stages: list[Stage] = []
        self._owner = ThreadOwner()
        self._guards = RootGuards(model, self._owner)
        for swap in swaps:
            self._seat(swap, on_fail)
        try:
            self._guards.install()
            for places in self._places.values():
                for place in places:
                    place.put(place.seat)
        except BaseException:
            self.detach()
            raise

    def _seat(self, swap: Swap, on_fail: GuardFail) -> None:
        seam = swap.seam
        state = SeamState(seam, swap.contract, on_fail)
        state.restore = lambda: self._leave(swap.unit)
        turn = Turn(len(seam.members))
        wire, part = self._wires.get(swap.unit), chain.EMITS
        if wire is not None and swap.link is not None and not swap.link.emits:
            part = wire.join(state)
        places = []
        for index, (role, path) in enumerate(seam.members.items()):
            parent, _, name = path.rpartition(".")
            host = self.model.get_submodule(path)
            body = swap.bound.bodies[role].eval()
            seat = make_seat(host, body, state, turn, index, wire=wire, part=part)
            places.append(_Place(self.model.get_submodule(parent), name, host, seat))
        self._states[seam.id] = state
        self._places[seam.id] = tuple(places)

    def _put_back(self, seam_id: str) -> None:
        for place in self._places[seam_id]:
            place.put(place.host)

    def _leave(self, unit: str) -> None:
        """Give a whole unit back; a chain first lets its readers read what was sent."""
        parts = [seam_id for seam_id, swap in self._swaps.items() if swap.unit == unit]

        def put_back() -> None:
            for seam_id in parts:
                self._put_back(seam_id)

        wire = self._wires.get(unit)
        for state in (self._states[seam_id] for seam_id in parts):
            if wire is not None and not state.restored:
                state.last_reason = f"the chain of {unit} was taken out whole"
            state.restored = True
        if wire is None:
            put_back()
        else:
            wire.depart(put_back)

    @property
    def seams(self) -> tuple[Seam, ...]:
        """Every seam that was attached."""
        return tuple(swap.seam for swap in self._swaps.values())

    @property
    def units(self) -> dict[str, tuple[str, ...]]:
        """Seam ids by unit: a chain's, or one seam's own."""
        found: dict[str, list[str]] = {}
        for seam_id, swap in self._swaps.items():
            found.setdefault(swap.unit, []).append(seam_id)
        return {unit: tuple(parts) for unit, parts in found.items()}

    def detach_unit(self, unit: str) -> None:
        """Put the host's modules of one unit back, a chain's all together. Idempotent.

        Its counters stay in the report, as restored. Raises :class:`Refusal`: CONFLICT for a seam
        that is part of a chain, BINDING for a name that is no unit here.
        """
        if unit not in self.units:
            owner = self._swaps[unit].unit if unit in self._swaps else None
            if owner is not None:
                what = f"it is part of the chain {owner!r}, which is taken out whole"
                raise Refusal(Reason.CONFLICT, what, subject=unit)
            raise Refusal(Reason.BINDING, "no such unit is attached", subject=unit)
        self._leave(unit)

    @property
    def attached(self) -> bool:
        """Whether a seat is still in the model."""
        return any(
            isinstance(place.parent._modules.get(place.name), Seat)
            for places in self._places.values()
            for place in places
        )

    def claim_thread(self) -> None:
        """Refuse a second thread before anything runs. Raises :class:`Refusal` (THREAD)."""
        self._owner.claim()

    def add_stage(self, stage: Stage) -> None:
        """Fold a captured stage's replays into this handle's counters."""
        if stage not in self._stages:
            self._stages.append(stage)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The captured stages that were added."""
        return tuple(self._stages)

    def _replayed(self, seam_id: str) -> int:
        return sum(stage.replays * stage.operators.get(seam_id, 0) for stage in self._stages)

    def report(self) -> dict[str, SeamReport]:
        """Per seam id, its counters, its form and why the host last ran."""
        found = {}
        for seam_id, swap in self._swaps.items():
            state = self._states[seam_id]
            found[seam_id] = SeamReport(
                seam=seam_id,
                structure=swap.seam.structure,
                backend=swap.backend,
                form=swap.form,
                calls=state.calls,
                dispatched=state.dispatched,
                fallbacks=state.fallbacks,
                replayed=self._replayed(seam_id),
                last_reason=state.last_reason,
                restored=state.restored,
                contract=str(swap.contract),
                chain=None if swap.link is None else swap.link.unit,
            )
        return found

    def adapters(self) -> tuple[AdapterReport, ...]:
        """Per adapter inside a seam's bodies, what its core ran and what it left to the host."""
        return tuple(
            adapter_report(seam_id, role, account, self._replayed(seam_id))
            for seam_id, swap in self._swaps.items()
            for role in swap.seam.members
            for account in accounts_in(swap.bound.bodies[role])
        )

    def summary(self) -> dict[str, Any]:
        """Totals, the seams that fell back or never ran, and ``clean``.

        Clean is: at least one seam, every seam ran its implementation, none fell back, an
        adapter's core ran and declined no call wherever a seam has one, and no reader of a chain
        missed what was sent last (``unread``).
        """
        reports, adapters = self.report().values(), self.adapters()
        declined = {one.seam for one in adapters if one.fallbacks > 0}
        idle = {one.seam for one in adapters if not one.ran}
        fell = [r.seam for r in reports if r.fallbacks > 0 or r.seam in declined]
        never = [r.seam for r in reports if r.calls + r.replayed == 0 or r.seam in idle]
        unread = [seam for wire in self._wires.values() for seam in wire.unread]
        return {
            "clean": bool(reports) and not (fell or never or unread),
            "seams": len(reports),
            "calls": sum(r.calls for r in reports),
            "dispatched": sum(r.dispatched for r in reports),
            "fallbacks": sum(r.fallbacks for r in reports) + sum(a.fallbacks for a in adapters),
            "replayed": sum(r.replayed for r in reports),
            "fell_back": fell,
            "never_called": never,
            "unread": unread,
            "restored": [r.seam for r in reports if r.restored],
        }

    def raise_on_fallback(self) -> None:
        """Raise :class:`Refusal` (FALLBACK) when a seam ran the host against its contract."""
        reports: list[SeamReport | AdapterReport] = [*self.report().values(), *self.adapters()]
        for report in reports:
            if report.fallbacks > 0:
                what = f"{report.fallbacks} fallbacks, the last: {report.last_reason}"
                raise Refusal(Reason.FALLBACK, what, subject=report.seam)

    def raise_unless_clean(self) -> None:
        """As :meth:`raise_on_fallback`, and NEVER_CALLED for a seam that never ran."""
        self.raise_on_fallback()
        summary = self.summary()
        if not summary["clean"]:
            never = summary["never_called"]
            never = never or summary["unread"]
            what = "no seam is attached" if not summary["seams"] else f"never ran: {never}"
            raise Refusal(Reason.NEVER_CALLED, what)

    def ledger_lines(self) -> list[dict[str, Any]]:
        """Ledger records: the run, every seam, every adapter, every captured stage."""
        return lines(self.run, self.report().values(), self._stages, self.adapters())

    def export(self, path: str | Path) -> None:
        """Write the ledger as JSON lines, whole or not at all."""
        export(self.ledger_lines(), Path(path))

    def detach(self) -> None:
        """Put the host's own module objects back and take the guards away. Idempotent."""
        for seam_id in self._places:
            self._put_back(seam_id)
        self._guards.remove()
