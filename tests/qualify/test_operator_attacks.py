"""Operators that are no function of their inputs, bound to a seam of a real host and probed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flashrt.gate.integrity import REQUIRED, Attack
from flashrt.qualify.arm import Treated, share_weights
from flashrt.qualify.integrity import probe_seams
from flashrt_runtime.contract import BoundSeam, Seam
from flashrt_runtime.guard import FormContract
from flashrt_runtime.reason import Reason
from flashrt_runtime.swap import Swap, attach

WIDTH = 64
PATH = "model.layers.0.self_attn.q_proj"
TOKENS = torch.tensor([5, 9])
KEPT: dict[Any, torch.Tensor] = {}


def right(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, weight)


def memo_by(key: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if key not in KEPT:
        KEPT[key] = right(x, weight)
    return KEPT[key].clone()


def by_pointer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return memo_by(x.data_ptr(), x, weight)


def by_first_elements(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return memo_by(tuple(x.reshape(-1)[:8].tolist()), x, weight)


def by_last_elements(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return memo_by(tuple(x.reshape(-1)[-8:].tolist()), x, weight)


def by_whole_input(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Right for every input; the second time, without the work."""
    key = tuple(x.reshape(-1).tolist())
    if key not in KEPT:
        for _ in range(300):
            right(x, weight)
    return memo_by(key, x, weight)


def into_input(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = right(x, weight)
    x.mul_(2)
    return out


def into_weights(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = right(x, weight)
    weight[0, 0] += 1.0
    return out


def into_its_last_output(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = right(x, weight)
    return KEPT.setdefault(("buffer", out.shape), torch.empty_like(out)).copy_(out)


def from_its_last_output(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    key = tuple(x.reshape(-1).tolist())
    if key not in KEPT:
        KEPT[key] = right(x, weight)
    return KEPT[key]


def operator(name: str, compute: Any) -> str:
    """Define ``flashrt::<name>(x, weight, seam)``, as impls do; its qualified name."""
    qualified = f"flashrt::{name}"
    torch.library.define(qualified, "(Tensor x, Tensor[] packed, str seam) -> Tensor")

    def run(x: torch.Tensor, packed: list[torch.Tensor], seam: str) -> torch.Tensor:
        return compute(x, packed[0])

    torch.library.impl(qualified, "CompositeImplicitAutograd")(run)
    return qualified


OPERATORS = {
    compute.__name__: operator(f"test_operator_attack_{compute.__name__}", compute)
    for compute in (
        right,
        by_pointer,
        by_first_elements,
        by_last_elements,
        by_whole_input,
        into_input,
        into_weights,
        into_its_last_output,
        from_its_last_output,
    )
}


class Body(nn.Module):
    """A projection by one of the operators; ``bypass`` computes without calling it."""

    def __init__(self, qualified: str, weight: torch.Tensor, bypass: bool) -> None:
        super().__init__()
        self.operator = getattr(torch.ops.flashrt, qualified.partition("::")[2]).default
        self.bypass = bypass
        self.register_buffer("weight", weight.clone(), persistent=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.bypass:
            return right(input, self.weight)
        return self.operator(input, [self.weight], PATH)


@pytest.fixture
def host(home: Any) -> nn.Module:
    from transformers import AutoModelForCausalLM

    KEPT.clear()
    model = AutoModelForCausalLM.from_pretrained(home / "host", dtype=torch.float32)
    return model.eval().requires_grad_(False)


def probed(host: nn.Module, how: str, bypass: bool = False) -> Any:
    arm, qualified = share_weights(host), OPERATORS[how]
    seam = Seam(PATH, "linear_proj@1", {"self": PATH}, {}, {"K": WIDTH}, {})
    bound = BoundSeam(
        {"self": Body(qualified, arm.get_parameter(f"{PATH}.weight"), bypass)}, qualified, 0
    )
    contract = FormContract(torch.device("cpu"), torch.float32, WIDTH, (1, 64))
    handle = attach(arm, [Swap(seam, bound, contract, "fake", "any")])
    treated = Treated(arm, handle, {PATH: qualified}, 0, 0, {})
    return probe_seams(host, treated, [{"seam": seam.record()}], TOKENS)


def test_an_honest_operator_passes_the_same_probes(host, judged):
    assert probed(host, "right") == []
    assert judged({"looked_for": sorted(REQUIRED), "findings": []}) == []


BAD = [
    ("by_pointer", Attack.POINTER_MEMO, Reason.CONSTANT, "memoisation on pointers"),
    ("by_first_elements", Attack.PART_MEMO, Reason.CONSTANT, "memoisation on first elements"),
    ("by_last_elements", Attack.PART_MEMO, Reason.CONSTANT, "differ in their first half"),
    ("by_whole_input", Attack.STALE_ANSWER, Reason.CONSTANT, "given before in 0."),
    ("into_input", Attack.INPUT_MUTATION, Reason.INTEGRITY, "wrote into its input"),
    ("into_weights", Attack.INPUT_MUTATION, Reason.INTEGRITY, "wrote into its weights"),
    ("into_its_last_output", Attack.KEPT_OUTPUT, Reason.INTEGRITY, "a kept output"),
    ("from_its_last_output", Attack.NO_OP_REPLAY, Reason.NEVER_CALLED, "no-op replay"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[0])
def test_an_operator_that_cheats_is_unknown_and_named(host, judged, bad):
    how, attack, reason, words = bad
    found = probed(host, how)
    assert attack in {finding.attack for finding in found}
    assert {finding.subject for finding in found} == {PATH}
    records = [finding.record() for finding in found]
    because = judged({"looked_for": sorted(REQUIRED), "findings": records})
    named = [b for b in because if b.reason is reason and words in b.detail]
    assert named
    assert named[0].subject == f"process 0, {PATH}"


def test_an_operator_that_only_a_capture_calls_cannot_be_probed(host):
    assert probed(host, "right", bypass=True) is None
