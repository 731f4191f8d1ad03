"""``flashrt init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    kind: Annotated[str, typer.Argument(help="structure, binding or impl.")],
    name: Annotated[str, typer.Argument(help="Its name; for an impl STRUCTURE/BACKEND.")],
    to: Annotated[Path, typer.Option("--to", help="The folder to write below.")] = Path("."),
) -> None:
    """Start a new structure, binding or impl from a template."""
    from flashrt.spec.skeleton import write

    for path in write(kind, name, to):
        typer.echo(str(path))
