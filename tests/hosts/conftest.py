"""Module trees of hosts that no installable package ships."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"hosts_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def key_tree() -> Any:
    """The words in which trees are written."""
    return _load("key_tree")


@pytest.fixture(scope="session")
def published(key_tree: Any) -> Callable[[str], dict[str, tuple[int, ...]]]:
    """Keys and shapes of a host, by the name of its tree."""
    return lambda name: _load(f"{name}_tree").keys(key_tree)
