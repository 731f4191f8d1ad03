"""`make device-check`: refused without a CUDA device; sound on the forms of a CPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from flashrt.receipt.store import Store
from flashrt_runtime.reason import Reason, Refusal

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("device_check", ROOT / "tools/device_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # the compiler looks a function's globals up by its module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_without_a_device_nothing_is_checked_or_written(
    tool: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert tool.main(["--receipts", str(tmp_path / "store")]) == 3
    assert "[FRT010 ARCH_ABSENT]" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_every_check_passes_in_the_form_of_this_machine_and_is_recorded(
    tool: Any, tmp_path: Any
) -> None:
    checks = list(tool.checks_of(CPU, (("compile",),)))
    assert [
        (c["subject"], c["outcome"], c["detail"]) for c in checks if c["outcome"] != "passed"
    ] == []
    assert {c["subject"].split()[1] for c in checks} == {c.__name__ for c in tool.CHECKS}
    body = tool.record(CPU, checks, tool.now())
    assert body["verdict"]["state"] == "unknown"
    assert body["request"]["arch"] == body["request"]["arch"].strip() != ""
    store = Store(tmp_path)
    assert store.path("preflight", store.put("preflight", body)).exists()


def test_a_form_that_cannot_be_made_here_fails_every_check_by_name(
    tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    checks = list(tool.checks_of(CPU, tool.FORMS))
    assert {c["outcome"] for c in checks} == {"failed"}
    assert all("UNCAPTURABLE" in c["detail"] for c in checks)


def test_a_check_that_goes_wrong_is_a_failed_check(
    tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(device: Any, form: Any) -> str:
        raise Refusal(Reason.NEVER_CALLED, "0 times")

    monkeypatch.setattr(tool, "CHECKS", (wrong,))
    (check,) = tool.checks_of(CPU, (("compile",),))
    assert (check["outcome"], "NEVER_CALLED" in check["detail"]) == ("failed", True)
