"""``flashrt lab prepare``: train the tiny model on a corpus that a package ships."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flashrt_cli.output import FormatOption, Output, Table, emit


def prepare(
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the new artifact; it must not be there yet.")
    ] = Path(".flashrt/lab/artifact"),
    seed: Annotated[int, typer.Option(help="Seed of weights and batches.", min=0)] = 0,
    steps: Annotated[int, typer.Option(help="Steps of training.", min=1)] = 1200,
    fmt: FormatOption = None,
) -> None:
    """Train the lab's model and tokenizer, and write the artifact (a few minutes of CPU)."""
    from flashrt.lab.model import prepare as prepared
    from flashrt_cli.writable import require_folder
    from flashrt_runtime.reason import Reason, Refusal

    if out.exists():
        what = "it is there already, and nothing is overwritten"
        raise Refusal(Reason.STORAGE, what, subject=str(out), do="give another --out")
    require_folder(out)
    loaded = prepared(out, seed=seed, steps=steps, progress=_say)
    identity = loaded.identity
    rows = [(key, str(value)) for key, value in identity.record().items()]
    emit(
        Output(
            title=f"{out}: {identity.name}",
            tables=[Table(("field", "value"), rows)],
            lines=[f"execute with it: `flashrt lab run DESIGN --artifact {out}`"],
            data={"folder": str(out), "model_artifact": identity.record()},
        ),
        fmt,
    )


def _say(done: int, steps: int, loss: float) -> None:
    sys.stderr.write(f"[{done}/{steps}] loss {loss:.3f}\n")
    sys.stderr.flush()
