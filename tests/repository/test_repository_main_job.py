"""The main job goes on where it may, ends where it must, and says which in its exit status."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
if [ "$1" = publish-receipts ] && [ -z "$NOTHING" ]; then mkdir -p "$3"; fi
eval "case \\"$1\\" in $CODES *) exit 0;; esac"
"""

Run = Callable[..., tuple[int, list[str]]]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("main_job", ROOT / "examples" / "main_job.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The job over commands that do nothing but end with a code of the test's choice."""
    monkeypatch.chdir(tmp_path)
    module = load()
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for name in ("flashrt", "python"):
        (fakes / name).write_text(FAKE)
        os.chmod(fakes / name, 0o755)
    (tmp_path / ".flashrt" / "hosts" / "smollm2-abc").mkdir(parents=True)
    monkeypatch.setattr(module, "BIN", fakes)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))

    def run(*arguments: str, **codes: int) -> tuple[int, list[str]]:
        cases = " ".join(f"{name.replace('_', '-')}) exit {code};;" for name, code in codes.items())
        monkeypatch.setenv("CODES", cases)
        monkeypatch.setattr(sys, "argv", ["main_job.py", *arguments])
        try:
            code = int(module.main())
        except SystemExit as end:
            code = int(end.code or 0)
        return code, (tmp_path / "log").read_text().splitlines()

    return run


def commands(log: list[str]) -> list[str]:
    return [" ".join(line.split()[:2]) for line in log]


def test_each_command_runs_in_order(job: Run) -> None:
    code, log = job()
    assert code == 0
    assert commands(log) == [
        "flashrt discover",
        "flashrt calibrate",
        "flashrt qualify",
        "flashrt verify",
        "flashrt keys",
        "flashrt publish-receipts",
        "python examples/serve.py",
        "flashrt ledger",
        "flashrt matrix",
    ]


def test_nothing_earned_is_nothing_served(
    job: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTHING", "1")
    code, log = job(qualify=3, publish_receipts=3)
    assert code == 3
    assert commands(log)[-2:] == ["flashrt publish-receipts", "flashrt matrix"]
    assert "no release to serve from" in capsys.readouterr().err


def test_all_asks_for_the_whole_matrix(job: Run) -> None:
    _, log = job("--all")
    assert any("qualify" in line and line.endswith("--matrix all") for line in log)


def test_a_noisy_machine_does_not_end_the_chain_and_is_not_success(
    job: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    code, log = job(qualify=3)
    assert code == 3
    assert commands(log)[-1] == "flashrt matrix"
    assert "could not be measured here" in capsys.readouterr().err


def test_a_failed_gate_outranks_what_was_not_measured(job: Run) -> None:
    code, log = job(qualify=3, ledger=1)
    assert code == 1
    assert commands(log)[-1] == "flashrt matrix"


@pytest.mark.parametrize("status", [2, 70, 130])
def test_what_is_no_result_ends_the_chain(job: Run, status: int) -> None:
    code, log = job(calibrate=status)
    assert code == status
    assert commands(log)[-1] == "flashrt calibrate"


def test_a_key_is_made_once(job: Run) -> None:
    key = Path(".flashrt/keys/release.pem")
    key.parent.mkdir(parents=True)
    key.write_text("a key")
    _, log = job()
    assert "flashrt keys" not in commands(log)


def test_commands_are_shown_before_they_run(job: Run, capfd: pytest.CaptureFixture[str]) -> None:
    job()
    out = capfd.readouterr().out
    assert "$ flashrt qualify --host smollm2 --device cpu\n" in out
    assert "--key .flashrt/keys/release.pem" in out
