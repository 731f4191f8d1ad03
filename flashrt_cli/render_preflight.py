"""What a preflight found, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashrt_cli.output import Case, Outcome, Output, Problem, Table, problem_of

if TYPE_CHECKING:
    from flashrt.qualify.preflight_run import StoredPreflight

_OUTCOMES = {
    "passed": Outcome.PASSED,
    "failed": Outcome.FAILED,
    "not_done": Outcome.NOT_MEASURED,
}


def render(found: StoredPreflight) -> Output:
    """One row a check, then why nothing was measured."""
    checks = found.report.checks
    table = Table(
        ("check", "of", "outcome", "detail"),
        [(c["name"], c["subject"], c["outcome"], c["detail"]) for c in checks],
        "without the device",
    )
    failed = [c for c in checks if c["outcome"] == "failed"]
    problems = [Problem("", 1, c["subject"] or "$", f"{c['name']}: {c['detail']}") for c in failed]
    problems += [problem_of(because) for because in found.report.reasons]
    return Output(
        title="preflight",
        tables=[table],
        lines=["nothing was measured: the state is unknown", f"record {found.digest}"],
        data={"record": found.digest, **found.report.record},
        problems=problems,
        cases=[
            Case(f"{c['name']} {c['subject']}", _OUTCOMES[c["outcome"]], c["detail"])
            for c in checks
        ],
    )
