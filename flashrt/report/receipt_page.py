"""The report: the matrix, then each receipt's facts, evidence and verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from flashrt.release.matrix import label, matrix, said
from flashrt.release.resolve import resolve
from flashrt.release.source import Body, short
from flashrt.report import page, safe_text, table
from flashrt.report.forest import STYLE
from flashrt.report.table import Table
from flashrt_runtime.reason import Because

_TITLE = "flashrt: what the receipts say"


def _number(value: Any) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, list):
        return " to ".join(_number(part) for part in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def facts_table(receipt: Body) -> Table:
    """The facts that the claim is valid for."""
    cell, environment = receipt["cell"], receipt["evidence"]["environment"]
    software = ", ".join(f"{name} {value}" for name, value in sorted(cell["software"].items()))
    impls = ", ".join(f"{i['structure']} {i['backend']}/{i['form']}" for i in cell["impls"])
    rows = [
        ("receipt", receipt["digest"]),
        ("cell", receipt["cell_digest"]),
        ("measured", receipt["execution"]["started_at"]),
        ("checkpoint", cell["model_artifact"]["checkpoint_digest"]),
        ("impls", impls),
        ("device", f"{cell['device']['name']}, {cell['device']['threads']} threads"),
        ("form", " → ".join(cell["form"])),
        ("software", software),
        ("kernel", str(environment.get("kernel"))),
        ("workload", f"{receipt['workload']['name']} ({receipt['workload']['source']})"),
    ]
    return Table(("fact", "value"), rows, "what the claim is valid for")


def evidence_table(receipt: Body) -> Table:
    """The statistics that the verdict rests on; parity says whether its frames were held out."""
    statistics = receipt["verdict"]["statistics"]
    where = receipt["evidence"]["parity"]["label"].replace("_", " ")
    rows = []
    for name, value in sorted((statistics["parity"] or {}).items()):
        rows.append((f"parity {name} ({where})", _number(value)))
    for name in ("speedup", "null"):
        for part, value in (statistics[name] or {}).items():
            rows.append((f"{name} {part}", _number(value)))
    for index, value in enumerate(statistics["process_medians"]):
        rows.append((f"process {index} median", _number(value)))
    for name, value in sorted((statistics["dtype_ratio"]).items()):
        rows.append((f"of the host in {name}", _number(value)))
    return Table(("statistic", "value"), rows, "evidence, in ratios of host to treated time")


def _parts(receipts: Sequence[Body], revoked: Iterable[str]) -> list[tuple[str, str, list[Table]]]:
    """Title, standing and tables of each receipt, live ones first."""
    dead = resolve(receipts, revoked).dead
    parts = []
    for receipt in sorted(receipts, key=lambda r: (r["digest"] in dead, label(r["cell"]))):
        verdict = receipt["verdict"]
        reasons = said(map(Because.from_record, verdict["reasons"]))
        standing = f"{verdict['state']}, band {verdict['band']}" + (
            f": {reasons}" if reasons else ""
        )
        if receipt["digest"] in dead:
            standing = f"not live ({dead[receipt['digest']].detail}); {standing}"
        title = f"{label(receipt['cell'])} · {short(receipt['digest'])}"
        parts.append((title, standing, [facts_table(receipt), evidence_table(receipt)]))
    return parts


def report_html(receipts: Sequence[Body], revoked: Collection[str] = ()) -> str:
    """A static, self-contained page. ``revoked`` receipts were withdrawn by their author."""
    found = matrix(receipts, revoked=revoked)
    body = [
        f"<p>{safe_text.html(found.promise())}</p>",
        f"<style>{STYLE}</style>",
        f'<div class="wide">{page.intervals(found.rows)}</div>',
        f'<div class="wide">{table.html(found.table())}</div>',
    ]
    for title, standing, tables in _parts(receipts, revoked):
        body.append(f"<h2>{safe_text.html(title)}</h2>\n<p>{safe_text.html(standing)}</p>")
        body += [table.html(t) for t in tables]
    return page.document(_TITLE, body)


def report_markdown(receipts: Sequence[Body], revoked: Collection[str] = ()) -> str:
    """The same as Markdown."""
    body = [f"# {_TITLE}\n", page.matrix_markdown(matrix(receipts, revoked=revoked))]
    for title, standing, tables in _parts(receipts, revoked):
        body.append(f"## {safe_text.markdown(title)}\n\n{safe_text.markdown(standing)}\n")
        body += [table.markdown(t) for t in tables]
    return "\n".join(body)
