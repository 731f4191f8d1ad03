"""``flashrt lab``: inference executed for real on a small model, in exact virtual time."""

from __future__ import annotations

import typer

from flashrt_cli.lab_compare import compare
from flashrt_cli.lab_designs import designs
from flashrt_cli.lab_explain import explain
from flashrt_cli.lab_prepare import prepare
from flashrt_cli.lab_run import run
from flashrt_cli.lab_sweep import sweep
from flashrt_cli.lab_verify import verify

app = typer.Typer(
    help="Execute a small model in exact virtual time, and keep all evidence.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)

for command in (designs, run, sweep, verify, compare, explain, prepare):
    app.command()(command)
