"""The factory of evidence and receipts, as a fixture."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FACTORY = Path(__file__).parent.parent / "receipt" / "receipt_factory.py"


@pytest.fixture(scope="session")
def factory() -> ModuleType:
    spec = importlib.util.spec_from_file_location("receipt_factory", FACTORY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def quiet(factory):
    """Evidence of a clear win on a quiet machine; not to be changed."""
    return factory.evidence()


@pytest.fixture
def evidence(quiet):
    """The same, to be changed by one test."""
    return copy.deepcopy(quiet)


@pytest.fixture
def gate(factory):
    """The spec's own thresholds, nothing stated."""
    return factory.thresholds()
