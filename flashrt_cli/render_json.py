"""A result for a program: one JSON object on stdout."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashrt.document.problem import Problem
    from flashrt_cli.output import Output


def api_error(problem: Problem) -> dict[str, str]:
    """A problem as an ApiError record: it names the subject and the rule that refused it."""
    subject = f"{problem.file}:{problem.line}: {problem.path}" if problem.file else problem.path
    return {
        "code": problem.reason.code,
        "name": problem.reason.name,
        "subject": subject,
        "rule": problem.reason.sentence,
        "message": problem.what,
        "advice": problem.do,
    }


def plain_json(value: Any) -> Any:
    """The value with what JSON cannot say made sayable: NaN and infinity as null, paths as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_json(v) for v in value]
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


def dumps(value: Any) -> str:
    """Indented JSON; no CI runner finds a command in it."""
    text = json.dumps(plain_json(value), indent=2, allow_nan=False)
    return text.replace("##[", "\\u0023#[").replace("##vso[", "\\u0023#vso[") + "\n"


def render(result: Output) -> str:
    """``data`` with ``problems`` and ``warnings`` as ApiError records where there are any."""
    body: Mapping[str, Any] = dict(result.data)
    extra = {}
    if result.problems:
        extra["problems"] = [api_error(p) for p in result.problems]
    if result.warnings:
        extra["warnings"] = [api_error(p) for p in result.warnings]
    return dumps({**body, **extra})
