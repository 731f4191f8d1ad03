"""Is the treated arm right, was it what ran, and does the host come back? Reasons if not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flashrt.gate.evidence import DISTRIBUTION, TOKENS, VALUE, Evidence, Parity, PathRun, Twice
from flashrt.gate.metrics import Window, meets, summarise
from flashrt.gate.thresholds import Thresholds
from flashrt.gate.window_check import window_reasons
from flashrt.race.protocol import Protocol
from flashrt_runtime.reason import Because, Reason

METRIC_OF = {DISTRIBUTION: "top1_agreement", VALUE: "cosine", TOKENS: "token_identity"}


def _changed(runs: Sequence[Twice], reason: Reason, what: str) -> list[Because]:
    return [
        Because(reason, what, f"process {run.process}")
        for run in runs
        if run.digests[0] != run.digests[1]
    ]


def _coverage(evidence: Evidence, protocol: Protocol) -> list[Because]:
    """Every process that raced shows its controls, each once.

    Attacks were first recorded under the second protocol: it requires them.
    """
    raced = Counter(run.process for run in evidence.processes)
    found = []
    named = ("empty_control", "path", "rollback", "poison")
    attacked = bool(evidence.integrity) or protocol is not Protocol.EVEN
    for name in (*named, "integrity") if attacked else named:
        seen = Counter(run.process for run in getattr(evidence, name))
        if not seen or any(n > 1 for n in seen.values()) or not set(raced) <= set(seen):
            detail = "measured in " + (", ".join(str(p) for p in sorted(seen)) or "no process")
            found.append(Because(Reason.INCOMPLETE, detail, name))
    if any(n > 1 for n in raced.values()):
        found.append(Because(Reason.INCOMPLETE, "a process is listed twice", "processes"))
    return found


def _path(evidence: Evidence) -> list[Because]:
    found = []
    for run in evidence.path:
        where = f"process {run.process}"
        if not run.expected:
            found.append(Because(Reason.NEVER_CALLED, "no seam was expected to run", where))
        for seam in sorted(set(run.expected) | set(run.graph_calls)):
            calls = run.graph_calls.get(seam, 0)
            subject = f"{where}, {seam}"
            if seam not in run.expected:
                found.append(Because(Reason.FORM, "runs but was not expected to", subject))
            elif calls == 0:
                detail = f"{run.expected[seam]} is not in the captured graph"
                found.append(Because(Reason.NEVER_CALLED, detail, subject))
            elif calls != 1:
                detail = f"{run.expected[seam]} runs {calls} times in one captured graph"
                found.append(Because(Reason.FORM, detail, subject))
        found += [why for chain in run.chains if (why := _lost(chain, run, where)) is not None]
        if not run.replays > 0:
            found.append(Because(Reason.NEVER_CALLED, "the graph was never replayed", where))
        if run.fallbacks != 0:
            detail = f"{run.fallbacks} calls fell back to the host"
            found.append(Because(Reason.FALLBACK, detail, where))
    return found


def _lost(chain: Sequence[str], run: PathRun, where: str) -> Because | None:
    """A chain is judged as one: without one of its members, nothing of it was."""
    absent = [m for m in chain if m not in run.expected or run.graph_calls.get(m, 0) != 1]
    if not absent and len(chain) > 1:
        return None
    lost = ", ".join(absent) or "every reader"
    return Because(Reason.NEVER_CALLED, f"the chain of {chain[0]} lost {lost}", where)


def _poison(evidence: Evidence) -> list[Because]:
    found = []
    for run in evidence.poison:
        where = f"process {run.process}"
        if run.outputs_rewritten is not True:
            detail = "a no-op replay left its poisoned outputs as they were"
            found.append(Because(Reason.NEVER_CALLED, detail, where))
        if run.inputs_honoured is not True:
            detail = "a replay ignored inputs that changed after capture"
            found.append(Because(Reason.CONSTANT, detail, where))
    return found


def _incomplete(window: Window, kind: str) -> bool:
    needed: list[object] = [window.cosine, window.max_abs, window.norm_ratio, window.scale]
    if kind == DISTRIBUTION:
        needed += [window.kl_sum, window.kl_max]
    return any(value is None for value in needed)


def _window(window: Window, kind: str, thresholds: Thresholds) -> tuple[Reason, str] | None:
    """What is wrong with one frame's output, whatever its band."""
    low, high = thresholds.scale_bounds
    if kind == TOKENS:
        if window.agree == window.units:
            return None
        differ = window.units - window.agree
        return Reason.FLOOR, (
            f"{differ} of {window.units} tokens are not the host's, the first at "
            f"{window.first_difference}; identity admits none"
        )
    if window.nonfinite != 0:
        return Reason.NONFINITE, f"{window.nonfinite} values are NaN or infinite"
    if _incomplete(window, kind):
        return Reason.INCOMPLETE, "a metric was not measured"
    if window.scale is None or not (low <= window.scale <= high):
        detail = f"norm over the host's is {window.scale}, outside {low} to {high}"
        return Reason.SCALE, detail
    return None


def _constant(windows: Sequence[Window], when: str) -> list[Because]:
    """An output that is the same everywhere, in every row, or for every frame."""
    several = [w for w in windows if w.units > 1]
    outputs = {w.treated for w in windows}
    what = None
    if several and all(w.distinct <= 1 for w in several):
        what = "the treated output is the same everywhere in every window"
    elif several and all(w.rows_alike for w in several):
        what = "the treated output repeats one row in every window"
    elif len(windows) > 1 and len(outputs) == 1 and None not in outputs:
        what = "the treated output is the same for every frame"
    return [] if what is None else [Because(Reason.CONSTANT, what, when)]


def _windows(
    parity: Parity, when: str, windows: Sequence[Window], thresholds: Thresholds
) -> list[Because]:
    found = []
    for window in windows:
        wrong = _window(window, parity.kind, thresholds)
        if wrong is not None:
            found.append(Because(*wrong, f"{window.frame} {when}"))
    return found + _constant(windows, when)


def _floors(summary: dict[str, Any], thresholds: Thresholds, when: str) -> list[Because]:
    return [
        Because(Reason.FLOOR, f"{summary.get(name)} against a stated {bound}", f"{name} {when}")
        for name, bound in sorted(thresholds.floors.items())
        if not meets(name, summary.get(name), bound)
    ]


def parity_summary(evidence: Evidence, thresholds: Thresholds) -> dict[str, Any] | None:
    """Metrics of the worse of the two parity runs (by the banded metric); None without windows."""
    parity = evidence.parity
    if not parity.before or METRIC_OF[parity.kind] != thresholds.metric:
        return None
    both = [
        summarise(windows, thresholds.metric, thresholds.protocol)
        for windows in (parity.before, parity.after)
    ]
    values = [s[thresholds.metric] for s in both]
    first_worse = values[0] is None or (values[1] is not None and values[0] < values[1])
    return {**both[0 if first_worse else 1], "label": parity.label}


def band_of(summary: Mapping[str, Any] | None, thresholds: Thresholds) -> str:
    """``pass``, ``warn``, ``low``; ``none`` when the metric was not measured.

    Many good frames do not hide a broken one: since protocol 2, ``pass`` asks for every frame to be
    past the edge of ``warn``, and a frame twice as far below 1 as that edge is makes ``low``.
    """
    value = summary[thresholds.metric] if summary else None
    if summary is None or value is None:
        return "none"
    worst = value if thresholds.protocol is Protocol.EVEN else summary["worst_value"]
    edge = thresholds.band_warn
    if not (value >= edge and worst is not None and worst >= 2 * edge - 1):
        return "low"
    return "pass" if value >= thresholds.band_pass and worst >= edge else "warn"


def _parity(evidence: Evidence, thresholds: Thresholds) -> list[Because]:
    parity = evidence.parity
    if not parity.before:
        return [Because(Reason.EMPTY_CORPUS, "parity was judged on no frame", "parity")]
    if METRIC_OF[parity.kind] != thresholds.metric:
        detail = f"a {parity.kind} output has no {thresholds.metric}"
        return [Because(Reason.INCOMPLETE, detail, "parity")]
    found = []
    for when, windows in (("before", parity.before), ("after", parity.after)):
        found += _windows(parity, when, windows, thresholds)
        summary = summarise(windows, thresholds.metric, thresholds.protocol)
        found += _floors(summary, thresholds, when)
    return found


def failures(evidence: Evidence, thresholds: Thresholds) -> list[Because]:
    """Why this cell is not even ``supported_correct``, in a fixed order; empty if it is."""
    found: list[Because] = []
    if evidence.incomplete is not None:
        found.append(Because(Reason.INCOMPLETE, evidence.incomplete))
    found += _coverage(evidence, thresholds.protocol)
    found += _changed(evidence.empty_control, Reason.EMPTY_CONTROL, "two runs of the host differ")
    found += _path(evidence)
    found += _parity(evidence, thresholds)
    found += _changed(evidence.rollback, Reason.ROLLBACK, "the host differs after detaching")
    found += _poison(evidence)
    on_device = evidence.driver is not None
    for run in evidence.integrity:
        found += run.reasons(on_device=on_device)
    if evidence.window_check:
        found += window_reasons(evidence.window_check, {run.process for run in evidence.processes})
    return found
