"""The verdict: a pure, total function of evidence and thresholds.

``certified_fast``: correct, and every process's race decided past the margin in the captured form
on a machine whose null control held. ``supported_correct``: correct, and the rest says why it is
not more. ``unknown``: not correct, not measured, or not readable, and why. A comparison with NaN
is never passed, and nothing that a stranger can write makes this function raise.
"""

from __future__ import annotations

from typing import Any

from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.gate.correctness import band_of, failures, parity_summary
from flashrt.gate.evidence import FIT_RESIDUAL, Evidence, read_evidence
from flashrt.gate.reading import Malformed
from flashrt.gate.speed import implausible, measure, shortfalls, statistics
from flashrt.gate.thresholds import Thresholds, read_thresholds
from flashrt_runtime.reason import Because, Reason

UNKNOWN, SUPPORTED, CERTIFIED = "unknown", "supported_correct", "certified_fast"
STATES = (UNKNOWN, SUPPORTED, CERTIFIED)
NOTHING: dict[str, Any] = {
    "speedup": None,
    "process_medians": [],
    "process_low": [],
    "null": None,
    "dtype_ratio": {},
    "diagnosis": [],
    "parity": None,
}


def _thresholds_digest(thresholds: Any) -> str | None:
    """What the verdict was judged by, so that no threshold can be edited under it."""
    try:
        return sha256(canonical_bytes(thresholds))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _band_reasons(band: str, evidence: Evidence, thresholds: Thresholds) -> list[Because]:
    found = []
    if evidence.parity.label == FIT_RESIDUAL:
        detail = "parity was judged on the frames the scales were fitted to"
        found.append(Because(Reason.EMPTY_CORPUS, detail, "parity"))
    if band == "low" and thresholds.metric not in thresholds.floors:
        detail = f"certified only under a stated floor on {thresholds.metric}"
        found.append(Because(Reason.BAND_LOW, detail, "parity"))
    return found


def judge(evidence: Any, thresholds: Any) -> dict[str, Any]:
    """The verdict record ``{"state", "band", "reasons", "statistics", "thresholds"}``.

    ``evidence`` and ``thresholds`` are JSON values in the form of the receipt's schema; anything
    else gives ``unknown`` with INCOMPLETE and the path of what is wrong. ``thresholds`` in the
    verdict is the digest of the thresholds it was judged by. Never raises.
    """
    stamp = _thresholds_digest(thresholds)
    try:
        gates = read_thresholds(thresholds)
        seen = read_evidence(evidence)
        speed = measure(seen, gates)
    except Malformed as error:
        because = Because(Reason.INCOMPLETE, error.what, error.path)
        return _verdict(UNKNOWN, "none", [because], dict(NOTHING), stamp)
    summary = parity_summary(seen, gates)
    numbers = {**statistics(speed, seen, gates), "parity": summary}
    band = band_of(summary, gates)
    wrong = failures(seen, gates) + implausible(seen)
    if wrong:
        return _verdict(UNKNOWN, band, wrong, numbers, stamp)
    short = shortfalls(speed, seen, gates) + _band_reasons(band, seen, gates)
    return _verdict(SUPPORTED if short else CERTIFIED, band, short, numbers, stamp)


def _verdict(
    state: str,
    band: str,
    reasons: list[Because],
    numbers: dict[str, Any],
    stamp: str | None,
) -> dict[str, Any]:
    return {
        "state": state,
        "band": band,
        "reasons": [because.record() for because in reasons],
        "statistics": numbers,
        "thresholds": stamp,
    }
