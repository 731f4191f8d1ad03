"""What an adapter's core ran and what it left to the host are rows of the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.report.ledger_file import adapter_table, judge, read_ledger
from flashrt_runtime.adapters.core import attention_interface
from flashrt_runtime.reason import Because, Reason, Refusal
from flashrt_runtime.swap import attach


@pytest.fixture
def attached(observed: Any, core: Any, swap_body: Any) -> Any:
    """``(host, handle, bodies)`` of a tiny llama whose attentions are bodies."""
    seen = observed("llama")
    model = seen.host.model
    bodies, swaps = [], []
    for seam in seen.of("attention_core"):
        path = seam.members["self"]
        host = model.get_submodule(path)
        body = attention_interface(host, core(seam, model), seam.variant)
        width = next(m for m in host.modules() if isinstance(m, nn.Linear)).weight.shape[1]
        swaps.append(swap_body(path, body, int(width)))
        bodies.append(body)
    handle = attach(model, swaps, on_guard_fail="raise")
    yield seen.host, handle, bodies
    handle.detach()


def rows(handle: Any, tmp_path: Path) -> tuple[list[dict[str, Any]], list[tuple[Any, str]]]:
    path = tmp_path / "ledger.jsonl"
    handle.export(path)
    runs = read_ledger(path)
    assert len(adapter_table(runs).rows) == len(runs[0].adapters)
    return [one for _, one in runs[0].adapters], [(p.reason, p.what) for p in judge(path, runs)]


def test_every_adapter_that_ran_has_a_row_and_the_run_is_clean(attached, tmp_path) -> None:
    host, handle, bodies = attached
    host.forward()
    found, problems = rows(handle, tmp_path)
    assert [one["calls"] for one in found] == [body.account.calls for body in bodies]
    assert all(one["calls"] > 0 and one["fallbacks"] == 0 for one in found)
    assert {one["host"] for one in found} == {type(bodies[0].host).__name__}
    assert problems == []
    assert handle.summary()["clean"]


def test_a_call_that_the_core_declined_is_a_fallback_although_the_seat_was_called(
    attached, tmp_path
) -> None:
    host, handle, bodies = attached
    host.forward()
    bodies[0].account.decline(Because(Reason.FORM, "the call's mask is another"))
    found, problems = rows(handle, tmp_path)
    assert [one["fallbacks"] for one in found] == [1, *[0] * (len(bodies) - 1)]
    assert "the call's mask is another" in found[0]["last_reason"]
    assert [reason for reason, _ in problems] == [Reason.FALLBACK]
    assert "left 1 calls to the host's own code" in problems[0][1]
    seam = next(iter(handle.report()))
    assert handle.report()[seam].fallbacks == 0
    assert handle.summary()["fell_back"] == [seam]
    assert not handle.summary()["clean"]
    with pytest.raises(Refusal) as refusal:
        handle.raise_on_fallback()
    assert refusal.value.reason is Reason.FALLBACK


def test_an_adapter_that_left_every_call_to_the_host_never_ran(attached, tmp_path) -> None:
    host, handle, bodies = attached
    host.forward()
    account = bodies[-1].account
    account.calls, before = 0, account.calls
    account.leave(Because(Reason.FORM, "a prefill is the host's"))
    found, problems = rows(handle, tmp_path)
    assert before > 0
    assert (found[-1]["calls"], found[-1]["dispatched"]) == (0, 1)
    assert [reason for reason, _ in problems] == [Reason.NEVER_CALLED]
    assert handle.summary()["never_called"] == [list(handle.report())[-1]]


def test_a_body_without_an_adapter_has_no_row(observed, swap_body) -> None:
    class Plain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    model = observed("llama").host.model
    path = next(p for p, m in model.named_modules() if isinstance(m, nn.Linear))
    width = model.get_submodule(path).weight.shape[1]
    handle = attach(model, [swap_body(path, Plain(), width)])
    try:
        assert handle.adapters() == ()
        assert {one["kind"] for one in handle.ledger_lines()} == {"run", "seam"}
    finally:
        handle.detach()
