"""Which way imports point, held on a wheel; and what the runtime and the command line may load."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "flashrt_runtime"
IMPLS = ROOT / "impls"
HEAVY = ("torch", "transformers", "numpy", "scipy", "triton", "huggingface_hub", "cryptography")
# What production may load besides the standard library, and only inside functions.
RUNTIME_MAY = {"torch", "safetensors", "cryptography", "triton", "flashrt_runtime"}
RUNTIME_MUST_NOT = {
    "asyncio",
    "http",
    "sched",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "time",
    "timeit",
    "urllib",
}
TIMERS = re.compile(
    "|".join(("perf_" + "counter", "mono" + "tonic", r"time\." + "time", "cuda." + "Event"))
    + r"|torch\.utils\.benchmark|process_time|import_module\(['\"]time"
)


def imports(path: Path) -> Iterator[tuple[str, str, int]]:
    """``(module, name, line)`` of every import statement, wherever it stands in the file."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", node.lineno
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield "." * node.level + (node.module or ""), alias.name, node.lineno


def top(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def lint(root: Path, environment: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "check_imports.py"), "--root", str(root)]
    return subprocess.run(
        [*command, "--environment", str(environment)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def copy_of_the_sources(to: Path) -> Path:
    sys_path = str(ROOT / "tools")
    code = f"import sys; sys.path.insert(0, {sys_path!r}); import wheel, pathlib; "
    code += f"wheel.copy_sources(wheel.ROOT, pathlib.Path({str(to)!r}))"
    to.mkdir()
    subprocess.run([sys.executable, "-c", code], check=True)
    return to


def test_the_contracts_are_kept_in_a_wheel(tmp_path: Path) -> None:
    done = lint(ROOT, tmp_path / "environment")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_planted_violations_are_caught_in_a_wheel(tmp_path: Path) -> None:
    sources = copy_of_the_sources(tmp_path / "sources")
    plants = {
        "flashrt_runtime/planted.py": "import timeit\nfrom urllib.request import urlopen\n",
        "flashrt_runtime/planted_up.py": "import flashrt.document.problem\n",
        "impls/planted.py": "import flashrt_runtime.reason\n",
        "catalog/planted.py": "import flashrt.document.problem\n",
    }
    for name, text in plants.items():
        (sources / name).write_text(text)
    done = lint(sources, tmp_path / "environment")
    assert done.returncode == 1, done.stdout + done.stderr
    for line in (
        "Imports point one way: flashrt_cli, flashrt, flashrt_runtime BROKEN",
        "An impl imports flashrt_runtime.contract and nothing else of ours BROKEN",
        "The runtime has no timer, no network client, no YAML, no toolchain BROKEN",
        "A reference is plain torch: the catalog knows no room of the toolchain BROKEN",
    ):
        assert line in done.stdout
    for imported in ("timeit", "urllib", "flashrt.document.problem"):
        assert imported in done.stdout


def test_a_wheel_that_does_not_build_is_said_so(tmp_path: Path) -> None:
    sources = copy_of_the_sources(tmp_path / "sources")
    (sources / "setup.py").write_text("raise SystemExit('planted')\n")
    done = lint(sources, tmp_path / "environment")
    assert done.returncode not in (0, None)
    assert "the wheel did not build" in done.stderr
    assert not shutil.which("flashrt", path=str(tmp_path / "environment" / "bin"))


@pytest.mark.parametrize("path", sorted(RUNTIME.rglob("*.py")), ids=lambda p: p.name)
def test_the_runtime_imports_nothing_that_measures_or_fetches(path: Path) -> None:
    for module, _, line in imports(path):
        name = top(module)
        allowed = not name or name in sys.stdlib_module_names or name in RUNTIME_MAY
        assert allowed, f"{path.name}:{line} imports {module}"
        assert name not in RUNTIME_MUST_NOT, f"{path.name}:{line} imports {module}"
    assert TIMERS.search(path.read_text()) is None


@pytest.mark.parametrize("path", sorted(IMPLS.rglob("*.py")), ids=lambda p: p.name)
def test_an_impl_imports_the_contract_and_its_kernel_library_only(path: Path) -> None:
    for module, name, line in imports(path):
        ours = module.startswith(("flashrt", ".")) and module != "flashrt_runtime.contract"
        shared = module.startswith("flashrt_runtime.impls.") or (
            module == "flashrt_runtime" and name == "contract"
        )
        assert not ours or shared, f"{path.name}:{line} imports {module}"
        known = top(module) in {"torch", "triton", "flashrt_runtime", ""}
        assert known or top(module) in sys.stdlib_module_names, f"{path.name}:{line}: {module}"
        assert top(module) not in RUNTIME_MUST_NOT, f"{path.name}:{line} imports {module}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "catalog").rglob("reference.py")), ids=lambda p: p.parent.name
)
def test_a_reference_is_plain_torch(path: Path) -> None:
    for module, _, line in imports(path):
        known = top(module) == "torch" or top(module) in sys.stdlib_module_names
        assert known, f"{path.parent.name}:{line} imports {module}"


def loaded_after(code: str, cwd: Path) -> set[str]:
    """Names of the modules a fresh interpreter has loaded after ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_runtime_loads_no_heavy_library(tmp_path: Path) -> None:
    loaded = loaded_after("import flashrt_runtime", tmp_path)
    assert "flashrt_runtime" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert loaded.isdisjoint({"flashrt", "flashrt_cli", "yaml", "socket", "urllib.request"})


def test_no_command_module_loads_a_heavy_library(tmp_path: Path) -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "flashrt_cli").rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
    ]
    assert names
    loaded = loaded_after("".join(f"import {name}\n" for name in names), tmp_path)
    assert set(names) <= loaded
    assert loaded.isdisjoint(HEAVY)
