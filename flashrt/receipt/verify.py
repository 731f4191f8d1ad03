"""Verification: everything in a receipt that follows from something else is computed again.

What that catches, whoever re-sealed the file afterwards: any edit of the verdict, of a statistic,
of a threshold (the verdict carries the digest of the thresholds it was judged by, and the spec's
own gates and the tool's policy bound them), of a spec's digest, and of any fact that the receipt
states twice.

What it cannot catch, because nothing else follows from it: raw samples and counters whose edit
leaves the verdict and the statistics as they are, frames' contents, the cell's device, software
and form, the environment, the execution's times and command, earlier attempts, and which receipts
it supersedes or revokes. An edited cell is another claim with another ``cell_digest``; evidence
that was invented consistently is a forgery. Against both, only a signature helps.
"""

from __future__ import annotations

from typing import Any

from flashrt.document.canonical import digest_of
from flashrt.document.schema import problems
from flashrt.gate.judge import judge
from flashrt.gate.metrics import SCALE_BOUNDS
from flashrt.gate.thresholds import ALPHA, FOREIGN_LIMIT, PROCESSES
from flashrt.race.protocol import Protocol
from flashrt.receipt.build import cell_digest
from flashrt.receipt.compare import differences, same_scalar
from flashrt.receipt.consistency import contradictions
from flashrt.receipt.spec_gates import GatesOf
from flashrt_runtime.reason import Because, Reason

SCHEMA_OF = {
    "qualification": "qualification_receipt",
    "preflight": "preflight_record",
    "incomplete": "preflight_record",
    "revocation": "revocation",
}


def verify(body: Any, gates: GatesOf) -> list[Because]:
    """Everything wrong with a receipt; empty when it holds. Never raises on any JSON value.

    ``gates(name, version)`` gives the digest and gates of a spec as they are today, or None
    (``flashrt.receipt.spec_gates.catalog_gates``). A receipt that does not satisfy its schema is
    not examined further.
    """
    kind = body.get("kind") if isinstance(body, dict) else None
    name = SCHEMA_OF.get(kind) if isinstance(kind, str) else None
    if name is None:
        return [Because(Reason.SCHEMA, f"no receipt is of kind {kind!r}", "$.kind")]
    broken = problems(body, name)
    if broken:
        return [Because(p.reason, p.what, p.path) for p in broken]
    found = _digests(body)
    if kind == "qualification":
        found += _specs(body, gates)
        found += _thresholds(body, gates)
        found += _verdict(body)
        found += list(contradictions(body))
    return found


def _digests(body: dict[str, Any]) -> list[Because]:
    found = []
    cell = body.get("cell")
    try:
        actual = digest_of(body)
        expected = None if cell is None else cell_digest(cell)
    except ValueError as error:
        return [Because(Reason.DIGEST, str(error), "$")]
    if actual != body["digest"]:
        found.append(Because(Reason.DIGEST, f"the body's digest is {actual}", "$.digest"))
    if expected != body.get("cell_digest"):
        found.append(Because(Reason.DIGEST, f"the cell's digest is {expected}", "$.cell_digest"))
    return found


def _specs(body: dict[str, Any], gates: GatesOf) -> list[Because]:
    found = []
    named = [(f"$.cell.structures[{i}]", s) for i, s in enumerate(body["cell"]["structures"])]
    for path, spec in [*named, ("$.cell.pipeline", body["cell"]["pipeline"])]:
        title = f"{spec['name']}@{spec['version']}"
        own = gates(spec["name"], spec["version"])
        if own is None:
            found.append(Because(Reason.STALE_SPEC, f"the catalog has no {title}", path))
        elif own.digest != spec["spec_digest"]:
            detail = f"{title} is {own.digest} in the catalog"
            found.append(Because(Reason.STALE_SPEC, detail, f"{path}.spec_digest"))
    return found


def _scale(stated: dict[str, Any]) -> bool:
    """Bounds may be narrowed, never widened; a record of the first protocol has the tool's."""
    if "protocol" not in stated:
        return "scale_bounds" not in stated
    low, high = stated.get("scale_bounds", (0.0, 0.0))
    return bool(SCALE_BOUNDS[0] <= low <= 1 <= high <= SCALE_BOUNDS[1])


def _thresholds(body: dict[str, Any], gates: GatesOf) -> list[Because]:
    stated = body["thresholds"]
    looks = list(Protocol(stated.get("protocol", Protocol.EVEN)).looks)
    policy = {
        "alpha": (stated["alpha"] <= ALPHA, f"the policy is at most {ALPHA}"),
        "processes": (stated["processes"] >= PROCESSES, f"the policy is at least {PROCESSES}"),
        "foreign_limit": (
            stated["foreign_limit"] <= FOREIGN_LIMIT,
            f"the policy is at most {FOREIGN_LIMIT}",
        ),
        "null_width": (stated["null_width"] <= stated["margin"], "must not exceed the margin"),
        "looks": (stated["looks"] == looks, f"the policy is {looks}"),
        "scale_bounds": (
            _scale(stated),
            f"since protocol 2 they are named, within {list(SCALE_BOUNDS)}",
        ),
        "attempt": (
            stated["attempt"] == len(body["attempts"]) + 1,
            f"{len(body['attempts'])} earlier attempts are listed",
        ),
    }
    pipeline = body["cell"]["pipeline"]
    own = gates(pipeline["name"], pipeline["version"])
    if own is not None:
        title = f"{pipeline['name']}@{pipeline['version']}"
        policy |= {
            "margin": (
                stated["margin"] >= own.margin,
                f"{title} asks for {own.margin}; it may be raised, never lowered",
            ),
            "metric": (stated["metric"] == own.metric, f"{title} is judged by {own.metric}"),
            "bands": (
                same_scalar(stated["bands"]["pass"], own.band_pass)
                and same_scalar(stated["bands"]["warn"], own.band_warn),
                f"{title} has {own.band_pass} and {own.band_warn}",
            ),
        }
    return [
        Because(Reason.THRESHOLD, f"{stated.get(name)}: {rule}", f"$.thresholds.{name}")
        for name, (holds, rule) in policy.items()
        if not holds
    ]


def _verdict(body: dict[str, Any]) -> list[Because]:
    recomputed = judge(body["evidence"], body["thresholds"])
    found = []
    for path in differences(body["verdict"], recomputed, "$.verdict"):
        if path.startswith("$.verdict.statistics"):
            found.append(Because(Reason.STATISTIC, "does not follow from the samples", path))
        elif path == "$.verdict.thresholds":
            detail = "the verdict was reached under other thresholds"
            found.append(Because(Reason.THRESHOLD, detail, "$.thresholds"))
        else:
            detail = f"the evidence gives {recomputed['state']}, band {recomputed['band']}"
            found.append(Because(Reason.VERDICT, detail, path))
    return found
