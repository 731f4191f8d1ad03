"""``flashrt calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption
from flashrt_cli.output import FormatOption

if TYPE_CHECKING:
    from flashrt.report.calibration_view import CalibrationView

_LARGEST = 2**53 - 1  # the largest whole number that a receipt can hold


def calibrate(
    *,
    host: Annotated[
        str,
        typer.Option(
            help="smollm2, tiny_gpt, transformers:FOLDER, transformers:ORG/NAME@COMMIT, tiny:NAME."
        ),
    ] = "smollm2",
    frames: Annotated[
        str,
        typer.Option(help="brown, text:FOLDER of .txt files, or lerobot:FOLDER of a robot."),
    ] = "brown",
    samples: Annotated[
        int, typer.Option(min=1, max=_LARGEST, help="Calibration frames to draw.")
    ] = 32,
    held_out: Annotated[
        int, typer.Option(min=0, max=_LARGEST, help="Frames kept apart for judging.")
    ] = 16,
    window: Annotated[
        int, typer.Option(min=2, max=_LARGEST, help="Tokens in a frame of text.")
    ] = 128,
    percentile: Annotated[float, typer.Option(help="Across frames; 100 is the maximum.")] = 99.9,
    max_samples: Annotated[
        int | None, typer.Option(min=1, max=_LARGEST, help="Use this many frames, stratified anew.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=_LARGEST, help="Seed of the split and the sampler.")
    ] = 0,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Document, episode or robot frame never to draw; may be repeated."),
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder of converted hosts and corpora.")] = Path(
        ".flashrt"
    ),
    store: StoreOption = DEFAULT_STORE,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the calibration: a .html page, or a .png.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Report every point.")] = False,
    fmt: FormatOption = None,
) -> None:
    """Measure a host's calibration points on real frames and write a receipt."""
    from flashrt.calibration import calibrate as run_calibration
    from flashrt.calibration.source import frames_of, host_of, require_source
    from flashrt.calibration.summary import by_reason
    from flashrt.host.seams import seams_of
    from flashrt.receipt.store import Store
    from flashrt.report.calibration_page import points_table
    from flashrt.report.calibration_plot import require_plottable
    from flashrt.report.calibration_view import view
    from flashrt_cli.output import Output, emit, problem_of
    from flashrt_cli.progress import reporting
    from flashrt_cli.writable import require_file, require_folder

    require_source(frames)  # refused, as all that follows, before minutes are spent
    if plot is not None:
        require_plottable(plot)
        require_file(plot)
    for folder in (store, store / "calibration", store / "table"):
        require_folder(folder)
    with reporting(summary=True) as tell:
        tell("load", note=host)
        loaded = host_of(host, cache)
        tell("frames", note=frames)
        drawn = frames_of(
            frames,
            loaded,
            window=window,
            samples=samples,
            held_out=held_out,
            seed=seed,
            exclude=exclude or (),
            cache=cache,
        )
        found = seams_of(loaded)
        result = run_calibration(
            loaded.model,
            found.seams,
            drawn.split.calibration,
            model_artifact=loaded.model_artifact,
            workload=drawn.split.workload(),
            specs=found.specs,
            binding=found.binding,
            percentile=percentile,
            max_samples=max_samples,
            seed=seed,
            run=drawn.run,
            tell=tell,
        )
        digest = result.save(Store(store))
    seen = view(result.body, result.table) if verbose or plot is not None else None
    if seen is not None and plot is not None:
        _draw(seen, plot, digest)
    emit(
        Output(
            title=f"calibrate {loaded.name}",
            tables=[points_table(seen)] if verbose and seen is not None else (),
            lines=(result.summary, f"receipt {digest}", *([f"wrote {plot}"] if plot else [])),
            data={"digest": digest, "receipt": result.body},
            warnings=[problem_of(because) for because in by_reason(result.warnings)],
        ),
        fmt,
    )


def _draw(seen: CalibrationView, plot: Path, digest: str) -> None:
    """Draw; when that fails, say which receipt was kept all the same."""
    from flashrt.report.calibration_plot import draw
    from flashrt_runtime.reason import Refusal

    try:
        draw(seen, plot)
    except Refusal as error:
        do = f"the receipt {digest} is kept: `flashrt report {digest} -o FILE` draws it"
        raise Refusal(error.reason, error.what, subject=error.subject, do=do) from error
