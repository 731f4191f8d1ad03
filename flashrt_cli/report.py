"""``flashrt report``: a page from receipts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption, open_store
from flashrt_cli.output import ExitCode, FormatOption, Output, emit, finish


def report(
    out: Annotated[
        Path, typer.Option("--out", help="File to write: .html, or .md for Markdown.")
    ] = Path("flashrt-report.html"),
    store: StoreOption = DEFAULT_STORE,
    fmt: FormatOption = None,
) -> None:
    """Write a page from receipts."""
    from flashrt.document.atomic import write_atomic
    from flashrt.report.receipt_page import report_html, report_markdown

    receipts = list(open_store(store).list("qualification"))
    make = report_markdown if out.suffix == ".md" else report_html
    write_atomic(out, make(receipts).encode())
    emit(
        Output(
            title=f"wrote {out}",
            lines=[f"{len(receipts)} receipts"],
            data={"file": str(out), "receipts": len(receipts)},
        ),
        fmt,
    )
    finish(ExitCode.OK if receipts else ExitCode.NOT_MEASURED)
