"""``flashrt``: a table of commands, each imported only when it is asked for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from flashrt_cli.exit_codes import ExitCode, of_reason

if TYPE_CHECKING:
    from flashrt.document.problem import Problem
    from flashrt_runtime.reason import Refusal

# Name and the first line of the command's docstring (a test holds the two together), so that
# help needs no command's imports.
COMMANDS: dict[str, str] = {
    "validate": "Check specs, bindings, impl manifests and receipts against their schemas.",
    "discover": "List the seams of a host, what was refused and why, and what its binding proves.",
    "calibrate": "Measure a host's calibration points on real frames and write a receipt.",
    "qualify": "Race and gate cells against the host, and write their receipts.",
    "race": "Time one treated arm against the host in the captured form.",
    "explain": "Say why a cell has, or has not, a receipt; or what a reason means.",
    "verify": "Recompute receipts and check a release's signature and digests.",
    "ledger": "Say what ran, how often, and what fell back.",
    "matrix": "Tabulate cells, their states and their intervals.",
    "report": "Write a page from receipts.",
    "publish-receipts": "Build a signed release from verified receipts.",
    "keys": "Make and show signing keys.",
    "lab": "Execute a small model in exact virtual time, and keep all evidence.",
    "init": "Start a new structure, binding or impl from a template.",
    "schema": "Print a JSON Schema that flashrt validates with.",
}

# Typer shows no name of its own for it, and which click it carries depends on its version.
_USAGE_ERROR: Any = typer.BadParameter.__bases__[0]


def version() -> str:
    """The installed version."""
    from importlib.metadata import version as installed

    return installed("flashrt")


def load_command(name: str) -> Any:
    """The click command of one name: its module's ``app``, or its function of the same name."""
    module = import_module(f"flashrt_cli.{name.replace('-', '_')}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command(name)(getattr(module, name.replace("-", "_")))
    command = typer.main.get_command(app)
    command.name = name
    return command


class LazyGroup(TyperGroup):
    """A group that knows its commands' names and help without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # The parent class suggests from what is loaded, and nothing is.
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    epilog=(
        "Exit status: 0 measured and no gate failed; 1 a gate failed or a cell is below --require; "
        "2 the input was refused; 3 something could not be measured here; 130 interrupted."
    ),
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"flashrt {version()}")
        raise typer.Exit()


@app.callback()
def flashrt(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the traceback of an unexpected error.")
    ] = False,
) -> None:
    """Qualify and release faster implementations of model regions, with evidence."""


def _take_flag(args: list[str], flag: str) -> bool:
    """Remove a flag that may stand anywhere before ``--``; whether it was there."""
    end = args.index("--") if "--" in args else len(args)
    found = flag in args[:end]
    args[:end] = [a for a in args[:end] if a != flag]
    return found


def _asked_format(args: Sequence[str]) -> str:
    """The value of ``--format``, read without parsing: an error may come before parsing."""
    for index, arg in enumerate(args):
        if arg == "--":
            break
        if arg.startswith("--format="):
            return arg.removeprefix("--format=")
        if arg == "--format" and index + 1 < len(args):
            return args[index + 1]
    return ""


def _problems(error: Refusal) -> tuple[Problem, ...]:
    from flashrt.document.problem import InputError, Problem

    if isinstance(error, InputError):
        return error.problems
    return (Problem("", 1, error.subject or "$", error.what, error.do, error.reason),)


def report_refusal(error: Refusal, args: Sequence[str]) -> ExitCode:
    """Print a refusal: for a person on stderr, and in the format asked for on stdout."""
    from flashrt.document.problem import InputError
    from flashrt.report.safe_text import log_line
    from flashrt_cli.output import Format, Output, emit, resolve_format
    from flashrt_cli.render_human import say

    problems = _problems(error)
    asked = _asked_format(args)
    fmt = resolve_format(Format(asked) if asked in {f.value for f in Format} else None, os.environ)
    if fmt is Format.JSON:
        from flashrt_cli.render_json import api_error, dumps

        sys.stdout.write(dumps({"errors": [api_error(p) for p in problems]}))
    elif fmt is not Format.HUMAN:
        emit(Output(title="refused", problems=problems), fmt)
    if fmt is not Format.GITHUB:  # there the annotations and the text are both on stdout
        for problem in problems:
            sys.stderr.write(log_line(say(problem)) + "\n")
    return ExitCode.REFUSED if isinstance(error, InputError) else of_reason(error.reason)


def _report_bug(error: Exception, debug: bool) -> ExitCode:
    from flashrt.report.safe_text import log_line

    if debug:
        import traceback

        traceback.print_exception(error)
    text = str(error).strip().partition("\n")[0]
    sys.stderr.write(
        log_line(f"flashrt failed: {type(error).__name__}: {text}") + "\n"
        "this is a bug; the same command with --debug prints the traceback to report\n"
    )
    return ExitCode.BUG


def _invoke(args: list[str]) -> int:
    """Run one command; what Typer makes of Ctrl-C and of a worker's closed pipe is undone."""
    try:
        code = typer.main.get_command(app).main(args, prog_name="flashrt", standalone_mode=False)
    except SystemExit as error:
        # Typer takes any closed pipe for stdout's and ends with 1: here, "a gate failed".
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    sys.stdout.flush()
    if code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else ExitCode.OK


def _run(rest: list[str]) -> int:
    from flashrt_cli.delivery import Undelivered
    from flashrt_runtime.reason import Refusal

    debug = _take_flag(rest, "--debug")
    try:
        return _invoke(rest)
    except _USAGE_ERROR as error:
        error.show()
        return ExitCode.REFUSED
    except Refusal as error:
        return report_refusal(error, rest)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        return ExitCode.INTERRUPTED
    except Undelivered:
        raise
    except Exception as error:
        return _report_bug(error, debug)


def run(args: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    from flashrt_cli.delivery import deliver

    return deliver(lambda: _run(list(args)))


def _interrupt(_number: int, _frame: object) -> None:
    """A CI that cancels, or a closing terminal, ends a measurement as Ctrl-C does."""
    raise KeyboardInterrupt


def main() -> None:
    """The ``flashrt`` program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:  # a name that the terminal's encoding lacks is shown as an escape
            reconfigure(errors="backslashreplace")
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:
            signal.signal(ending, _interrupt)
    raise SystemExit(int(run(sys.argv[1:])))
