"""Tiny hosts in general: the same in every process, harmless, and named by what a person types."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from flashrt.binding import binding_names
from flashrt.host.observe import observe
from flashrt.host.tiny import build, names
from flashrt.host.tiny.seeded import frozen, instance
from flashrt_cli.main import run
from flashrt_runtime.reason import Reason, Refusal

OURS = ("qwen3", "qwen3_vl", "qwen3_next", "llama", "smolvlm", "pi0", "gemma3", "siglip")


def _tensor(output: object) -> torch.Tensor:
    held = output if isinstance(output, torch.Tensor) else output[0]
    assert isinstance(held, torch.Tensor)
    return held


@pytest.mark.parametrize("name", OURS)
def test_a_host_is_the_same_every_time_and_is_not_changed_by_running(name: str) -> None:
    state = torch.random.get_rng_state()
    host, again = build(name), build(name)
    first, second = _tensor(host.forward()), _tensor(again.forward())
    assert torch.equal(first, second)
    assert torch.equal(_tensor(host.forward()), first)
    assert torch.isfinite(first).all()
    assert float(first.std()) > 0.1
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            host.model.state_dict().values(), again.model.state_dict().values(), strict=True
        )
    )


@pytest.mark.parametrize("name", OURS)
def test_a_host_is_small_quiet_and_real(name: str) -> None:
    host = build(name)
    assert host.name == name
    assert not any(module.training for module in host.model.modules())
    assert not any(p.requires_grad for p in host.model.parameters())
    assert {p.dtype for p in host.model.parameters()} == {torch.float32}
    assert sum(p.numel() for p in host.model.parameters()) < 2_000_000
    assert host.source == f"transformers.{type(host.model).__name__}"
    assert host.binding is None or host.binding in binding_names()


def test_every_name_is_listed_once() -> None:
    assert set(OURS) < set(names())
    assert len(names()) == len(set(names()))


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(Refusal) as caught:
        build("qwen_3")
    assert caught.value.reason is Reason.HOST
    assert "qwen3" in caught.value.do


def test_a_host_whose_package_is_absent_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = ModuleType("transformers")
    monkeypatch.setitem(sys.modules, "transformers", empty)
    with pytest.raises(Refusal, match="cannot be imported") as caught:
        build("qwen3")
    assert caught.value.reason is Reason.HOST


def test_vectors_and_matrices_are_drawn_so_that_a_forgotten_one_shows() -> None:
    layer = instance(lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)))
    assert float(layer[0].weight.std()) == pytest.approx(1 / 8, rel=0.1)
    assert float((layer[1].weight - 1).abs().max()) > 0.1
    assert float(layer[1].bias.abs().max()) > 0.1


def test_a_frozen_forward_draws_the_same_and_needs_no_gradient() -> None:
    weight = torch.ones(3, requires_grad=True)
    forward = frozen(lambda: weight * torch.rand(3))
    first, second = _tensor(forward()), _tensor(forward())
    assert torch.equal(first, second)
    assert not first.requires_grad


def test_a_tiny_host_is_observed_by_its_name() -> None:
    seen = observe("tiny:siglip")
    assert seen.label == "tiny:siglip (transformers.SiglipVisionModel)"
    assert seen.binding_name is None
    assert seen.artifact is None
    assert _tensor(seen.forward()).shape == (1, 16, 144)


def test_a_folder_is_observed_with_its_artifact(host_folder: Path) -> None:
    seen = observe(f"transformers:{host_folder}")
    assert seen.artifact is not None
    assert seen.artifact["family"] == "llama"
    assert _tensor(seen.forward()).ndim == 3


def test_discover_shows_seams_and_what_the_binding_proves(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["discover", "--host", "tiny:qwen3", "--prove", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert found["binding"] == "qwen3"
    assert found["model_artifact"] is None
    assert found["bound"]["seams"] == 24
    assert found["bound"]["provisional"] is None
    assert len(found["bound"]["proofs"]) == 60
    assert all(proof["ok"] for proof in found["bound"]["proofs"])
    assert "decoder_ffn@1" in {seam["structure"] for seam in found["seams"]}


def test_discover_counts_what_the_host_never_shows_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["discover", "--host", "tiny:cosmos3", "--prove", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    unseen = [proof for proof in found["bound"]["proofs"] if proof["unseen"]]
    assert {proof["output"] for proof in unseen} == {"k", "v"}
    assert not any(proof["ok"] for proof in unseen)


def test_discover_of_a_host_without_a_binding_lists_seams(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["discover", "--host", "tiny:gemma3"]) == 0
    out, _ = capsys.readouterr()
    assert "transformers.Gemma3ForCausalLM" in out
    assert "mlp" in out


def test_discover_of_an_unknown_tiny_host_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["discover", "--host", "tiny:nothing"]) == 2
    assert "HOST" in capsys.readouterr().err
