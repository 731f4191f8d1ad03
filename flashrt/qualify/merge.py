"""One cell's evidence, put together from the fragments that its processes wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Fragment = Mapping[str, Any]


def merge(
    fragments: Sequence[Fragment],
    environment: Mapping[str, Any],
    cost: Mapping[str, Any],
    label: str,
) -> dict[str, Any]:
    """Evidence in the receipt's form. ``label`` is the parity label, ``held_out`` or
    ``fit_residual``.

    A fragment whose step could not be captured makes the evidence incomplete and names the reason;
    what the other fragments hold is kept.
    """
    whole = [f for f in fragments if "refused" not in f]
    refused = [f["refused"] for f in fragments if "refused" in f]
    first = next((f for f in whole if "parity_before" in f), {})
    integrity = [f["integrity"] for f in whole if "integrity" in f]
    windows = [record for f in whole for record in f.get("window_check", ())]
    incomplete = None
    if refused:
        incomplete = f"{refused[0]['name']}: {refused[0]['detail']}"
    elif not whole:
        incomplete = "no process finished"
    return {
        "empty_control": [f["empty_control"] for f in fragments],
        "path": [f["path"] for f in whole],
        "parity": {
            "kind": "distribution",
            "label": label,
            "before": list(first.get("parity_before", [])),
            "after": list(first.get("parity_after", [])),
        },
        "processes": [
            {
                "process": f["process"],
                "null": f["null"],
                "race": f["race"],
                "setup_s": f["setup_s"],
                "machine": f["machine"],
                **({"outside_s": f["outside_s"]} if "outside_s" in f else {}),
            }
            for f in whole
        ],
        "dtype_hosts": list(first.get("dtype_hosts", [])),
        "rollback": [f["rollback"] for f in whole],
        "poison": [f["poison"] for f in whole],
        "resources": dict(
            first.get("resources", {"weight_bytes_host": 0, "weight_bytes_treated": 0})
        ),
        "cost": dict(cost),
        "environment": dict(environment),
        "incomplete": incomplete,
        **({"integrity": integrity} if integrity else {}),
        **({"window_check": windows} if windows else {}),
    }
