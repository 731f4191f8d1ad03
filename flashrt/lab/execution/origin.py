"""Whether a record came from where it says: its command, and the design's arm that it names."""

from __future__ import annotations

from collections.abc import Iterator

from flashrt.document.problem import InputError
from flashrt.lab.execution.design import designs_root, read_design
from flashrt.lab.execution.file import StoredExecution
from flashrt.lab.execution.run import command_of
from flashrt.lab.execution.setup import Setup
from flashrt_runtime.reason import Refusal


def origin(stored: StoredExecution) -> Iterator[tuple[str, str]]:
    """What of it is not so. A design that is not here, or is another one by now, says nothing."""
    execution = stored.record.execution
    try:
        setup = Setup.of(stored.record)
    except Refusal:  # then it has no settings, which is another claim
        return
    if execution.command != command_of(setup):
        yield "$.execution.command", "it is not the command that runs this setup"
    if execution.processes != 0 or isinstance(execution.processes, bool):
        yield "$.execution.processes", "no process measured anything in virtual time"
    named = setup.design
    if named is None:
        return
    try:
        known = {path.stem: path for path in designs_root().glob("*.yaml")}
        found = read_design(known[named.name]) if named.name in known else None
        if found is not None and found.digest == named.digest and found.setup(named.arm) != setup:
            yield "$.design", "the setup is not that of the design's arm"
    except InputError as error:
        yield "$.design", error.problems[0].what
