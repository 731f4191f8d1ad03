"""The repository is laid out as its card says, in modules that a person can read in one go."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "flashrt",
    "flashrt_cli",
    "flashrt_runtime",
    "catalog",
    "bindings",
    "impls",
    "schemas",
    "receipts",
    "tests",
    "benchmarks",
    "examples",
    "docs",
)
FILES = ("pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", ".ci/run")
MAPPED = FOLDERS[:7]
TARGETS = ("setup", "qualify", "qualify-all", "test", "test-all", "check", "bench", "clean")

# Written in parts, so that this file does not contain what it looks for.
MACHINE_PATH = re.compile("/" + "(?:work|farm|root|tmp)" + r"[/.]")
HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"))] + [
    ".".join(("npmjs", ending)) for ending in ("org", "com")
]
UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")))


def files() -> list[Path]:
    """Every file that is, or is about to be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def text_files() -> list[tuple[Path, str]]:
    found = []
    for path in files():
        try:
            found.append((path, path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found


def modules() -> list[Path]:
    return [path for path in files() if path.suffix == ".py"]


@pytest.mark.parametrize("name", [*FOLDERS, *FILES])
def test_the_card_says_where_it_is(name: str) -> None:
    path = ROOT / name
    assert path.is_dir() if name in FOLDERS else path.is_file()


def test_the_makefile_has_each_target_and_says_what_it_does() -> None:
    text = (ROOT / "Makefile").read_text()
    for target in TARGETS:
        assert re.search(rf"^{target}:.*## \S", text, re.MULTILINE), target


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    text = script.read_text()
    assert "pipefail" in text
    assert re.search(r"^make test\b", text, re.MULTILINE)
    assert "make test" in (ROOT / "README.md").read_text()


def test_the_readme_shows_the_two_commands_first() -> None:
    commands = re.findall(r"^\s*\$?\s*(make \S+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands[:2] == ["make qualify", "make test"]


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in modules()}
    assert {path: n for path, n in lengths.items() if n > 400} == {}
    of_packages = [n for path, n in lengths.items() if path.relative_to(ROOT).parts[0] in MAPPED]
    assert statistics.median(of_packages) <= 120


def test_each_folder_of_modules_is_a_package() -> None:
    """Without ``__init__.py`` a folder would be invisible to the import contracts.

    A structure's folder holds data and a reference that is loaded by its path; what a reference
    may import has a test of its own.
    """
    folders = {path.parent for path in modules() if path.relative_to(ROOT).parts[0] in MAPPED}
    by_path = {path.parent for path in (ROOT / "catalog").rglob("structure.yaml")}
    bare = {folder for folder in folders - by_path if not (folder / "__init__.py").is_file()}
    assert bare == set()


def test_test_modules_have_names_of_their_own() -> None:
    names = [path.name for path in modules() if path.name.startswith("test_")]
    assert {name for name in names if names.count(name) > 1} == set()


def test_no_file_names_a_path_of_some_machine() -> None:
    found = {
        str(path.relative_to(ROOT)) for path, text in text_files() if MACHINE_PATH.search(text)
    }
    assert found == set()


def test_no_file_names_a_package_registry_host() -> None:
    found = {
        str(path.relative_to(ROOT)) for path, text in text_files() for host in HOSTS if host in text
    }
    assert found == set()


def test_no_module_is_left_unfinished() -> None:
    found = {str(path) for path in modules() if UNFINISHED.search(path.read_text())}
    assert found == set()


def test_no_key_and_no_weight_is_committed() -> None:
    endings = (".pem", ".key", ".safetensors", ".gguf", ".pt", ".bin", ".whl")
    key = re.compile("PRIVATE " + r"KEY-----\s+[A-Za-z0-9+/=]{40}")
    # Tables of receipts, and the one model that the lab trains itself, prepared by seed.
    kept = (ROOT / "receipts", ROOT / "flashrt" / "lab" / "artifact" / "tiny_gpt")
    found = [path for path in files() if path.suffix in endings]
    assert [path for path in found if not any(path.is_relative_to(k) for k in kept)] == []
    assert [path for path, text in text_files() if key.search(text)] == []
