"""``flashrt validate`` in its five formats, on files whose names and keys try to say something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from flashrt.spec.skeleton import write
from flashrt_cli.main import app

NAME = "a\n::error::b,c%0A<x>.yaml"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """One good file, one with two problems and one with a hostile name and key."""
    write("binding", "mine", tmp_path)
    (tmp_path / "bad.yaml").write_text("schema: flashrt.binding/1\nname: NO\nname: 012\n")
    (tmp_path / NAME).write_text('"x\\n::error::y\\e[31m": 1\n"x\\n::error::y\\e[31m": 2\n')
    return tmp_path


def run(tree: Path, fmt: str) -> Any:
    result = CliRunner().invoke(app, ["validate", str(tree), "--format", fmt])
    assert result.exit_code == 2, result.output
    assert "\x1b" not in result.stdout
    return result.stdout


def test_human_and_github_keep_one_problem_a_line(tree: Path) -> None:
    for fmt in ("human", "github"):
        lines = run(tree, fmt).splitlines()
        assert not any(line.startswith(("::error::", "::y")) for line in lines)
        assert sum("duplicate key" in line and "bad.yaml:3:" in line for line in lines) >= 1
        assert sum("octal" in line for line in lines) >= 1
    commands = [n for n in run(tree, "github").splitlines() if n.startswith("::error ")]
    assert len(commands) >= 4
    assert any("file=" in n and "bad.yaml,line=3" in n for n in commands)


def test_json_junit_and_sarif_parse_and_name_every_problem(tree: Path) -> None:
    problems = json.loads(run(tree, "json"))["problems"]
    bad = [p["subject"] for p in problems if "bad.yaml:" in p["subject"]]
    assert {s.split("bad.yaml:")[1].split(":")[0] for s in bad} == {"2", "3"}
    assert any(NAME in p["subject"] and p["message"] == "duplicate key" for p in problems)
    suite = ElementTree.fromstring(run(tree, "junit"))
    cases = list(suite.iter("testcase"))
    assert len(cases) == 3
    assert sum(1 for case in cases if case.find("failure") is not None) == 2
    sarif = json.loads(run(tree, "sarif"))
    results = sarif["runs"][0]["results"]
    assert len(results) == len(problems)


def test_everything_is_checked_without_torch_and_without_the_explaining_validator() -> None:
    code = (
        "import sys\n"
        "from flashrt_cli.main import run\n"
        "code = run(['validate', '--format', 'json'])\n"
        "slow = {'torch', 'numpy', 'jsonschema', 'transformers', 'rich.console'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert done.stderr.strip() == "[]"
    files = json.loads(done.stdout)["files"]
    assert sum(f["kind"] == "structure" for f in files) >= 4
