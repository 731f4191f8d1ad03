"""``flashrt discover``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashrt_cli.output import FormatOption


def discover(
    host: Annotated[
        str, typer.Option(help="smollm2, transformers:FOLDER or transformers:ORG/NAME@COMMIT.")
    ] = "smollm2",
    cache: Annotated[Path, typer.Option(help="Folder of converted hosts.")] = Path(".flashrt"),
    fmt: FormatOption = None,
) -> None:
    """List the seams of a host, and what was refused and why."""
    from flashrt.host import load
    from flashrt.host.seams import compare, discover_host, seams_of
    from flashrt_cli.output import ExitCode, Output, Table, emit, finish, problem_of
    from flashrt_cli.progress import reporting

    with reporting() as tell:
        tell("load", note=host)
        loaded = load(host, cache=cache)
        tell("discover", note="one forward, observed")
        found = discover_host(loaded)
        bound = seams_of(loaded).seams if loaded.binding_name else ()
    differences = compare(bound, found.seams)
    seams = Table(
        ("seam", "structure", "shape", "variant", "points"),
        [
            (
                seam.id,
                seam.structure,
                " ".join(f"{k}={v}" for k, v in seam.dims.items()),
                " ".join(f"{k}={v}" for k, v in seam.variant.items() if v not in ("none", "host")),
                " ".join(f"{n}@{p.module}.{p.capture}" for n, p in seam.points.items()),
            )
            for seam in found.seams
        ],
        "Seams",
    )
    refused = Table(
        ("path", "looked at for", "reason", "what was seen"),
        [
            (m.path or "(the model)", m.structure, m.because.reason.name, m.because.detail)
            for m in found.refusals
        ],
        "Refused",
    )
    lines = [f"{len(found.seams)} seams, {len(found.refusals)} refused"]
    if loaded.binding_name:
        agree = "agrees with" if not differences else "differs from"
        lines.append(f"the binding {loaded.binding_name} {agree} what was found")
    notes = [problem_of(note) for note in found.notes]
    emit(
        Output(
            title=f"discover {loaded.name}",
            tables=(seams, refused),
            lines=lines,
            data={
                "model_artifact": loaded.model_artifact,
                "binding": loaded.binding_name,
                **found.record(),
            },
            problems=[problem_of(because) for because in differences],
            warnings=notes,
        ),
        fmt,
    )
    finish(ExitCode.OK if found.seams and not differences else ExitCode.REFUSED)
