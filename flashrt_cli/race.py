"""``flashrt race``: one race, or with ``--null`` what this machine can see; shown, not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption
from flashrt_cli.output import ExitCode, FormatOption, emit, finish

if TYPE_CHECKING:
    from flashrt.qualify.request import Budget, CellRequest
    from flashrt.race.study import NullStudy


def race(
    *,
    cell: Annotated[
        str, typer.Option("--cell", help="SCHEME[+chains]@PHASE[:ROWS][/FORM].")
    ] = "fp16_weight@decode",
    host: Annotated[
        str | None,
        typer.Option(
            help="smollm2 (default), tiny_gpt or transformers:PATH_OR_ID; matmul with --null."
        ),
    ] = None,
    frames: Annotated[str, typer.Option(help="brown or text:FOLDER.")] = "brown",
    context: Annotated[int, typer.Option(help="Length of the static cache, in tokens.")] = 256,
    null: Annotated[
        bool,
        typer.Option("--null", help="Race the host against itself: is this machine fit to judge?"),
    ] = False,
    races: Annotated[int, typer.Option(min=1, help="Number of races with --null.")] = 20,
    margin: Annotated[
        float, typer.Option(min=1.0, help="Speed-up to be exceeded, with --null.")
    ] = 1.02,
    seconds: Annotated[float, typer.Option(help="Longest duration of each race.")] = 60.0,
    threads: Annotated[int, typer.Option(help="Threads; 0 means every core.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of frames and block orders.")] = 0,
    store: StoreOption = DEFAULT_STORE,
    fmt: FormatOption = None,
) -> None:
    """Time one treated arm against the host in the captured form."""
    from flashrt.qualify.request import Budget, CellRequest

    request = CellRequest.parse(cell, context)
    budget = Budget.of(processes=1, seconds=seconds, windows=1, positions=16, threads=threads)
    if null:
        from flashrt.qualify.null_arm import MATMUL
        from flashrt_cli.render_null import render as render_null

        name = host or MATMUL
        study = _study(name, request, budget, races=races, margin=margin, seed=seed)
        emit(render_null(name, request, study), fmt)
        finish(ExitCode.OK if study.fit else ExitCode.NOT_MEASURED)
    from flashrt.qualify.prepare import prepare
    from flashrt.qualify.solo import race_once
    from flashrt.receipt.store import Store
    from flashrt_cli.progress import reporting
    from flashrt_cli.render_race import render

    with reporting() as tell:
        ready = prepare(
            host or "smollm2",
            frames,
            (request,),
            Store(store),
            calibration=None,
            seed=seed,
            tell=tell,
        )
        seen = race_once(ready, request, budget, tell)
    emit(render(request, seen), fmt)
    finish(ExitCode.OK if seen.decided else ExitCode.NOT_MEASURED)


def _study(
    host: str, request: CellRequest, budget: Budget, *, races: int, margin: float, seed: int
) -> NullStudy:
    """A/A races of the host's captured step under the rule of a first attempt at one cell."""
    from flashrt.gate.thresholds import ALPHA, PROCESSES, require_stated
    from flashrt.qualify.null_arm import null_arm
    from flashrt.race.clock import MachineClock
    from flashrt.race.decision import PastMargin, alpha_of_attempt
    from flashrt.race.load import ProcStat
    from flashrt.race.rule import Rule
    from flashrt.race.study import null_study
    from flashrt_cli.progress import reporting

    require_stated(margin, None, PROCESSES)
    rule = Rule(PastMargin(margin), alpha_of_attempt(ALPHA, 1), budget_s=budget.seconds)
    with reporting() as tell:
        arm = null_arm(host, request, budget.threads, seed)
        return null_study(
            arm,
            MachineClock(),
            ProcStat(),
            rule,
            races=races,
            seed=seed,
            tell=lambda done: tell("null races", done, races),
        )
