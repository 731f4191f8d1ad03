"""From cells asked for to a service that runs them: qualify, verify, publish, load, serve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import flashrt_runtime
from flashrt.qualify import run as running
from flashrt_cli import main
from flashrt_runtime.reason import Reason, Refusal

CELL = ("--cell", "fp16_weight@decode", "--context", "64")


def command(*words: str) -> int:
    return main.run([*words, "--store", "store"])


@pytest.fixture
def model(home: Path) -> Any:
    from transformers import AutoModelForCausalLM

    found = AutoModelForCausalLM.from_pretrained(home / "host", dtype=torch.float32)
    return found.eval().requires_grad_(False)


@pytest.fixture
def prompt() -> torch.Tensor:
    return torch.tensor([[5, 9, 17, 40, 8]])


def published() -> Any:
    """Verify the store, sign a release of it, and read that as a service would."""
    assert command("verify") == 0
    assert main.run(["keys", "new", "release.pem"]) == 0
    assert command("publish-receipts", "--to", "release", "--key", "release.pem") == 0
    return flashrt_runtime.load("release", trust=[Path("release.pem.pub").read_bytes()])


def ledger(active: Any) -> list[dict[str, Any]]:
    """What was exported; the command says 0 for a clean run and 3 where the host ran."""
    active.export("ledger.jsonl")
    assert main.run(["ledger", "ledger.jsonl"]) == (0 if active.route else 3)
    return [json.loads(line) for line in Path("ledger.jsonl").read_text().splitlines()]


@pytest.fixture
def pretended(fake, monkeypatch):
    """Qualification measures in a process that only pretends."""
    monkeypatch.setattr(running.qualify, "__defaults__", (fake,))


@pytest.fixture(autouse=True)
def outside_any_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.usefixtures("at_home", "pretended")
def test_a_certified_cell_is_served_by_its_operators(source, model, prompt):
    threads = ("--threads", str(torch.get_num_threads()))
    words = ("--host", source[0], "--frames", source[1], *CELL, *threads)
    assert command("qualify", *words, "--require", "certified_fast") == 0
    expected = model.generate(prompt, max_new_tokens=12, do_sample=False)
    release = published()
    active = release.activate(model)
    tokens = active.generate(prompt, max_new_tokens=12)
    assert active.route is not None
    assert active.route.state == "certified_fast"
    assert torch.equal(tokens, expected)
    lines = ledger(active)
    seams = [line for line in lines if line["kind"] == "seam"]
    (stage,) = [line for line in lines if line["kind"] == "stage"]
    assert {line["fallbacks"] for line in seams} == {0}
    assert stage["operators"] == {line["seam"]: 1 for line in seams}
    assert stage["replays"] > 0
    active.detach()
    assert torch.equal(model.generate(prompt, max_new_tokens=12, do_sample=False), expected)
    with torch.no_grad():
        next(model.parameters()).add_(1e-3)
    with pytest.raises(Refusal) as caught:
        release.activate(model)
    assert caught.value.reason is Reason.UNKNOWN_CELL


@pytest.mark.slow
@pytest.mark.usefixtures("at_home")
def test_three_real_processes_to_a_service(source, model, prompt):
    budget = ("--seconds", "2", "--windows", "2", "--positions", "8", "--threads", "0")
    words = ("--host", source[0], "--frames", source[1], *CELL, *budget)
    assert command("qualify", *words) in (0, 3)  # 3: too noisy a machine
    (receipt,) = (json.loads(p.read_text()) for p in Path("store/qualification").glob("*.json"))
    assert receipt["execution"]["processes"] == 3
    assert receipt["verdict"]["state"] in ("supported_correct", "certified_fast")
    expected = model.generate(prompt, max_new_tokens=12, do_sample=False)
    active = published().activate(model, policy="host")
    assert (active.route is not None) is (receipt["verdict"]["state"] == "certified_fast")
    assert torch.equal(active.generate(prompt, max_new_tokens=12), expected)
    run = next(line for line in ledger(active) if line["kind"] == "run")
    assert run["state"] == ("certified_fast" if active.route else "host")
    assert bool(run["reasons"]) is (active.route is None)
    active.detach()
