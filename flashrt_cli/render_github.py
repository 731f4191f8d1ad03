"""A result for GitHub Actions: plain text, annotations worst first, and a step summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flashrt.report import safe_text, table
from flashrt_cli.render_human import plain, say

if TYPE_CHECKING:
    from flashrt.document.problem import Problem
    from flashrt_cli.output import Output

# A runner shows ten annotations of each level a step; more would hide the worst ones' order.
SHOWN = 10


def annotation(level: str, problem: Problem) -> str:
    """One workflow command. Nothing in the problem's text can end it or start another."""
    title = f"{problem.reason.code} {problem.reason.name}"
    properties = [f"title={safe_text.annotation_property(title)}"]
    if problem.file:
        where = [f"file={safe_text.annotation_property(problem.file)}", f"line={problem.line}"]
        properties = where + properties
    return f"::{level} {','.join(properties)}::{safe_text.annotation_data(say(problem))}"


def render(result: Output) -> str:
    """Plain text, then at most ten annotations of each level, errors first."""
    lines = [annotation("error", p) for p in result.problems[:SHOWN]]
    lines += [annotation("warning", p) for p in result.warnings[:SHOWN]]
    return plain(result) + "".join(line + "\n" for line in lines)


def summary(result: Output) -> str:
    """Markdown for the step summary."""
    parts = [f"### {safe_text.markdown(result.title)}\n"] if result.title else []
    parts += [table.markdown(t) for t in result.tables]
    lines = [part for text in result.lines for part in text.split("\n") if part.strip()]
    if lines:
        parts.append("".join(f"{safe_text.markdown(line)}  \n" for line in lines))
    bullets = [("error", p) for p in result.problems] + [("warning", p) for p in result.warnings]
    if bullets:
        parts.append("".join(f"- **{lvl}** {safe_text.markdown(say(p))}\n" for lvl, p in bullets))
    return "\n".join(parts) + "\n"


def append_summary(result: Output, environ: Mapping[str, str]) -> None:
    """Append to the file ``GITHUB_STEP_SUMMARY`` names, where there is one that can be written."""
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as handle:
            handle.write(summary(result))
    except OSError:
        # The summary repeats what stdout says; a result is not lost over it.
        return
