"""What ``import flashrt_runtime`` adds to a bare interpreter, in fresh processes.

Bar: 15 ms, and no torch.
"""

from __future__ import annotations

import subprocess
import sys

from interleave import Spread, interleave, process, show

HEAVY = ("torch", "numpy", "transformers", "safetensors", "yaml")


def loaded() -> list[str]:
    """Heavy libraries that the import loads."""
    code = "import flashrt_runtime, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return sorted(set(HEAVY) & set(done.stdout.split()))


def main(rounds: int = 31) -> None:
    """Print the table and the difference, round by round."""
    arms = {
        "python -c pass": process([sys.executable, "-c", "pass"]),
        "import flashrt_runtime": process([sys.executable, "-c", "import flashrt_runtime"]),
        "import torch": process([sys.executable, "-c", "import torch"]),
    }
    samples = interleave(arms, rounds)
    show("Import of the runtime (bar: 15 ms more than nothing)", samples, "ms", "python -c pass")
    pairs = zip(
        samples.seconds["import flashrt_runtime"], samples.seconds["python -c pass"], strict=True
    )
    print(f"added by the import, ms: {Spread.of([(a - b) * 1e3 for a, b in pairs])}")
    print(f"heavy libraries it loads: {', '.join(loaded()) or 'none'}")


if __name__ == "__main__":
    main()
