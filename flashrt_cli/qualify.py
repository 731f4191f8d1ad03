"""``flashrt qualify``: from cells asked for to receipts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from flashrt.release.state import State
from flashrt_cli.options import DEFAULT_STORE, StoreOption
from flashrt_cli.output import ExitCode, Format, FormatOption, emit, finish

if TYPE_CHECKING:
    from flashrt.qualify.request import CellRequest
    from flashrt.receipt.store import Store

Cells = Annotated[
    list[str] | None,
    typer.Option(
        "--cell",
        help="SCHEME[+chains]@PHASE[:ROWS][/FORM]; may be repeated. Overrides --matrix.",
    ),
]
Floors = Annotated[
    list[str] | None,
    typer.Option("--floor", help="METRIC=VALUE that must be met; may be repeated."),
]
Expect = Annotated[
    list[str] | None,
    typer.Option("--expect", help="STATE for every cell, or CELL=STATE; may be repeated."),
]


def qualify(
    *,
    host: Annotated[
        str, typer.Option(help="smollm2, tiny_gpt or transformers:PATH_OR_ID.")
    ] = "smollm2",
    frames: Annotated[str, typer.Option(help="brown or text:FOLDER.")] = "brown",
    device: Annotated[str, typer.Option(help="cpu, or sm80 to sm120.")] = "cpu",
    matrix: Annotated[str, typer.Option(help="Which cells: main or all.")] = "main",
    cell: Cells = None,
    context: Annotated[int, typer.Option(help="Length of the static cache, in tokens.")] = 256,
    store: StoreOption = DEFAULT_STORE,
    calibration: Annotated[
        str | None, typer.Option(help="Digest of the calibration receipt to use.")
    ] = None,
    overrides: Annotated[
        Path | None, typer.Option(help="File of scales to use in place of the calibrated ones.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="A margin above the spec's own; never below.")
    ] = None,
    floor: Floors = None,
    processes: Annotated[int, typer.Option(help="Fresh processes; three at least.")] = 3,
    seconds: Annotated[float, typer.Option(help="Longest duration of one race.")] = 90.0,
    windows: Annotated[int, typer.Option(help="Held-out frames to judge parity on.")] = 8,
    positions: Annotated[int, typer.Option(help="Positions judged in each frame.")] = 64,
    threads: Annotated[int, typer.Option(help="Threads; 0 means every core.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of frames and block orders.")] = 0,
    require: Annotated[
        State | None, typer.Option(help="Exit 1 when a cell ends below this state.")
    ] = None,
    expect: Expect = None,
    fmt: FormatOption = None,
) -> None:
    """Race and gate cells against the host, and write their receipts."""
    from flashrt.gate.thresholds import require_stated
    from flashrt.qualify.expectation import parse_expectations, parse_floors
    from flashrt.qualify.prepare import prepare
    from flashrt.qualify.request import Budget
    from flashrt.qualify.run import Run, Stated, now, qualify
    from flashrt.receipt.store import Store
    from flashrt_cli.progress import reporting
    from flashrt_cli.render_cells import render

    requests = _requests(cell, matrix, context)
    floors, expected = parse_floors(floor or []), parse_expectations(expect or [], requests)
    if device != "cpu":
        _preflight(device, Store(store), fmt)
    budget = Budget.of(
        processes=processes,
        seconds=seconds,
        windows=windows,
        positions=positions,
        threads=threads,
    )
    require_stated(margin, floors, processes)
    stated = Stated(margin, floors, ("flashrt", "qualify", *(r.text for r in requests)))
    with reporting() as tell:
        ready = prepare(
            host,
            frames,
            requests,
            Store(store),
            calibration=calibration,
            seed=seed,
            tell=tell,
            overrides=overrides,
        )
        run = Run(ready, Store(store), budget, stated, now())
        results = qualify(run, requests, tell)
    output, codes = render(results, require, expected)
    emit(output, fmt)
    finish(*codes)


def _requests(cells: list[str] | None, matrix: str, context: int) -> tuple[CellRequest, ...]:
    from flashrt.qualify.request import CellRequest, named_matrix

    if cells:
        return tuple(CellRequest.parse(text, context) for text in cells)
    return named_matrix(matrix, context)


def _preflight(device: str, store: Store, fmt: Format | None) -> NoReturn:
    """Everything that needs no device; ends the command with the code for "not measured"."""
    from flashrt.qualify.preflight_run import run_preflight
    from flashrt_cli.render_preflight import render

    result = run_preflight(device, store)
    emit(render(result), fmt)
    finish(ExitCode.NOT_MEASURED if result.sound else ExitCode.GATE_FAILED)
