"""What was seen of executed work: intermediate tensors, and times measured on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from flashrt.lab.records.base import Record, Says


@dataclass(frozen=True)
class TensorRecord(Record):
    """A tensor by identity; the numbers are held beside the record."""

    name: Annotated[str, Says("The value's name in its computation.")]
    dtype: Annotated[str, Says("Type of its numbers, such as float32.")]
    shape: Annotated[tuple[int, ...], Says("Its sizes.", "numbers")]
    sha256: Annotated[str, Says("Digest of its bytes, little-endian and row-major.")]
    depends_on: Annotated[tuple[str, ...], Says("Names of the values that it was made from.")] = ()
    data: Annotated[bytes | None, Says("Its bytes, while they are held.", held=True)] = None


@dataclass(frozen=True)
class LocalMeasurement(Record):
    """A time measured on this machine: it is no claim about another."""

    boundary: Annotated[str, Says("What the time begins and ends with.")]
    wall_ns: Annotated[int, Says("Time measured.", "ns", least=0)]


@dataclass(frozen=True)
class ExperimentObservation(Record):
    """What was captured of one work item."""

    work_id: Annotated[str, Says("The work item that was observed.")]
    tensors: Annotated[tuple[TensorRecord, ...], Says("Intermediate tensors.")] = ()
    measurements: Annotated[tuple[LocalMeasurement, ...], Says("Local times.")] = ()
