"""The closing table of a qualification, and the exit codes that it amounts to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flashrt.release.state import State
from flashrt_cli.output import Case, ExitCode, Outcome, Output, Problem, Table

if TYPE_CHECKING:
    from flashrt.qualify.request import CellRequest
    from flashrt.qualify.result import CellResult

COLUMNS = (
    "cell",
    "state",
    "band",
    "speed-up",
    "interval",
    "against bf16",
    "top-1",
    "KL",
    "weights MB",
    "why not more",
)


def _row(result: CellResult) -> list[str]:
    why = "; ".join(dict.fromkeys(f"{b.reason.name}: {b.detail}" for b in result.because))
    if result.receipt is None:
        return [result.request.label, result.state, *["–"] * 7, why]
    verdict = result.receipt["verdict"]
    numbers = verdict["statistics"]
    speed, parity = numbers["speedup"], numbers["parity"] or {}
    dtype = numbers["dtype_ratio"].get("bfloat16")
    resources = result.receipt["evidence"]["resources"]
    before, after = resources["weight_bytes_host"], resources["weight_bytes_treated"]
    return [
        result.request.label,
        result.state,
        verdict["band"],
        f"{speed['median']:.3f}x" if speed else "–",
        f"{speed['low']:.3f} to {speed['high']:.3f}" if speed else "–",
        f"{dtype:.3f}x" if dtype is not None else "–",
        _number(parity.get("top1_agreement"), ".4f"),
        _number(parity.get("kl_mean"), ".2e"),
        f"{before / 1e6:.0f} to {after / 1e6:.0f}",
        why,
    ]


def _number(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)


def render(
    results: Sequence[CellResult],
    require: State | None,
    expected: Mapping[CellRequest, State],
) -> tuple[Output, list[ExitCode]]:
    """The result of a qualification and its exit codes, before precedence.

    A slower arm is a result; a failed gate or a cell below what was required or expected is 1; a
    cell that could not be measured here is 3.
    """
    codes: list[ExitCode] = []
    problems: list[Problem] = []
    cases: list[Case] = []
    for result in results:
        below = _below(result, require, expected)
        first = result.because[0] if result.because else None
        detail = below or (f"{first.reason.name}: {first.detail}" if first else result.state)
        failed = result.gate_failed or below is not None
        if failed:
            codes.append(ExitCode.GATE_FAILED)
            problems.append(_problem(result, detail))
        if not result.measured:
            codes.append(ExitCode.NOT_MEASURED)
            if not failed:
                problems.append(_problem(result, detail))
        outcome = Outcome.PASSED if result.measured else Outcome.NOT_MEASURED
        cases.append(Case(result.request.text, Outcome.FAILED if failed else outcome, detail))
    certified = sum(result.state == State.CERTIFIED_FAST for result in results)
    receipts = [r.receipt for r in results if r.receipt is not None]
    promise = sum(r["thresholds"]["alpha"] for r in receipts)
    output = Output(
        title="qualification",
        tables=[Table(COLUMNS, [_row(result) for result in results], "host time / treated time")],
        lines=[
            f"{len(results)} cells, {len(receipts)} measured, {certified} certified fast; "
            f"at most {promise:.3g} false promotions are expected"
        ],
        data={
            "cells": [
                {
                    "cell": result.request.text,
                    "state": result.state,
                    "receipt": result.receipt["digest"] if result.receipt else None,
                    "reasons": [because.record() for because in result.because],
                    "verdict": result.receipt["verdict"] if result.receipt else None,
                }
                for result in results
            ],
            "expected_false_promotions": promise,
        },
        problems=problems,
        cases=cases,
    )
    return output, codes


def _below(
    result: CellResult, require: State | None, expected: Mapping[CellRequest, State]
) -> str | None:
    state = State(result.state)
    if require is not None and not state.meets(require):
        return f"{state.value} is below {require.value}"
    wanted = expected.get(result.request)
    if wanted is not None and state is not wanted:
        return f"{state.value}, and {wanted.value} was expected"
    return None


def _problem(result: CellResult, detail: str) -> Problem:
    from flashrt_runtime.reason import Reason

    reason = result.because[0].reason if result.because else Reason.LOSS
    return Problem(
        "", 1, result.request.text, detail, f"see `flashrt explain {reason.code}`", reason
    )
