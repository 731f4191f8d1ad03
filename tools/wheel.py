"""Build the project's wheel from a clean copy of its sources, so that no stale build is packed."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
FOLDERS = (
    "flashrt",
    "flashrt_cli",
    "flashrt_runtime",
    "catalog",
    "bindings",
    "schemas",
    "impls",
)


def copy_sources(root: Path, to: Path) -> None:
    """Copy what a wheel is made of, without caches and without an earlier build."""
    for name in FILES:
        shutil.copy2(root / name, to / name)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in FOLDERS:
        shutil.copytree(root / name, to / name, ignore=ignore)


def build_wheel(root: Path, out: Path) -> Path:
    """The wheel of the sources under ``root``, written into ``out``.

    Raises :class:`SystemExit` with the build's own output when the build fails.
    """
    with tempfile.TemporaryDirectory(prefix="flashrt-wheel-") as folder:
        copy_sources(root, Path(folder))
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
        done = subprocess.run(
            [*command, "--outdir", str(out), folder],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"the wheel did not build\n{done.stdout}{done.stderr}")
    return max(out.glob("flashrt-*.whl"), key=lambda path: path.stat().st_mtime)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write the wheel into")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the sources")
    arguments = parser.parse_args()
    print(build_wheel(arguments.root.resolve(), arguments.out.resolve()))
