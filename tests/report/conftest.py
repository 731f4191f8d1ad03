"""A calibration receipt of five points over 200 frames at percentile 99, made by hand."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from flashrt.document.canonical import seal, sha256

FRAMES = 200


def _load(name: str) -> ModuleType:
    """A module of this folder that is no test."""
    spec = spec_from_file_location(f"report_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a browser its tests are left out, and counted as deselected."""
    if _load("browser").find() is None:
        without = [item for item in items if item.get_closest_marker("browser")]
        items[:] = [item for item in items if item not in without]
        if without:
            config.hook.pytest_deselected(items=without)


def pytest_report_header() -> str:
    """Which browser draws the pages."""
    found = _load("browser").find()
    return f"browser: {found or 'none found, so the tests that look at pages are deselected'}"


@pytest.fixture(scope="session")
def committed() -> ModuleType:
    """This repository's receipts, and rough and hostile copies of them."""
    return _load("committed")


@pytest.fixture(scope="session")
def browser() -> ModuleType:
    """Headless Chromium."""
    return _load("browser")


def point(seam: str, name: str, column: np.ndarray, verdict: str, amax: float | None) -> dict:
    """The record of one point whose frames gave ``column``."""
    middle = float(np.median(column)) if len(column) else None
    return {
        "seam": seam,
        "point": name,
        "module": seam,
        "capture": "input",
        "seen": len(column),
        "calls": len(column),
        "amax": amax,
        "minimum": float(column.min()) if len(column) else None,
        "median": middle,
        "maximum": float(column.max()) if len(column) else None,
        "dispersion": float(column.max()) / middle if middle else None,
        "verdict": verdict,
        "observed": None,
    }


def make(hostile: str = "h") -> tuple[dict[str, Any], bytes]:
    ramp = np.linspace(1.0, 2.0, FRAMES, dtype=np.float32)
    cut = float(np.percentile(ramp.astype(np.float64), 99.0))
    columns = {
        ("layers.10.mlp", "x"): (ramp, "calibrated", cut),
        ("layers.2.mlp", "x"): (ramp * 1000, "outlier", 1000 * cut),
        ("layers.3.mlp", hostile): (np.zeros_like(ramp), "dead", None),
        ("layers.4.mlp", "x"): (ramp[:0], "uncalibrated", None),
        ("layers.5.mlp", "x"): (ramp[:7], "undersampled", float(ramp[6])),
    }
    amax = np.zeros((FRAMES, len(columns)), dtype=np.float32)
    seen = np.zeros((FRAMES, len(columns)), dtype=np.uint8)
    points = []
    for index, ((seam, name), (column, verdict, scale)) in enumerate(columns.items()):
        amax[: len(column), index], seen[: len(column), index] = column, 1
        points.append(point(seam, name, column, verdict, scale))
    table = save({"amax": amax, "seen": seen}, metadata={"format": "flashrt.calibration_table/1"})
    frame = {"digest": "sha256:" + "0" * 64, "positions": 4}
    body = seal(
        {
            "schema": "flashrt.calibration/1",
            "kind": "calibration",
            "model_artifact": {
                "name": hostile,
                "dtype": "float32",
                "checkpoint_digest": "sha256:c",
            },
            "binding": None,
            "structures": [{"name": "decoder_ffn", "version": 1, "spec_digest": "sha256:s"}],
            "workload": {
                "name": "texts",
                "source": "a folder",
                "frames": [frame | {"id": f"f{i:03}"} for i in range(FRAMES)],
                "held_out": [],
                "sampler": "stratified",
                "seed": 0,
                "split": "by document",
            },
            "percentile": {"asked": 99.0, "effective": 99.0, "method": "linear"},
            "ceiling": {"factor": 20.0, "median": cut, "limit": 20 * cut},
            "points": points,
            "warnings": [
                {"code": "FRT028", "name": "DEAD", "detail": "only zeros", "subject": hostile}
            ],
            "summary": "3 of 5 points calibrated",
            "table": sha256(table),
            "software": {"torch": "2.13.0"},
        }
    )
    return body, table


@pytest.fixture
def calibration() -> tuple[dict[str, Any], bytes]:
    return make()


@pytest.fixture
def hostile_calibration() -> tuple[dict[str, Any], bytes]:
    return make("<script>alert(1)</script>\"'&\u202e")
