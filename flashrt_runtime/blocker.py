"""What kept a step from being captured: said in one line, with the line of code it was about."""

from __future__ import annotations

import types

from flashrt_runtime.reason import Reason, Refusal

ONLY_DIAGNOSIS = "remove what blocks the capture; form=('eager',) runs it for diagnosis only"


def chain(error: BaseException) -> list[BaseException]:
    """The error and what caused it, outermost first."""
    found: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in found:
        found.append(following)
        inner = getattr(following, "inner_exception", None)
        following = inner or following.__cause__ or following.__context__
    return found


def _place(error: BaseException) -> str:
    """The innermost line that belongs neither to torch nor to this package."""
    found = ""
    step: types.TracebackType | None = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if "/torch/" not in code.co_filename and "/flashrt_runtime/" not in code.co_filename:
            found = f'File "{code.co_filename}", line {step.tb_lineno}, in {code.co_name}'
        step = step.tb_next
    return found


def blocker(error: BaseException) -> str:
    """The first line of what was said, a compiler's explanation, and where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    places = [line for line in lines if line.startswith("File ")]
    explanation = [line for line in lines if line.startswith("Explanation:")]
    place = places[-1:] or [found for found in [_place(error)] if found]
    return "; ".join([said, *explanation[:1], *place])


def uncapturable(error: BaseException, name: str) -> Refusal:
    """The refusal that a failed capture ends with: one of ours that was raised inside, or
    UNCAPTURABLE with the blocker."""
    for cause in chain(error):
        if isinstance(cause, Refusal):
            return cause
    return Refusal(Reason.UNCAPTURABLE, blocker(error), subject=name, do=ONLY_DIAGNOSIS)
