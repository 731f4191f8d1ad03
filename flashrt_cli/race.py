"""``flashrt race``: one race, shown and not kept."""

from __future__ import annotations

from typing import Annotated

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption
from flashrt_cli.output import ExitCode, FormatOption, emit, finish


def race(
    *,
    cell: Annotated[
        str, typer.Option("--cell", help="SCHEME@PHASE[:ROWS].")
    ] = "fp16_weight@decode",
    host: Annotated[str, typer.Option(help="smollm2 or transformers:PATH_OR_ID.")] = "smollm2",
    frames: Annotated[str, typer.Option(help="brown or text:FOLDER.")] = "brown",
    context: Annotated[int, typer.Option(help="Length of the static cache, in tokens.")] = 256,
    seconds: Annotated[float, typer.Option(help="Longest duration of each race.")] = 60.0,
    threads: Annotated[int, typer.Option(help="Threads; 0 means every core.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of frames and block orders.")] = 0,
    store: StoreOption = DEFAULT_STORE,
    fmt: FormatOption = None,
) -> None:
    """Time one treated arm against the host in the captured form."""
    from flashrt.qualify.prepare import prepare

    from flashrt.qualify.request import Budget, CellRequest
    from flashrt.qualify.solo import race_once
    from flashrt.receipt.store import Store
    from flashrt_cli.progress import reporting
    from flashrt_cli.render_race import render

    request = CellRequest.parse(cell, context)
    budget = Budget.of(processes=1, seconds=seconds, windows=1, positions=16, threads=threads)
    with reporting() as tell:
        ready = prepare(
            host, frames, (request,), Store(store), calibration=None, seed=seed, tell=tell
        )
        seen = race_once(ready, request, budget, tell)
    emit(render(request, seen), fmt)
    finish(ExitCode.OK if seen.decided else ExitCode.NOT_MEASURED)
