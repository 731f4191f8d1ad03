"""Does each arm's captured step follow its windows? What the processes recorded, and reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flashrt.gate.reading import Malformed, field, integer, many, text
from flashrt_runtime.reason import Because, Reason

ARMS = ("host", "treated")


@dataclass(frozen=True)
class Followed:
    """One arm in one process: windows and held tensors that were changed and followed, windows
    that no other value was known for, and why the check refused, if it did."""

    process: int
    arm: str
    windows: tuple[str, ...]
    held: tuple[str, ...]
    unchanged: tuple[str, ...]
    refused: Because | None

    def reasons(self) -> list[Because]:
        """Why this arm does not count as following its windows; empty if it does."""
        where = f"process {self.process}, windows of the {self.arm} arm"
        if self.refused is not None:
            return [Because(self.refused.reason, self.refused.detail, where)]
        if self.unchanged:
            detail = f"no other value was tried in {', '.join(self.unchanged)}"
            return [Because(Reason.INCOMPLETE, detail, where)]
        if not self.windows:
            return [Because(Reason.INCOMPLETE, "no window was changed", where)]
        return []


def window_reasons(seen: Sequence[Followed], raced: Iterable[int]) -> list[Because]:
    """Reasons of every record, and INCOMPLETE where an arm of a process has not exactly one."""
    counted = Counter((one.process, one.arm) for one in seen)
    expected = {(process, arm) for process in raced for arm in ARMS}
    found = [
        Because(
            Reason.INCOMPLETE,
            f"the {arm} arm's windows were checked {counted[process, arm]} times, not once",
            f"process {process}, window_check",
        )
        for process, arm in sorted(expected | set(counted))
        if counted[process, arm] != 1
    ]
    return found + [because for one in seen for because in one.reasons()]


def _name(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise Malformed(path, "a non-empty string was expected")
    return value


def _refused(value: Any, path: str) -> Because | None:
    if value is None:
        return None
    name = text(value, "name", path)
    if name not in Reason.__members__:
        raise Malformed(f"{path}.name", "no reason is called that")
    reason = Reason[name]
    if text(value, "code", path) != reason.code:
        raise Malformed(f"{path}.code", f"{name} has the code {reason.code}")
    return Because(reason, text(value, "detail", path))


def read_followed(body: Any, path: str) -> Followed:
    """One record. Raises :class:`~flashrt.gate.reading.Malformed`."""
    arm = text(body, "arm", path)
    if arm not in ARMS:
        raise Malformed(f"{path}.arm", f"one of {', '.join(ARMS)} was expected")
    found = Followed(
        integer(body, "process", path),
        arm,
        many(body, "windows", path, _name),
        many(body, "held", path, _name),
        many(body, "unchanged", path, _name),
        _refused(field(body, "refused", path), f"{path}.refused"),
    )
    if found.refused is not None and (found.windows or found.held or found.unchanged):
        raise Malformed(f"{path}.refused", "a check that refused lists nothing besides")
    if set(found.windows) & set(found.unchanged):
        raise Malformed(f"{path}.unchanged", "a window cannot be followed and not be changed")
    return found
