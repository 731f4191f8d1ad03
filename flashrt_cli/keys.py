"""``flashrt keys``: signing keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashrt_cli.output import FormatOption, Output, emit

app = typer.Typer(
    help="Make and show signing keys.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)


@app.command()
def new(
    path: Annotated[Path, typer.Argument(help="Where the private key goes; .pub is added beside.")],
    passphrase_file: Annotated[
        Path | None, typer.Option(help="Encrypt the key with this file's first line.")
    ] = None,
    fmt: FormatOption = None,
) -> None:
    """Make an ed25519 key pair; nothing is ever overwritten."""
    from flashrt.release.signing_key import new_key, public_path

    public = new_key(path, passphrase_file)
    emit(
        Output(
            title=f"made {path} and {public_path(path)}",
            lines=(
                f"key id {public.id}",
                f"keep {path.name} private; whoever runs the release trusts {path.name}.pub",
            ),
            data={
                "private": str(path),
                "public": str(public_path(path)),
                "keyid": public.id,
                "encrypted": passphrase_file is not None,
            },
        ),
        fmt,
    )


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="A public or a private key.")],
    passphrase_file: Annotated[
        Path | None, typer.Option(help="The file that unlocks the private key.")
    ] = None,
    fmt: FormatOption = None,
) -> None:
    """Show a key's id and its public half."""
    from flashrt.release.signing_key import load_any

    public = load_any(path, passphrase_file)
    emit(
        Output(
            title=f"key id {public.id}",
            lines=(public.pem().decode().rstrip(),),
            data={"keyid": public.id, "pem": public.pem().decode()},
        ),
        fmt,
    )
