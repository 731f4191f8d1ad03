"""Hold the import contracts of pyproject.toml on a wheel that is installed in its own environment.

An editable install maps the top-level folders by a finder that import-linter does not see: a
planted violation was kept there and caught in a wheel. The environment borrows torch and the rest
from the one that runs this file; import-linter reads sources and executes none of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from borrow import Share, make_environment
from wheel import ROOT, build_wheel

LINT = "from importlinter.cli import lint_imports_command as lint; lint()"


def check(root: Path, environment: Path) -> int:
    """Exit code of import-linter: 0 when every contract is kept."""
    python = make_environment(environment, Share.PACKAGES)
    with tempfile.TemporaryDirectory(prefix="flashrt-imports-") as folder:
        wheel = build_wheel(root, Path(folder))
        install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        subprocess.run(
            [*install, "--no-deps", "--no-index", "--force-reinstall", str(wheel)],
            check=True,
            stdin=subprocess.DEVNULL,
        )
        # The working folder comes first in the import path, so it must not hold the sources.
        lint = [str(python), "-c", LINT, "--no-cache", "--no-logo", str(root / "pyproject.toml")]
        return subprocess.run(lint, cwd=folder, check=False).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the sources")
    parser.add_argument("--environment", type=Path, default=ROOT / ".check-venv")
    arguments = parser.parse_args()
    sys.exit(check(arguments.root.resolve(), arguments.environment.resolve()))
