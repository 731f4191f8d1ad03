"""The least work of one step, from the catalog's cost functions: the roofline's two numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Floating-point operations a core can retire in one cycle at most, by the widest unit it has: two
# FMA pipes of 256 or 512 bits in float32, or one AMX tile in int8. Upper bounds: no arm of any
# precision can be faster, which is all that the plausibility check needs.
PER_CYCLE = (("amx_int8", 2048.0), ("avx512f", 256.0), ("avx2", 128.0))
HIGHEST_HZ = 6e9


def peak_flops(device: Mapping[str, Any]) -> float | None:
    """An upper bound of operations per second on a CPU, ``None`` where the ISA is not known."""
    for flag, per_cycle in PER_CYCLE:
        if flag in (device.get("isa") or ()):
            return per_cycle * HIGHEST_HZ * float(device["threads"])
    return None


WEIGHT_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "int8": 1.0, "fp8_e4m3": 1.0}


def _weight_bytes(impl: Mapping[str, str]) -> float:
    """Bytes of one packed weight of the form that a plan chose; 0 for a format not listed."""
    from flashrt_runtime.impl_loader import manifests

    for manifest in manifests():
        if (manifest.structure, manifest.backend) == (impl["structure"], impl["backend"]):
            for form in manifest.forms:
                if form.name == impl["form"]:
                    return WEIGHT_BYTES.get(form.weights, 0.0)
    return 0.0


def step_cost(
    plan_seams: Sequence[Mapping[str, Any]], rows: int, device: Mapping[str, Any]
) -> dict[str, Any]:
    """FLOPs and least bytes of the bound seams in one step of ``rows`` rows.

    Only the seams are counted, so the bound is lower than the step's own and never refuses an arm
    that does the work. A region whose cost depends on sizes that its seam does not have (positions
    of a batch) counts nothing, for the same reason. ``peak_bytes_per_s`` stays unknown: no
    instruction set states it.
    """
    from flashrt.spec import load
    from flashrt.spec.reference import load_reference

    flops = least = 0.0
    for record in plan_seams:
        if record["outcome"] != "bind":
            continue
        seam = record["seam"]
        spec = load(seam["structure"])
        sizes = {**seam["dims"], spec.rows: rows}
        if set(spec.dims) - set(sizes):
            continue
        cost = load_reference(spec).cost(
            sizes, seam["variant"], weight_bytes=_weight_bytes(record["impl"])
        )
        flops += cost.flops
        least += cost.bytes
    return {
        "flops": flops,
        "bytes": least,
        "peak_flops": peak_flops(device),
        "peak_bytes_per_s": None,
    }
