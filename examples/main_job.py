"""The main job, as the commands that a person would type; `make qualify` runs it.

    python examples/main_job.py          # decode, and prefill of 16: about 25 minutes
    python examples/main_job.py --all    # every scheme and shape: hours

Each command is printed before it runs. One that could not measure something here (status 3), or
that found a failing gate (status 1), does not end the chain: what was earned is still verified,
published and served, and the job's own status says so at the end.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

WORK = Path(".flashrt")
KEY = WORK / "keys" / "release.pem"
LEDGER = WORK / "ledger.jsonl"
BIN = Path(sys.executable).parent

GOES_ON = {0, 1, 3}
PRECEDENCE = (2, 1, 3)


@dataclass(frozen=True)
class Step:
    """One command and what it is for."""

    why: str
    command: tuple[str, ...]


def flashrt(*arguments: str) -> tuple[str, ...]:
    """A command line of the installed ``flashrt``."""
    return ("flashrt", *arguments)


def measuring(matrix: tuple[str, ...]) -> list[Step]:
    """From a host to receipts."""
    return [
        Step("which structures this host has", flashrt("discover", "--host", "smollm2")),
        Step("activation scales, from real text", flashrt("calibrate", "--host", "smollm2")),
        Step(
            "race and gate each cell against the host, in the form a deployment captures",
            flashrt("qualify", "--host", "smollm2", "--device", "cpu", *matrix),
        ),
        Step("recompute every verdict from its evidence", flashrt("verify")),
    ]


def key() -> list[Step]:
    """A signing key of this machine's own, made once."""
    KEY.parent.mkdir(parents=True, exist_ok=True)
    made = KEY.is_file()
    return [] if made else [Step("a signing key, made once", flashrt("keys", "new", str(KEY)))]


def publishing(release: Path) -> list[Step]:
    """From receipts to a signed release. A release folder is never overwritten."""
    command = flashrt("publish-receipts", "--to", str(release), "--key", str(KEY))
    return [Step("a signed release of what was earned", command)]


def serving(release: Path, model: Path) -> list[Step]:
    """A running route, and what it did."""
    serve = ("python", "examples/serve.py", "--release", str(release), "--trust", f"{KEY}.pub")
    return [
        Step(
            "a service that loads it, and can measure nothing",
            (*serve, "--model", str(model), "--ledger", str(LEDGER)),
        ),
        Step("what ran, how often, what fell back and why", flashrt("ledger", str(LEDGER))),
    ]


def closing() -> list[Step]:
    """The table at the end."""
    return [Step("every cell, its state and its interval", flashrt("matrix"))]


def converted_host() -> Path:
    """The folder that the host was converted to; the newest when there are several."""
    found = [path for path in (WORK / "hosts").glob("smollm2-*") if path.is_dir()]
    if not found:
        raise SystemExit("no converted host under .flashrt/hosts: run `flashrt discover` first")
    return max(found, key=lambda path: path.stat().st_mtime)


def run(steps: list[Step]) -> set[int]:
    """Run the steps in order, each command printed first. Their exit codes.

    Ends the program at a code that is no result: refused input, a defect, Ctrl-C.
    """
    codes = set()
    for step in steps:
        print(f"\n# {step.why}\n$ {shlex.join(step.command)}", flush=True)
        program, *arguments = step.command
        code = subprocess.run([str(BIN / program), *arguments], check=False).returncode
        if code not in GOES_ON:
            print(f"\nthe job ends here: exit status {code}", file=sys.stderr)
            raise SystemExit(code if code > 0 else 128 - code)
        codes.add(code)
    return codes


def main() -> int:
    """Exit code of the job: the first of 2, 1, 3 that a step had, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every scheme and shape (hours)")
    matrix = ("--matrix", "all") if parser.parse_args().all else ()
    try:
        codes = run(measuring(matrix)) | run(key())
        release = WORK / "releases" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        codes |= run(publishing(release))
        if release.is_dir():
            codes |= run(serving(release, converted_host()))
        else:
            print("\nnothing was earned, so there is no release to serve from", file=sys.stderr)
        codes |= run(closing())
    except KeyboardInterrupt:
        return 130
    code = next((code for code in PRECEDENCE if code in codes), 0)
    if code == 3:
        print(
            "\nexit status 3: something could not be measured here (see the reasons above).\n"
            "The chain is complete and what is not certified ran on the host.",
            file=sys.stderr,
        )
    elif code == 1:
        print("\nexit status 1: a gate failed (see the reasons above).", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
