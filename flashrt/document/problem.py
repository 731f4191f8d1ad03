"""One thing wrong in one file, in the form every message has."""

from __future__ import annotations

from dataclasses import dataclass

from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class Problem:
    """``file:line: $.path: what is wrong; what to do``."""

    file: str
    line: int
    path: str
    what: str
    do: str = ""
    reason: Reason = Reason.SCHEMA

    def __str__(self) -> str:
        advice = f"; {self.do}" if self.do else ""
        return f"{self.file}:{self.line}: {self.path}: {self.what}{advice}"


class InputError(Refusal):
    """Input that was refused. Carries every problem found, worst first; exit code 2."""

    def __init__(
        self,
        file: str,
        line: int,
        path: str,
        what: str,
        do: str = "",
        *,
        reason: Reason = Reason.SCHEMA,
    ) -> None:
        self.problems: tuple[Problem, ...] = (Problem(file, line, path, what, do, reason),)
        super().__init__(reason, what, subject=f"{file}:{line}: {path}", do=do)

    @classmethod
    def of(cls, problems: list[Problem]) -> InputError:
        """One error for several problems (at least one)."""
        first = problems[0]
        error = cls(first.file, first.line, first.path, first.what, first.do, reason=first.reason)
        error.problems = tuple(problems)
        return error

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
