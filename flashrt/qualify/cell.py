"""The cell: the exact facts one performance claim is valid for."""

from __future__ import annotations

from typing import Any

from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.qualify.request import CellRequest
from flashrt_runtime.chain_route import members_record

_ARTIFACT = ("family", "checkpoint_digest", "architecture_digest", "dtype")


def cell_digest(cell: dict[str, Any]) -> str:
    """The claim's identity: ``sha256`` of the cell's canonical bytes."""
    return sha256(canonical_bytes(cell))


def build_cell(
    request: CellRequest,
    plan: dict[str, Any],
    device: dict[str, Any],
    software: dict[str, str | None],
) -> dict[str, Any]:
    """The cell of one request under one plan on one device.

    ``device`` and ``software`` are the runtime's own facts (``flashrt_runtime.facts``), so that
    what is looked up in production is what was written here.
    """
    from flashrt.spec import load
    from flashrt_runtime.impl_loader import manifests

    bound = [s for s in plan["seams"] if s["outcome"] == "bind"]
    names = sorted({s["seam"]["structure"] for s in bound})
    used = sorted(
        {(s["impl"]["structure"], s["impl"]["backend"], s["impl"]["form"]) for s in bound}
    )
    pipeline = plan["binding_manifest"]["pipeline"]["structure"]
    versions = {(m.structure, m.backend): m.version for m in manifests()}
    forms = {(m.structure, m.backend, f.name): f for m in manifests() for f in m.forms}
    weights = sorted({forms[key].weights for key in used}) or ["float32"]
    activations = sorted({forms[key].activations for key in used}) or ["float32"]
    return {
        "structures": [_spec_record(load(name)) for name in names],
        "pipeline": _spec_record(load(pipeline)),
        "binding": dict(plan["binding"]),
        "model_artifact": {
            key: plan["model_artifact"][key] for key in _ARTIFACT if key in plan["model_artifact"]
        },
        "precision": {
            "scheme": request.scheme,
            "weights": "+".join(weights),
            "activations": "+".join(activations),
            "seams": len(bound),
            **({"overrides": plan["overrides"]} if plan.get("overrides") else {}),
            **({"chains": members_record(plan["chains"])} if plan.get("chains") else {}),
        },
        "impls": [
            {"structure": s, "backend": b, "form": f, "version": versions[(s, b)]}
            for s, b, f in used
        ],
        "device": device,
        "shape": {
            "phase": request.phase,
            "batch": 1,
            "rows": request.rows,
            "context": request.context,
        },
        "software": software,
        "form": list(request.sequence),
        "calibration": plan["calibration"],
    }


def _spec_record(spec: Any) -> dict[str, Any]:
    return {"name": spec.name, "version": spec.version, "spec_digest": spec.digest}
