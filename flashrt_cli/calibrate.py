"""``flashrt calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption
from flashrt_cli.output import FormatOption


def calibrate(
    *,
    host: Annotated[
        str, typer.Option(help="smollm2, transformers:FOLDER or transformers:ORG/NAME@COMMIT.")
    ] = "smollm2",
    frames: Annotated[str, typer.Option(help="brown, or text:FOLDER of .txt files.")] = "brown",
    samples: Annotated[int, typer.Option(min=1, help="Calibration frames to draw.")] = 32,
    held_out: Annotated[int, typer.Option(min=0, help="Frames kept apart for judging.")] = 16,
    window: Annotated[int, typer.Option(min=2, help="Tokens in a frame.")] = 128,
    percentile: Annotated[float, typer.Option(help="Across frames; 100 is the maximum.")] = 99.9,
    max_samples: Annotated[
        int | None, typer.Option(min=1, help="Use this many frames, stratified anew.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and the sampler.")] = 0,
    cache: Annotated[Path, typer.Option(help="Folder of converted hosts and corpora.")] = Path(
        ".flashrt"
    ),
    store: StoreOption = DEFAULT_STORE,
    verbose: Annotated[bool, typer.Option("--verbose", help="Report every point.")] = False,
    fmt: FormatOption = None,
) -> None:
    """Measure a host's calibration points on real frames and write a receipt."""
    from flashrt.calibration import calibrate as run_calibration
    from flashrt.calibration.summary import by_reason
    from flashrt.host import load
    from flashrt.host.corpus import load_corpus
    from flashrt.host.frames import text_frames
    from flashrt.host.seams import seams_of
    from flashrt.receipt.store import Store
    from flashrt_cli.output import Output, emit, problem_of
    from flashrt_cli.progress import reporting

    with reporting() as tell:
        tell("load", note=host)
        loaded = load(host, cache=cache)
        tell("frames", note=frames)
        corpus = load_corpus(frames, cache)
        split = text_frames(
            loaded.tokenizer,
            corpus,
            window=window,
            samples=samples,
            held_out=held_out,
            seed=seed,
        )
        found = seams_of(loaded)
        result = run_calibration(
            loaded.model,
            found.seams,
            split.calibration,
            model_artifact=loaded.model_artifact,
            workload=split.workload(),
            specs=found.specs,
            binding=found.binding,
            percentile=percentile,
            max_samples=max_samples,
            verbose=verbose,
            seed=seed,
            tell=tell,
        )
        digest = result.save(Store(store))
    emit(
        Output(
            title=f"calibrate {loaded.name}",
            lines=(result.summary, f"receipt {digest}"),
            data={"digest": digest, "receipt": result.body},
            warnings=[problem_of(because) for because in by_reason(result.warnings)],
        ),
        fmt,
    )
