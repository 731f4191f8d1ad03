"""The committed model, which computes each thing once for all tests of a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pytest

from flashrt.lab.engine import MemoExecutor
from flashrt.lab.execution import LabModel, StoredExecution, execute, find_design, load_model
from flashrt.lab.execution.file import sealed
from flashrt.lab.records import ExecutionRecord


@dataclass(frozen=True)
class Remembering(LabModel):
    """The model of the lab with one memo for all its executions; the memo changes no record."""

    @cached_property
    def memo(self) -> MemoExecutor:
        return MemoExecutor(super().executor())

    def executor(self) -> Any:
        return self.memo


@pytest.fixture(scope="session")
def fresh_model() -> LabModel:
    return load_model()


@pytest.fixture(scope="session")
def model(fresh_model) -> LabModel:
    return Remembering(fresh_model.identity, fresh_model.backend, fresh_model.loaded)


@pytest.fixture(scope="session")
def ran(model) -> Callable[[str, str], StoredExecution]:
    """The execution of one arm of a packaged design, run once in a session."""
    known: dict[tuple[str, str], StoredExecution] = {}

    def run(design: str, arm: str) -> StoredExecution:
        if (design, arm) not in known:
            known[design, arm] = execute(find_design(design).setup(arm), model)
        return known[design, arm]

    return run


@pytest.fixture(scope="session")
def hit(ran) -> StoredExecution:
    """An execution with hits, moves and evictions."""
    return ran("transfer_or_recompute", "link_100")


@pytest.fixture
def forged() -> Callable[..., StoredExecution]:
    """A record with other fields, sealed again as a forger would."""

    def forge(stored: StoredExecution, **changes: Any) -> StoredExecution:
        record: ExecutionRecord = replace(stored.record, **changes)
        return sealed(record, "forged.json")

    return forge
