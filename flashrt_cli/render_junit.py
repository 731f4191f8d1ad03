"""A result as JUnit XML: one test case per thing that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashrt.report.safe_text import xml
from flashrt_cli.render_human import say

if TYPE_CHECKING:
    from flashrt_cli.output import Case, Output


def _cases(result: Output) -> list[Case]:
    from flashrt_cli.output import Case, Outcome

    if result.cases:
        return list(result.cases)
    if not result.problems:
        return [Case(result.title, Outcome.PASSED)]
    return [
        Case(f"{p.file or result.title} {p.path}".strip(), Outcome.FAILED, say(p), p.file)
        for p in result.problems
    ]


def _case(case: Case, suite: str) -> str:
    from flashrt_cli.output import Outcome

    head = f'  <testcase name="{xml(case.name)}" classname="{xml(case.group or suite)}"'
    if case.outcome is Outcome.PASSED:
        return f"{head}/>\n"
    tag = "failure" if case.outcome is Outcome.FAILED else "skipped"
    return f'{head}>\n    <{tag} message="{xml(case.detail)}"/>\n  </testcase>\n'


def render(result: Output) -> str:
    """One ``<testsuite>``; a thing that was not measured is ``skipped``, never passed."""
    from flashrt_cli.output import Outcome

    cases = _cases(result)
    failed = sum(c.outcome is Outcome.FAILED for c in cases)
    skipped = sum(c.outcome is Outcome.NOT_MEASURED for c in cases)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="{xml(result.title)}" tests="{len(cases)}" failures="{failed}" '
        f'skipped="{skipped}">\n'
        + "".join(_case(c, result.title) for c in cases)
        + "</testsuite>\n"
    )
