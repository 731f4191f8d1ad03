"""How long ``flashrt --help`` takes, beside a bare interpreter and a plain Typer program.

Bar: 150 ms.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from interleave import interleave, process, show

PLAIN = """
import typer
app = typer.Typer(rich_markup_mode=None, add_completion=False)
@app.command()
def one() -> None: "One."
@app.command()
def two() -> None: "Two."
app()
"""
RICH = PLAIN.replace("rich_markup_mode=None, ", "")


def main(rounds: int = 15) -> None:
    """Print the table."""
    flashrt = str(Path(sys.executable).parent / "flashrt")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"plain.py": PLAIN, "with_rich.py": RICH}.items():
            (Path(folder) / name).write_text(text)
        arms = {
            "python -c pass": process([sys.executable, "-c", "pass"]),
            "plain typer --help": process([sys.executable, f"{folder}/plain.py", "--help"]),
            "typer with rich --help": process([sys.executable, f"{folder}/with_rich.py", "--help"]),
            "flashrt --help": process([flashrt, "--help"]),
            "flashrt qualify --help": process([flashrt, "qualify", "--help"]),
        }
        samples = interleave(arms, rounds)
    show("Start of the command line (bar: 150 ms)", samples, "ms", "python -c pass")


if __name__ == "__main__":
    main()
