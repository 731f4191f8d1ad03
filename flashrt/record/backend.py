"""ExecutionBackend: what actually computed and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ExecutionBackend:
    """What computed and stored in one execution: observed there, never requested.

    ``library`` is a library and its version, ``precision`` what the computation was done in. It
    claims nothing about other hardware.
    """

    compute_device: str
    device_state_storage: str
    host_state_storage: str
    library: str
    precision: str

    def record(self) -> dict[str, Any]:
        """JSON form: the five fields."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ExecutionBackend:
        """The inverse of :meth:`record`."""
        return cls(
            compute_device=record["compute_device"],
            device_state_storage=record["device_state_storage"],
            host_state_storage=record["host_state_storage"],
            library=record["library"],
            precision=record["precision"],
        )
