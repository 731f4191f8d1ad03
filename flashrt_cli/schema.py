"""``flashrt schema``."""

from __future__ import annotations

from typing import Annotated

import typer


def schema(
    name: Annotated[
        str | None, typer.Argument(help="The schema's name; without it the names are listed.")
    ] = None,
) -> None:
    """Print a JSON Schema that flashrt validates with."""
    from flashrt.document.schema import schema_names, schema_text
    from flashrt.spec.model import suggest
    from flashrt_runtime.reason import Reason, Refusal

    names = schema_names()
    if name is None:
        for known in names:
            typer.echo(known)
        return
    if f"lab/{name}" in names:
        name = f"lab/{name}"
    if name not in names:
        raise Refusal(
            Reason.SCHEMA, "there is no schema of this name", subject=name, do=suggest(name, names)
        )
    typer.echo(schema_text(name), nl=False)
