"""Activation binds, attaches and captures a route whole, or leaves the host and says why."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import flashrt_runtime
from flashrt_runtime.activate import Release, make_swap
from flashrt_runtime.contract import Seam
from flashrt_runtime.identity import architecture_digest
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.seat import Seat

PROMPT = torch.tensor([[3, 14, 15, 9]])


def refused(reason: Reason, act: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        act()
    assert caught.value.reason is reason, str(caught.value)
    return caught.value


def load(maker: Any) -> Release:
    return flashrt_runtime.load(maker.write(), trust=[maker.public])


def test_a_route_runs_from_release_to_ledger(
    maker: Any, llama: Any, ffn_binder: Any, tmp_path: Path
) -> None:
    expected = llama.generate(PROMPT, max_new_tokens=8, do_sample=False)
    host, computed = llama.model.layers[0].mlp, architecture_digest(llama)
    maker.add()
    release = load(maker)
    active = release.activate(llama, binder=ffn_binder)
    assert active.handle is not None
    assert isinstance(llama.model.layers[0].mlp, Seat)
    assert architecture_digest(llama) == computed
    assert torch.equal(active.generate(PROMPT, 8), expected)
    seam = active.handle.report()["model.layers.0.mlp"]
    assert (seam.calls, seam.dispatched, seam.fallbacks, seam.replayed) == (0, 1, 0, 7)
    assert active.handle.summary()["clean"] is True

    assert torch.equal(llama.generate(PROMPT, max_new_tokens=8, do_sample=False), expected)
    seam = active.handle.report()["model.layers.0.mlp"]
    assert (seam.calls, seam.dispatched, seam.replayed) == (0, 9, 7)
    active.export(tmp_path / "ledger.jsonl")
    records = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [record["kind"] for record in records] == ["run", "seam", "stage"]
    assert records[0]["release"] == release.digest
    assert (records[0]["policy"], records[0]["state"]) == ("refuse", "certified_fast")
    assert "outside the recorded form" in records[1]["last_reason"]
    assert records[2]["operators"] == {"model.layers.0.mlp": 1}
    refused(Reason.CONFLICT, lambda: release.activate(llama, binder=ffn_binder))
    active.detach()
    assert llama.model.layers[0].mlp is host
    assert torch.equal(llama.generate(PROMPT, max_new_tokens=8, do_sample=False), expected)


def test_policy_host_keeps_the_host_and_the_ledger_says_so(
    maker: Any, llama: Any, ffn_binder: Any, tmp_path: Path
) -> None:
    cell = maker.cell()
    cell["device"] = cell["device"] | {"name": "elsewhere"}
    maker.add(cell)
    release = load(maker)
    refused(Reason.UNKNOWN_CELL, lambda: release.activate(llama, binder=ffn_binder))
    active = release.activate(llama, policy="host", binder=ffn_binder)
    expected = llama.generate(PROMPT, max_new_tokens=4, do_sample=False)
    assert torch.equal(active.generate(PROMPT, 4), expected)
    (run,) = active.ledger_lines()
    assert (run["policy"], run["state"]) == ("host", "host")
    assert run["reasons"][0]["name"] == "UNKNOWN_CELL"
    assert "device.name" in run["reasons"][0]["detail"]
    active.export(tmp_path / "l")
    assert (tmp_path / "l").read_text().count("\n") == 1
    active.detach()
    refused(Reason.STORAGE, lambda: active.export(tmp_path / "no" / "l"))


def test_one_weight_that_differs_is_another_checkpoint(
    maker: Any, llama: Any, ffn_binder: Any
) -> None:
    maker.add()
    release = load(maker)
    llama.lm_head.weight[0, 0] += 1e-6
    refusal = refused(Reason.UNKNOWN_CELL, lambda: release.activate(llama, binder=ffn_binder))
    assert "checkpoint_digest" in refusal.what


def other_architecture(kind: str, llama: Any) -> Any:
    """A model of the same weights that computes something else."""
    if kind == "config":
        config = copy.deepcopy(llama.config)
        config.hidden_act = "gelu"
        other = type(llama)(config).eval()
        other.load_state_dict(llama.state_dict())
        return other
    mlp = llama.model.layers[0].mlp
    if kind == "subclass":
        mlp.__class__ = type("Scaled", (type(mlp),), {"forward": lambda self, x: x * 3})
    else:
        mlp.forward = lambda x: x * 3
    return llama


@pytest.mark.parametrize("kind", ["config", "subclass", "forward"])
def test_the_same_weights_in_another_architecture_are_refused(
    maker: Any, llama: Any, ffn_binder: Any, kind: str
) -> None:
    maker.add()
    release = load(maker)
    other = other_architecture(kind, llama)
    refusal = refused(Reason.UNKNOWN_CELL, lambda: release.activate(other, binder=ffn_binder))
    assert "model_artifact.architecture_digest" in refusal.what
    assert not isinstance(other.model.layers[0].mlp, Seat)


def test_the_shape_of_a_route_is_asked_for_by_name(maker: Any, llama: Any, ffn_binder: Any) -> None:
    for context in (32, 48):
        shape = {"phase": "decode", "batch": 1, "rows": 1, "context": context}
        maker.add(maker.cell(shape=shape), rank=0)
    release = load(maker)
    refused(Reason.AMBIGUOUS, lambda: release.activate(llama, binder=ffn_binder))
    refused(Reason.UNKNOWN_CELL, lambda: release.activate(llama, rows=2, binder=ffn_binder))
    active = release.activate(llama, rows=1, context=48, binder=ffn_binder)
    assert active.route is not None
    assert active.route.cell["shape"]["context"] == 48
    active.detach()


@pytest.mark.parametrize("policy", ["refuse", "host"])
def test_training_mode_is_refused_under_every_policy(
    maker: Any, llama: Any, ffn_binder: Any, policy: str
) -> None:
    maker.add()
    release = load(maker)
    llama.train()
    refused(Reason.TRAINING, lambda: release.activate(llama, policy=policy, binder=ffn_binder))


def broken(kind: str, maker: Any) -> None:
    seams = maker.seams()
    if kind == "weight":
        seams[0]["seam"]["weights"]["gate"] = "absent.weight"
    elif kind == "width":
        seams[0]["seam"]["dims"] = {"F": 48}
    elif kind == "member":
        seams[0]["seam"]["members"] = {"self": "absent"}
    maker.add(seams=seams)


@pytest.mark.parametrize("kind", ["weight", "width", "member"])
def test_a_route_that_cannot_be_bound_leaves_the_host(
    maker: Any, llama: Any, ffn_binder: Any, kind: str
) -> None:
    broken(kind, maker)
    release = load(maker)
    host = llama.model.layers[0].mlp
    refused(Reason.BINDING, lambda: release.activate(llama, binder=ffn_binder))
    assert llama.model.layers[0].mlp is host
    kept = release.activate(llama, policy="host", binder=ffn_binder)
    assert kept.handle is None
    assert kept.run.reasons[0].reason is Reason.BINDING


def test_a_path_that_is_not_proven_is_refused_and_rolled_back(
    maker: Any, llama: Any, ffn_binder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flashrt_runtime import capture as capturing

    maker.add()
    release = load(maker)
    host, plain = llama.model.layers[0].mlp, capturing.capture
    monkeypatch.setattr(
        capturing, "capture", lambda step, windows, form, name: plain(step, windows, ("eager",))
    )
    refusal = refused(Reason.NEVER_CALLED, lambda: release.activate(llama, binder=ffn_binder))
    assert "0 times" in refusal.what
    assert llama.model.layers[0].mlp is host
    assert "train" not in llama.__dict__


def test_the_installed_loader_refuses_an_impl_that_is_not_there(maker: Any, llama: Any) -> None:
    maker.add()
    with pytest.raises(Refusal) as caught:
        load(maker).activate(llama)
    assert "decoder_ffn@1/fake" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "named"), [({"policy": "maybe"}, "refuse"), ({"accept_band": "none"}, "low")]
)
def test_arguments_outside_their_set_are_refused(
    maker: Any, llama: Any, given: dict[str, Any], named: str
) -> None:
    refusal = refused(Reason.CONFLICT, lambda: load(maker).activate(llama, **given))
    assert named in refusal.what


def test_a_seam_without_weights_has_no_swap(ffn_binder: Any) -> None:
    seam = Seam("s", "decoder_ffn@1", {"self": "m"}, {}, {"D": 4}, {})
    impl = {"structure": "decoder_ffn@1", "backend": "fake", "form": "decode"}
    refused(Reason.BINDING, lambda: make_swap(seam, impl, {}, {}, (1, 1), binder=ffn_binder))
