"""What came of one request: what was published, why it ended, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from flashrt.lab.records.base import Record, Says

StopReason = Literal["turn_end", "budget", "context_limit", "cancelled", "refused", "failed"]


@dataclass(frozen=True)
class ApiError(Record):
    """An operation that was rejected or failed. It claims nothing about what was executed."""

    subject: Annotated[str, Says("What was rejected or failed: a request or a field of it.")]
    rule: Annotated[str, Says("The rule that says so, in one sentence.")]
    message: Annotated[str, Says("What was seen that breaks the rule.")]
    request_id: Annotated[str | None, Says("The request; none where there is none yet.")] = None


@dataclass(frozen=True)
class RunOutcome(Record):
    """The output published for one request and how it ended. Nothing says that it was received."""

    request_id: Annotated[str, Says("The request.")]
    published_tokens: Annotated[int, Says("Tokens published.", "tokens", least=0)]
    stop_reason: Annotated[StopReason, Says("Why the request ended.")]
    complete: Annotated[bool, Says("Whether the response is whole: its turn ended or its budget.")]
    published_ids: Annotated[tuple[int, ...], Says("The published token IDs in order.", "1")] = ()
    selected_tokens: Annotated[
        int, Says("Selections made, published or not.", "tokens", least=0)
    ] = 0
    unused_budget: Annotated[int, Says("Selections not made.", "tokens", least=0)] = 0
    display: Annotated[str, Says("The published text, for reading; never repaired.")] = ""
    error: Annotated[ApiError | None, Says("The error, where it ended by one.")] = None
