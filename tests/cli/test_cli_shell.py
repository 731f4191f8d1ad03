"""The shell: lazy commands, help, exit codes, errors and interrupts."""

import inspect
import json
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer

from flashrt.document.problem import InputError, Problem
from flashrt_cli import main, output
from flashrt_cli.exit_codes import ExitCode, combine, of_reason
from flashrt_runtime.reason import Reason, Refusal

THERE = [
    name
    for name in main.COMMANDS
    if (Path(main.__file__).parent / f"{name.replace('-', '_')}.py").is_file()
]


@pytest.mark.parametrize("name", THERE)
def test_table_repeats_the_commands_own_first_line(name):
    module = import_module(f"flashrt_cli.{name.replace('-', '_')}")
    app = getattr(module, "app", None)
    own = app.info.help if app else inspect.getdoc(getattr(module, name.replace("-", "_")))
    assert main.COMMANDS[name] == (own or "").partition("\n")[0]


@pytest.mark.parametrize("name", THERE)
def test_every_command_has_help_and_imports_no_torch_for_it(name):
    code = (
        "import sys; from flashrt_cli.main import run; "
        f"code = run([{name!r}, '--help']); "
        "heavy = {'torch', 'transformers', 'numpy', 'scipy', 'rich'} & set(sys.modules); "
        "print('HEAVY', sorted(heavy)); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "HEAVY []" in done.stdout
    assert main.COMMANDS[name].split()[0] in done.stdout


def test_help_imports_no_command():
    code = (
        "import sys; from flashrt_cli.main import COMMANDS, run; run(['--help']); "
        "ours = {m for m in sys.modules if m.startswith(('flashrt_cli.', 'flashrt.'))}; "
        "ours -= {f'flashrt_cli.{m}' for m in ('main', 'exit_codes', 'delivery')}; "
        "print('OURS', sorted(ours)); "
        "print('HEAVY', sorted({'torch', 'rich', 'jsonschema', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "OURS []" in done.stdout
    assert "HEAVY []" in done.stdout
    for name in main.COMMANDS:
        assert f"\n  {name} " in done.stdout


def command(monkeypatch, body):
    """Make ``flashrt schema`` run ``body``."""

    def made(name):
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command("schema")(body)
        return typer.main.get_command(app)

    monkeypatch.setattr(main, "load_command", made)


def raising(error):
    def body(fmt: output.FormatOption = None) -> None:
        raise error

    return body


@pytest.fixture(autouse=True)
def no_ci(monkeypatch):
    for name in ("CI", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


def test_version(capsys):
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("flashrt ")


@pytest.mark.parametrize("args", [[], ["verfy"], ["--bad"], ["verify", "--bad"], ["keys"]])
def test_usage_errors_exit_2(args, capsys):
    assert main.run(args) == ExitCode.REFUSED
    assert capsys.readouterr().out == ""


def test_near_names_are_suggested(capsys):
    main.run(["verfy"])
    assert "Did you mean verify" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.SCHEMA, 2), (Reason.SIGNATURE, 2), (Reason.STORAGE, 2), (Reason.AMBIGUOUS, 2),
        (Reason.FALLBACK, 1), (Reason.NEVER_CALLED, 1), (Reason.ROLLBACK, 1),
        (Reason.ARCH_ABSENT, 3), (Reason.UNKNOWN_CELL, 3), (Reason.NOISE, 3),
        (Reason.INCOMPLETE, 3), (Reason.UNCAPTURABLE, 3),
    ],
)  # fmt: skip
def test_refusals_exit_by_reason(monkeypatch, capsys, reason, code):
    command(monkeypatch, raising(Refusal(reason, "no", subject="thing", do="do this")))
    assert main.run(["schema"]) == code == of_reason(reason)
    err = capsys.readouterr().err
    assert err.startswith("thing: no; do this")


def test_input_errors_exit_2_whatever_the_reason_and_name_every_problem(monkeypatch, capsys):
    error = InputError.of(
        [
            Problem("a.yaml", 3, "$.x", "is wrong", "mend it", Reason.UNKNOWN_CELL),
            Problem("b.yaml", 1, "$", "is not there"),
        ]
    )
    command(monkeypatch, raising(error))
    assert main.run(["schema"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "a.yaml:3: $.x: is wrong; mend it [FRT019 UNKNOWN_CELL]",
        "b.yaml:1: $: is not there",
    ]


@pytest.mark.parametrize("args", [["--format", "json"], ["--format=json"]])
def test_errors_as_json(monkeypatch, capsys, args):
    command(monkeypatch, raising(InputError("a.yaml", 3, "$.x", "is wrong", "mend it")))
    assert main.run(["schema", *args]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error == {
        "code": "FRT023",
        "name": "SCHEMA",
        "subject": "a.yaml:3: $.x",
        "rule": Reason.SCHEMA.sentence,
        "message": "is wrong",
        "advice": "mend it",
    }


@pytest.mark.parametrize("fmt", ["github", "junit", "sarif"])
def test_errors_in_the_other_formats(monkeypatch, capsys, fmt):
    command(monkeypatch, raising(InputError("a.yaml", 3, "$.x", "is wrong")))
    assert main.run(["schema", "--format", fmt]) == 2
    assert "is wrong" in capsys.readouterr().out


def test_errors_in_ci_are_annotations(monkeypatch, capsys):
    monkeypatch.setenv("CI", "true")
    command(monkeypatch, raising(InputError("a.yaml", 3, "$.x", "is wrong")))
    main.run(["schema"])
    captured = capsys.readouterr()
    assert "::error file=a.yaml,line=3," in captured.out
    assert captured.err == ""


def test_a_bug_exits_70_and_shows_its_traceback_when_asked(monkeypatch, capsys):
    command(monkeypatch, raising(RuntimeError("boom\n::error::forged")))
    assert main.run(["schema"]) == ExitCode.BUG
    err = capsys.readouterr().err
    assert "RuntimeError: boom" in err
    assert "--debug" in err
    assert "Traceback" not in err
    for args in (["schema", "--debug"], ["--debug", "schema"]):
        assert main.run(args) == ExitCode.BUG
        assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_interrupt_exits_130(monkeypatch, capsys, error):
    command(monkeypatch, raising(error))
    assert main.run(["schema"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_finish_takes_the_first_of_2_1_3(monkeypatch):
    def body() -> None:
        output.finish(ExitCode.OK, ExitCode.NOT_MEASURED, ExitCode.GATE_FAILED)

    command(monkeypatch, body)
    assert main.run(["schema"]) == 1
    assert combine([]) == 0
    assert combine([3, 0]) == 3
    assert combine([3, 1, 2]) == 2


def test_debug_after_the_separator_is_an_argument():
    args = ["schema", "--", "--debug"]
    assert not main._take_flag(args, "--debug")
    assert args == ["schema", "--", "--debug"]
    assert main._asked_format(["x", "--", "--format=json"]) == ""


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path):
    code = (
        "import sys; from flashrt_cli import main; sys.argv = ['flashrt', 'ledger', '\\u2603']; "
        "main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert b"\\u2603:1:" in done.stderr


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_being_ended_is_an_interrupt(ending):
    program = (
        "import os, signal, sys, flashrt_cli.main as cli\n"
        # Whoever runs the tests under nohup hands down an ignored SIGHUP.
        f"signal.signal({int(ending)}, signal.SIG_DFL)\n"
        f"cli.run = lambda args: os.kill(os.getpid(), {int(ending)}) or signal.pause()\n"
        "try:\n    cli.main()\nexcept KeyboardInterrupt:\n    sys.exit(42)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 42
