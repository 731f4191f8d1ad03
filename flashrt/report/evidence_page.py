"""One receipt as one self-contained page: its claim, whether it recomputes, and every picture."""

from __future__ import annotations

from collections.abc import Sequence

from flashrt.release.matrix import label
from flashrt.release.source import Body
from flashrt.report import evidence_tables as tables
from flashrt.report import forest, page, parity_figure, path_figure, race_figures, safe_text, table
from flashrt.report.evidence_view import EvidenceView, view
from flashrt.report.table import Table
from flashrt_runtime.reason import Because

_STYLE = """
.claim { font-size: 1.15rem; } .state { font-weight: 700; padding: .1rem .5rem;
  border-radius: .3rem; color: Canvas; background: var(--c); } .certified_fast { --c: #2b8a3e; }
.supported_correct { --c: #1c6fb5; } .unknown { --c: #6b6b6b; }
.holds { border-left: 4px solid #2b8a3e; padding-left: .8rem; }
.broken { border-left: 4px solid #e03131; padding-left: .8rem; }
.ring { fill: none; stroke: currentColor; stroke-width: 1.4; opacity: .75; }
details { margin: .6rem 0; } summary { cursor: pointer; font-weight: 600; }
nav a { margin-right: 1.2rem; } h2 { margin: 0 0 .3rem; }
""".strip()


def _figure(anchor: str, title: str, words: str, drawn: str) -> str:
    inside = f'<div class="wide">{drawn}</div>' if drawn else "<p>Nothing was measured.</p>"
    return (
        f'<figure id="{anchor}"><h2>{safe_text.html(title)}</h2>\n'
        f"<figcaption>{safe_text.html(words)}</figcaption>\n{inside}</figure>"
    )


def _wide(shown: Table) -> str:
    return f'<div class="wide">{table.html(shown)}</div>'


def _folded(title: str, shown: Table, opened: bool = False) -> str:
    if not shown.rows:
        return ""
    state = " open" if opened else ""
    return f"<details{state}><summary>{safe_text.html(title)}</summary>\n{_wide(shown)}</details>"


def claim(receipt: Body) -> str:
    """What the receipt claims, in one sentence."""
    verdict = receipt["verdict"]
    head = verdict["statistics"]["speedup"]
    margin = receipt["thresholds"]["margin"]
    if head is None:
        return f"parity band {verdict['band']}; no speed-up was measured"
    return (
        f"{head['median']:.3f} × (host time ÷ treated time), {head['low']:.3f} to "
        f"{head['high']:.3f}, margin {margin:g}; parity band {verdict['band']}"
    )


def recomputed(wrong: Sequence[Because] | None) -> tuple[str, list[str]]:
    """What recomputing the receipt found: a sentence, and each claim that does not hold."""
    if wrong is None:
        return "Not recomputed here: run `flashrt verify` before you rely on it.", []
    if wrong:
        return f"Recomputed: {len(wrong)} claims do NOT hold.", [str(b) for b in wrong]
    return (
        "Recomputed from the raw samples when this page was made: every claim holds. Samples and "
        "environment themselves are vouched for by a release's signature alone.",
        [],
    )


def _head(seen: EvidenceView) -> list[str]:
    verdict = seen.receipt["verdict"]
    sentence, broken = recomputed(seen.wrong)
    reasons = [str(Because.from_record(r)) for r in verdict["reasons"]]
    state = safe_text.html(verdict["state"])
    kind = "holds" if seen.wrong == () else "broken"
    names = (
        ("ratios", "ratios"), ("interval", "interval"), ("drift", "drift"), ("null", "null"),
        ("parity", "parity"), ("path", "path"), ("controls", "controls"),
        ("environment", "environment"),
    )  # fmt: skip
    return [
        f"<style>{forest.STYLE}\n{_STYLE}</style>",
        f'<p class="claim"><span class="state {state}">{state}</span> '
        f"{safe_text.html(claim(seen.receipt))}</p>",
        *_list("Why not more", reasons),
        f'<div class="{kind}"><p>{safe_text.html(sentence)}</p>{"".join(_list("", broken))}</div>',
        f"<p>Receipt {safe_text.html(seen.receipt['digest'])}<br>"
        f"Cell {safe_text.html(seen.receipt['cell_digest'])}</p>",
        "<nav>" + " ".join(f'<a href="#{a}">{name}</a>' for a, name in names) + "</nav>",
    ]


def _list(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    head = f"<p>{safe_text.html(title)}:</p>" if title else ""
    return [head + "<ul>" + "".join(f"<li>{safe_text.html(i)}</li>" for i in items) + "</ul>"]


def _pictures(seen: EvidenceView) -> list[str]:
    margin, width = seen.margin, float(seen.thresholds["null_width"])
    race_lines = [(1.0, "host", "one"), (margin, "margin", "limit")]
    null_lines = [(1.0, "the same arm", "one")]
    return [
        _figure(
            "ratios", "Paired ratios",
            "Host time ÷ treated time of every pair, in the order of time. Round: blocks that ran "
            "host first and last (ABBA); square: the other way round. Grey: not kept, because "
            "others used the machine. Band and line: the interval of the median, recomputed from "
            "these pairs. Dotted: the looks at which the race could have ended.",
            race_figures.ratios(seen.races, race_lines, "treated"),
        ),
        _figure(
            "interval", "The interval against the margin",
            "Each fresh process decides on its own. The claim is the median of their medians and "
            "the envelope of their intervals; its lower end has to be past the margin.",
            race_figures.intervals(seen),
        ),
        _figure(
            "drift", "Drift over time",
            "What one step took. Blue, round: host. Orange, square: treated. Lines: running "
            "medians. Above: the host's last quarter ÷ its first. Bars: the share of the machine "
            "that others used; red, and not kept, above the limit.",
            race_figures.drift(seen),
        ),
        _figure(
            "null", "The null control",
            "The host raced against itself under the same rule. Its interval has to contain 1 and "
            f"be narrower than {width:g} (high ÷ low): what this machine calls a difference.",
            race_figures.nulls(seen) + race_figures.ratios(seen.nulls, null_lines, "null"),
        ),
        _figure(
            "parity", "Parity per sample",
            "Every held-out frame, treated against host. Dot: before the race. Ring: the same "
            "frame after it. Dashed: what the metric is held against.",
            parity_figure.parity(seen),
        ),
        _figure(
            "path", "Path evidence",
            "A square a seam, in the order of the model. Green: the operator that was to serve it "
            "is called in every process's captured graph. Red and crossed: it is not.",
            path_figure.path(seen.evidence["path"]),
        ),
        _wide(path_figure.table(seen.evidence["path"])),
        _folded("Chains", path_figure.chains(seen.evidence["path"]), opened=True),
    ]  # fmt: skip


def _details(seen: EvidenceView) -> list[str]:
    receipt, evidence = seen.receipt, seen.evidence
    windows = {"before": evidence["parity"]["before"], "after": evidence["parity"]["after"]}
    resources = {"resources": evidence["resources"], "cost": evidence["cost"]}
    return [
        '<h2 id="controls">Controls</h2>',
        _wide(tables.controls(seen)),
        _folded("Detected in the series", tables.diagnosis(seen), opened=True),
        '<h2 id="environment">Environment</h2>',
        _wide(tables.facts("environment", evidence["environment"], "provenance, no identity")),
        _folded("Processes", tables.processes(seen)),
        _folded("The cell: what the claim is valid for", tables.facts("fact", receipt["cell"], "")),
        _folded("Model", tables.facts("fact", receipt["model_artifact"], "")),
        _folded("Execution", tables.facts("fact", receipt["execution"], "")),
        _folded("Workload", tables.facts("fact", receipt["workload"], "")),
        _folded("Thresholds", tables.facts("threshold", receipt["thresholds"], "")),
        _folded("Statistics", tables.facts("statistic", seen.statistics, "")),
        _folded("Parity windows", tables.facts("window", windows, "")),
        _folded("Resources and cost", tables.facts("fact", resources, "")),
        _folded("Earlier attempts", tables.attempts(receipt), opened=True),
    ]


def evidence_html(receipt: Body, wrong: Sequence[Because] | None = None) -> str:
    """The page. ``wrong`` is what a verifier found; None says that nobody recomputed it.

    It fetches nothing and runs nothing. The receipt satisfies its schema.
    """
    seen = view(receipt, wrong)
    title = f"flashrt: {label(receipt['cell'])}"
    return page.document(title, [*_head(seen), *_pictures(seen), *_details(seen)])


def evidence_markdown(receipt: Body, wrong: Sequence[Because] | None = None) -> str:
    """The claim, whether it recomputes, and the tables, as Markdown; it has no pictures."""
    seen = view(receipt, wrong)
    sentence, broken = recomputed(seen.wrong)
    reasons = [str(Because.from_record(r)) for r in receipt["verdict"]["reasons"]]
    lines = [
        f"# {safe_text.markdown(label(receipt['cell']))}\n",
        f"**{safe_text.markdown(receipt['verdict']['state'])}**: "
        f"{safe_text.markdown(claim(receipt))}\n",
        safe_text.markdown(sentence) + "\n",
        *(f"- {safe_text.markdown(line)}" for line in [*broken, *reasons]),
        "",
    ]
    shown = [
        path_figure.table(seen.evidence["path"]),
        path_figure.chains(seen.evidence["path"]),
        tables.controls(seen),
        tables.diagnosis(seen),
        tables.facts("environment", seen.evidence["environment"], "environment"),
        tables.facts("statistic", seen.statistics, "statistics"),
        tables.facts("threshold", receipt["thresholds"], "thresholds"),
        tables.attempts(receipt),
    ]
    return "\n".join([*lines, *(table.markdown(t) for t in shown if t.rows)])
