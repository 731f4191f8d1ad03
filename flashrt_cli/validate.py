"""``flashrt validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashrt_cli.output import FormatOption


def validate(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files or folders; everything of this tree by default."),
    ] = None,
    catalog: Annotated[
        list[Path] | None,
        typer.Option(
            "--catalog",
            help="A catalog folder of yours whose references may be run. Repeatable.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    fmt: FormatOption = None,
) -> None:
    """Check specs, bindings, impl manifests and receipts against their schemas."""
    from flashrt.binding.audit import audit
    from flashrt_cli.output import Case, ExitCode, Outcome, Output, Table, emit, finish

    checked = audit(paths or (), catalog or ())
    problems = [p for c in checked for p in c.problems]
    bad = [c for c in checked if c.problems]
    table = Table(
        ("file", "kind", "problems"), [(c.file, c.kind, str(len(c.problems))) for c in checked]
    )
    said = f"{len(checked)} files, {len(problems)} problems in {len(bad)} of them"
    emit(
        Output(
            title="validate",
            tables=(table,),
            lines=(said,),
            data={
                "files": [
                    {"file": c.file, "kind": c.kind, "problems": len(c.problems)} for c in checked
                ]
            },
            problems=problems,
            warnings=[p for c in checked for p in c.notices],
            cases=[
                Case(
                    c.file,
                    Outcome.FAILED if c.problems else Outcome.PASSED,
                    "\n".join(str(p) for p in c.problems),
                    c.kind,
                )
                for c in checked
            ],
        ),
        fmt,
    )
    finish(ExitCode.REFUSED if problems else ExitCode.OK)
