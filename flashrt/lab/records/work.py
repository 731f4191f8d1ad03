"""Work that was executed: computations with their nodes, and the choices made from logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from flashrt.lab.records.base import Record, Says
from flashrt.lab.records.model import OperationName


@dataclass(frozen=True, slots=True)
class Node(Record):
    """One operation of one computation: what it reads, what it gives and what it takes."""

    id: Annotated[str, Says("Its name in the computation.")]
    operation: Annotated[OperationName, Says("Which of the seven operations.")]
    layer: Annotated[int | None, Says("The layer; none outside the layers.", "layer")]
    inputs: Annotated[tuple[str, ...], Says("Names of the values that it reads.")]
    outputs: Annotated[tuple[str, ...], Says("Names of the values that it gives.")]
    flops: Annotated[
        int,
        Says("Additions, products, quotients, comparisons, roots, powers.", "FLOPs", least=0),
    ]
    bytes: Annotated[int, Says("Memory traffic: what is read and written.", "bytes", least=0)]


@dataclass(frozen=True, slots=True)
class CacheComputation(Record):
    """A forward computation that ran, between two KV states that are named by content."""

    work_id: Annotated[str, Says("The work item, unique in its execution.")]
    input_ids: Annotated[tuple[int, ...], Says("Token IDs that were run.", "1")]
    nodes: Annotated[tuple[Node, ...], Says("Its operations in order.")]
    state_before: Annotated[str | None, Says("Name of the state continued; none: none was.")]
    state_after: Annotated[str, Says("Name of the state that it made.")]
    request_id: Annotated[str | None, Says("The request that it was done for.")] = None


@dataclass(frozen=True, slots=True)
class TokenSelection(Record):
    """One choice: the scores as the model gave them, and the token that was taken."""

    raw_logits: Annotated[tuple[float, ...], Says("Scores by token ID, unchanged.", "1")]
    selected_id: Annotated[int, Says("The token chosen.", "1", least=0)]
    probabilities: Annotated[tuple[float, ...], Says("Softmax of the scores, for reading.", "1")]
    request_id: Annotated[str | None, Says("The request.")] = None
    work_id: Annotated[str | None, Says("The computation that gave the scores.")] = None
    step: Annotated[int, Says("Which selection of its request, from 0.", "1", least=0)] = 0
    algorithm: Annotated[Literal["greedy"], Says("How it was chosen; the first of equals.")] = (
        "greedy"
    )
