"""A result as SARIF 2.1.0: problems with their place in a file, for code scanning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from flashrt.report.safe_text import visible
from flashrt_cli.render_human import say
from flashrt_cli.render_json import dumps

if TYPE_CHECKING:
    from flashrt.document.problem import Problem
    from flashrt_cli.output import Output

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def _result(level: str, problem: Problem) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ruleId": problem.reason.code,
        "level": level,
        "message": {"text": visible(say(problem))},
    }
    if problem.file:
        uri = quote(visible(problem.file).replace("\\", "/"))
        found["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri},
                    "region": {"startLine": max(1, problem.line)},
                },
                "logicalLocations": [{"fullyQualifiedName": visible(problem.path)}],
            }
        ]
    return found


def render(result: Output) -> str:
    """One run; its rules are the reasons that occur."""
    from flashrt_cli.main import version

    found = [_result("error", p) for p in result.problems]
    found += [_result("warning", p) for p in result.warnings]
    reasons = {p.reason.code: p.reason for p in [*result.problems, *result.warnings]}
    rules = [
        {"id": code, "name": reason.name, "shortDescription": {"text": reason.sentence}}
        for code, reason in sorted(reasons.items())
    ]
    driver = {"name": "flashrt", "version": version(), "rules": rules}
    return dumps(
        {
            "$schema": _SCHEMA,
            "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": found}],
        }
    )
