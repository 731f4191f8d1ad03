"""``flashrt report``: a page from receipts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption, open_store
from flashrt_cli.output import ExitCode, Format, FormatOption, Output, emit, finish

if TYPE_CHECKING:
    from flashrt.receipt.store import Store


def report(
    calibration: Annotated[
        str | None,
        typer.Argument(help="Digest of a calibration receipt: draws it, and no other."),
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
    if calibration is not None:
        _calibration(kept, calibration, out, fmt)
    receipts = list(kept.list("qualification"))
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


def _calibration(store: Store, digest: str, out: Path, fmt: Format | None) -> NoReturn:
    from flashrt.report.calibration_plot import plot, require_plottable

    require_plottable(out)
    body = store.get("calibration", digest)
    plot(body, store.table_path(str(body["table"])).read_bytes(), out)
    emit(
        Output(
            title=f"wrote {out}",
            lines=[str(body["summary"])],
            data={"file": str(out), "calibration": digest},
        ),
        fmt,
    )
    finish(ExitCode.OK)
