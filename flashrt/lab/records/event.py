"""Occurrences within an execution, linked to their causes in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from flashrt.lab.records.base import Record, Says

EventKind = Literal[
    "arrival",
    "action",
    "queued",
    "refused",
    "rejected",
    "ignored",
    "admitted",
    "cache_hit",
    "cache_miss",
    "claimed",
    "transfer_started",
    "transfer_completed",
    "compute_started",
    "compute_completed",
    "selected",
    "published",
    "publication_blocked",
    "consumed",
    "completed",
    "cancelled",
    "failed",
    "released",
    "retained",
    "demoted",
    "evicted",
]


@dataclass(frozen=True, slots=True)
class CacheEvent(Record):
    """One occurrence: what happened, when, to which request, and which events caused it.

    Nearness and equal times say nothing about causes. Only arrivals and actions have none. What was
    selected or published is not in it.
    """

    event_id: Annotated[int, Says("Its number in the execution, from 0.", "1", least=0)]
    causes: Annotated[tuple[int, ...], Says("Numbers of the events that caused it.", "1")]
    kind: Annotated[EventKind, Says("What happened.")]
    time_us: Annotated[Fraction, Says("When it happened.", "virtual us", least=0)]
    request_id: Annotated[str | None, Says("The request; none for what concerns none.")] = None
    work_id: Annotated[str | None, Says("The work item that it belongs to.")] = None
    state: Annotated[str | None, Says("Name of the KV state that it is about.")] = None
    bytes: Annotated[int | None, Says("Bytes reserved, freed or moved.", "bytes", least=0)] = None
    positions: Annotated[
        int | None, Says("Positions reused, computed or moved.", "positions", least=0)
    ] = None
    place: Annotated[str | None, Says("Where: device, host, or a node or link of the graph.")] = (
        None
    )
