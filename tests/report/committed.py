"""The receipts of this repository, and copies of them that say something else."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2] / "receipts" / "qualification"


def receipt(scheme: str = "w8a16_decode") -> dict[str, Any]:
    """The committed receipt of a scheme; the caller's own copy."""
    bodies = [json.loads(path.read_text("utf-8")) for path in sorted(ROOT.glob("*.json"))]
    return next(b for b in bodies if b["cell"]["precision"]["scheme"] == scheme)


def rough() -> dict[str, Any]:
    """A receipt with all that can go wrong to be drawn: spikes, lost blocks, drift, NaN, misses."""
    body = deepcopy(receipt())
    evidence = body["evidence"]
    for run in evidence["processes"]:
        series = run["race"]
        for index, block in enumerate(series["blocks"]):
            if index % 5 == 4:
                block |= {"kept": False, "foreign": 0.4}
        series |= {"looks": [20], "stopped": "budget"}
        series["pairs"][3] = [series["pairs"][3][0] * 9, series["pairs"][3][1]]
        series["pairs"][6] = [series["pairs"][6][0], series["pairs"][6][1] * 9]
    for side in ("before", "after"):
        evidence["parity"][side][2] |= {
            "nonfinite": 3, "cosine_min": None, "max_abs": None, "scale": None, "kl_sum": None,
            "kl_max": None, "nll_host_sum": None, "nll_treated_sum": None, "norm_ratio": None,
        }  # fmt: skip
    evidence["parity"]["after"][1]["top1_agree"] -= 9
    evidence["path"][1]["graph_calls"]["model.layers.3.mlp"] = 0
    evidence["path"][1]["fallbacks"] = 2
    evidence["rollback"][0]["digests"][1] = "sha256:" + "0" * 64
    evidence["poison"][2]["outputs_rewritten"] = False
    evidence["cost"]["bytes"], evidence["cost"]["peak_bytes_per_s"] = 1e12, 1e9
    reasons = [
        {"code": "FRT009", "name": "AMBIGUOUS", "detail": "undecided <b>", "subject": "race"}
    ]
    body["verdict"] |= {"state": "unknown", "band": "none", "reasons": reasons}
    body["verdict"]["statistics"] |= {"speedup": None}
    body["attempts"] = [
        {
            "digest": "sha256:" + "1" * 64, "ended_at": "2026-01-01T00:00:00Z",
            "state": "supported_correct",
        }
    ]  # fmt: skip
    return body


def hostile() -> dict[str, Any]:
    """A receipt whose names are markup, script and bidirectional overrides."""
    bad = "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>&\u202e"
    body = deepcopy(receipt())
    body["model_artifact"]["name"] = body["cell"]["model_artifact"]["family"] = bad
    body["workload"]["name"] = bad
    evidence = body["evidence"]
    evidence["environment"]["cpu"] = bad
    evidence["environment"]["packages"][bad] = bad
    for side in ("before", "after"):
        evidence["parity"][side][0]["frame"] = bad
    for run in evidence["path"]:
        run["expected"][bad], run["graph_calls"][bad] = bad, 1
    return body
