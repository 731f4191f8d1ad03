"""The factory of evidence and receipts, as a fixture."""

from __future__ import annotations

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
