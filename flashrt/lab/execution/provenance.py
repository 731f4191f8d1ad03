"""The code, the interpreter, the commit and the backend of an execution: observed, never asked."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.record import ExecutionBackend, Provenance

# What decides an execution's events and numbers. The command line, catalog and tests do not.
ROOMS = ("lab", "record")
_CODE = Path(__file__).resolve().parents[2]


def sources(root: Path = _CODE) -> Iterator[Path]:
    """The source files whose bytes an execution's provenance names, sorted."""
    for room in ROOMS:
        yield from sorted(p for p in (root / room).rglob("*.py") if "__pycache__" not in p.parts)


def source_digest(root: Path = _CODE) -> str:
    """Digest over every source file's name and bytes."""
    listed = {p.relative_to(root).as_posix(): sha256(p.read_bytes()) for p in sources(root)}
    return sha256(canonical_bytes(listed))


def git_commit(folder: Path = _CODE) -> str | None:
    """The commit of the checkout that holds the code; ``None`` outside one.

    ``-dirty`` follows where the rooms hold what the commit does not: the source digest says what
    was run, the commit where to look for it.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit or _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None  # installed, in a folder below somebody else's checkout
    changed = _git(folder, "status", "--porcelain", "--", *(f"./{room}" for room in ROOMS))
    return f"{commit}-dirty" if changed else commit


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *words],
            capture_output=True, text=True, check=False, timeout=30, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@lru_cache(maxsize=1)
def provenance() -> Provenance:
    """The provenance of what this process runs."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    return Provenance(source_digest=source_digest(), python=version, git=git_commit())


def backend(precision: str) -> ExecutionBackend:
    """What computes and stores here: every state lies in this process's memory, on either tier.

    The tiers' budgets and the link between them are the declared system's, not this machine's.
    """
    import torch

    from flashrt_runtime.facts import device_facts

    facts = device_facts("cpu")
    kind = torch.backends.cpu.get_cpu_capability()
    return ExecutionBackend(
        compute_device=f"cpu {facts['arch']} {facts['name']} ({kind})",
        device_state_storage="process memory, immutable bytes",
        host_state_storage="process memory, immutable bytes",
        library=f"torch {torch.__version__}",
        precision=precision,
    )


def tool_version() -> str:
    """The installed version of flashrt; ``0`` where it runs without being installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("flashrt")
    except PackageNotFoundError:
        return "0"
