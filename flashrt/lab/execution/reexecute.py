"""Running a recorded setup again: the same digest, another binding, or not the same at all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flashrt.lab.execution.compare import Comparison, compare
from flashrt.lab.execution.file import StoredExecution
from flashrt.lab.execution.run import Model, execute
from flashrt.lab.execution.setup import Setup
from flashrt_runtime.reason import Because


class Verdict(Enum):
    """What a second execution says of a record."""

    REPRODUCED = "reproduced"
    ANOTHER_BINDING = "another binding"
    NOT_REPRODUCED = "not reproduced"


@dataclass(frozen=True)
class Reexecution:
    """A record, the same setup run again here, and what tells the two apart."""

    recorded: StoredExecution
    again: StoredExecution
    comparison: Comparison

    @property
    def verdict(self) -> Verdict:
        """REPRODUCED for one digest; else by whether code, backend or model are others."""
        if self.recorded.digest == self.again.digest:
            return Verdict.REPRODUCED
        return Verdict.ANOTHER_BINDING if self.bindings else Verdict.NOT_REPRODUCED

    @property
    def bindings(self) -> tuple[Because, ...]:
        """Where code, interpreter, commit, backend or model differ from the recorded ones."""
        return self.comparison.bindings

    @property
    def same_evidence(self) -> bool:
        """Whether events, computations, choices, outcomes and ledger are the same all the same."""
        bound = ("execution", "model_artifact", "digest")
        one, other = (
            {key: value for key, value in stored.body.items() if key not in bound}
            for stored in (self.recorded, self.again)
        )
        return one == other


def reexecute(recorded: StoredExecution, model: Model) -> Reexecution:
    """Run a record's setup again, with the model that is here."""
    record = recorded.record
    again = execute(Setup.of(record), model, record.execution.command)
    return Reexecution(recorded, again, compare(recorded, again))
