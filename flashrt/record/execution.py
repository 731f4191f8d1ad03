"""ExperimentExecution: one identified execution, what it ran on, and by which clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashrt.record.backend import ExecutionBackend
from flashrt.record.clock import VirtualClock, WallClock
from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class Provenance:
    """The code that an execution ran: never what it was asked to do.

    ``source_digest`` is over the source files, ``python`` is the interpreter's version, ``git`` the
    commit of the checkout, ``None`` outside one.
    """

    source_digest: str
    python: str
    git: str | None

    def record(self) -> dict[str, Any]:
        """JSON form: ``{"source_digest", "python", "git"}``."""
        return {"source_digest": self.source_digest, "python": self.python, "git": self.git}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Provenance:
        """The inverse of :meth:`record`."""
        return cls(record["source_digest"], record["python"], record["git"])


@dataclass(frozen=True)
class ExperimentExecution:
    """One identified execution; what it consumed and saw lies beside it in the same document.

    A measured arm has a ``wall`` clock, a run in the lab a ``virtual`` one. ``command`` holds no
    local path; ``processes`` counts the fresh processes that measured (0: none did).

    Raises :class:`Refusal` (CONFLICT) for no clock and for two.
    """

    id: str
    tool_version: str
    command: tuple[str, ...]
    backend: ExecutionBackend
    processes: int
    wall: WallClock | None = None
    virtual: VirtualClock | None = None
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        if (self.wall is None) is (self.virtual is None):
            what = "an execution has one clock, and this one has "
            what += "none" if self.wall is None else "a measured and a virtual one"
            raise Refusal(Reason.CONFLICT, what, subject=self.id)

    def record(self) -> dict[str, Any]:
        """JSON form: a wall clock's keys among the others, a virtual one's under ``virtual``."""
        body: dict[str, Any] = {"id": self.id}
        if self.wall is not None:
            body |= self.wall.record()
        if self.virtual is not None:
            body["virtual"] = self.virtual.record()
        body |= {
            "tool_version": self.tool_version,
            "command": list(self.command),
            "backend": self.backend.record(),
            "processes": self.processes,
        }
        if self.provenance is not None:
            body["provenance"] = self.provenance.record()
        return body

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ExperimentExecution:
        """The inverse of :meth:`record`. Raises :class:`Refusal` as the clocks and the class do."""
        measured = "started_at" in record or "ended_at" in record
        code = record.get("provenance")
        return cls(
            id=record["id"],
            tool_version=record["tool_version"],
            command=tuple(record["command"]),
            backend=ExecutionBackend.from_record(record["backend"]),
            processes=record["processes"],
            wall=WallClock.from_record(record) if measured else None,
            virtual=VirtualClock.from_record(record["virtual"]) if "virtual" in record else None,
            provenance=Provenance.from_record(code) if code is not None else None,
        )
