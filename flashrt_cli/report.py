"""``flashrt report``: a page from receipts, with every picture of one that is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption, open_store, open_verifier
from flashrt_cli.output import (
    ExitCode,
    Format,
    FormatOption,
    Output,
    emit,
    finish,
    problem_of,
)

if TYPE_CHECKING:
    from flashrt.receipt.store import Store

PAGES = (".html", ".htm", ".md")


def report(
    receipt: Annotated[
        str | None,
        typer.Argument(
            help="A receipt: its digest, its cell's, a calibration's, or a file. All by default."
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="File to write: .html; .md for Markdown; a calibration, .png too."
        ),
    ] = Path("flashrt-report.html"),
    store: StoreOption = DEFAULT_STORE,
    fmt: FormatOption = None,
) -> None:
    """Write a page from receipts."""
    from flashrt.document.atomic import write_atomic
    from flashrt.report.receipt_page import report_html, report_markdown

    kept = open_store(store)
    if receipt is not None:
        _one(kept, receipt, out, fmt)
    _require_page(out)
    receipts = list(kept.list("qualification"))
    make = report_markdown if out.suffix == ".md" else report_html
    write_atomic(out, make(receipts, kept.revoked()).encode())
    emit(
        Output(
            title=f"wrote {out}",
            lines=[f"{len(receipts)} receipts"],
            data={"file": str(out), "receipts": len(receipts)},
        ),
        fmt,
    )
    finish(ExitCode.OK if receipts else ExitCode.NOT_MEASURED)


def _require_page(out: Path) -> None:
    from flashrt_runtime.reason import Reason, Refusal

    if out.suffix.lower() not in PAGES:
        raise Refusal(
            Reason.CONFLICT, "a page is .html or .md", subject=str(out), do="name the file so"
        )


def _one(store: Store, subject: str, out: Path, fmt: Format | None) -> NoReturn:
    from flashrt.report.chosen import choose

    body = choose(store, subject)
    if body["kind"] == "calibration":
        _calibration(store, body, out, fmt)
    _receipt(body, out, fmt)


def _receipt(body: dict[str, Any], out: Path, fmt: Format | None) -> NoReturn:
    """One receipt's page. It says what does not recompute, and then the status is a gate's."""
    from flashrt.document.atomic import write_atomic
    from flashrt.report.evidence_page import claim, evidence_html, evidence_markdown

    _require_page(out)
    wrong = open_verifier()(body)
    make = evidence_markdown if out.suffix == ".md" else evidence_html
    write_atomic(out, make(body, wrong).encode())
    holds = "every claim holds" if not wrong else f"{len(wrong)} claims do not hold"
    emit(
        Output(
            title=f"wrote {out}",
            lines=[f"{body['verdict']['state']}: {claim(body)}", f"recomputed: {holds}"],
            data={"file": str(out), "receipt": body["digest"], "holds": not wrong},
            problems=[problem_of(because) for because in wrong],
        ),
        fmt,
    )
    finish(ExitCode.GATE_FAILED if wrong else ExitCode.OK)


def _calibration(store: Store, body: dict[str, Any], out: Path, fmt: Format | None) -> NoReturn:
    from flashrt.report.calibration_plot import plot, require_plottable

    require_plottable(out)
    plot(body, store.table_path(str(body["table"])).read_bytes(), out)
    emit(
        Output(
            title=f"wrote {out}",
            lines=[str(body["summary"])],
            data={"file": str(out), "calibration": body["digest"]},
        ),
        fmt,
    )
    finish(ExitCode.OK)
