"""The runtime can neither measure, nor search, nor download: proven by what it imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flashrt_runtime

ROOT = Path(flashrt_runtime.__file__).parent
SOURCES = sorted(path for path in ROOT.rglob("*.py") if "impls" not in path.parts)
# Everything that a module of the runtime may import, wherever the import stands.
STDLIB = {
    "__future__", "base64", "binascii", "collections", "contextlib", "ctypes", "dataclasses",
    "enum", "functools", "hashlib", "importlib", "inspect", "json", "math", "operator", "os",
    "pathlib", "platform", "re", "stat", "tempfile", "threading", "types", "typing", "warnings",
}  # fmt: skip
LIBRARIES = {"torch", "safetensors", "cryptography", "flashrt_runtime"}
# Parts of allowed packages, and names, that can tell the time or reach out.
FORBIDDEN_PARTS = (
    "torch.utils.benchmark",
    "torch.profiler",
    "torch.hub",
    "torch.autograd.profiler",
)
FORBIDDEN_NAMES = {
    "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "time_ns",
    "Event", "elapsed_time", "do_bench", "load_state_dict_from_url", "urlopen", "hf_hub_download",
    "snapshot_download", "system", "popen", "spawn", "fork", "times",
}  # fmt: skip
# Modules that define nn.Module subclasses, and what imports them; imported lazily by the rest.
WITH_TORCH = {
    "seat.py", "roots.py", "handle.py", "compile_form.py", "decode/step.py", "decode/cache.py",
    "adapters/body.py", "adapters/substitute.py",
}  # fmt: skip


def imported(tree: ast.AST) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            found += [(f"{node.module}.{a.name}", node.lineno) for a in node.names]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_imports_a_timer_a_network_client_or_a_toolchain(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name, line in imported(tree):
        assert name.partition(".")[0] in STDLIB | LIBRARIES, f"{path.name}:{line} imports {name}"
        assert not name.startswith(FORBIDDEN_PARTS), f"{path.name}:{line} imports {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert node.attr not in FORBIDDEN_NAMES, f"{path.name}:{node.lineno} .{node.attr}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_libraries_are_imported_inside_functions(path: Path) -> None:
    if path.relative_to(ROOT).as_posix() in WITH_TORCH:
        assert "torch" in path.read_text(encoding="utf-8")
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        for name, line in imported(ast.Module([node], [])) if is_import(node) else []:
            root = name.partition(".")[0]
            assert root in STDLIB | {"flashrt_runtime"}, f"{path.name}:{line} imports {name}"


def is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def test_importing_the_runtime_loads_nothing_of_what_it_must_not() -> None:
    code = (
        "import sys, flashrt_runtime, flashrt_runtime.swap, flashrt_runtime.activate, "
        "flashrt_runtime.release_reader, flashrt_runtime.trust, flashrt_runtime.capture, "
        "flashrt_runtime.aot_form, flashrt_runtime.cudagraph_form, flashrt_runtime.segmented_form, "
        "flashrt_runtime.fixed_iteration.normalise, flashrt_runtime.window_check, "
        "flashrt_runtime.facts, flashrt_runtime.decode.loop, flashrt_runtime.adapters.core, "
        "flashrt_runtime.adapters.sequence, flashrt_runtime.adapters.two_way, "
        "flashrt_runtime.adapters.vision, flashrt_runtime.adapters.gated_delta; "
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    loaded = set(done.stdout.split())
    assert "flashrt_runtime.activate" in loaded
    forbidden = {
        "torch", "numpy", "transformers", "safetensors", "cryptography", "yaml", "flashrt",
        "flashrt_cli", "timeit", "socket", "ssl", "http.client", "urllib.request", "asyncio",
    }  # fmt: skip
    assert not loaded & forbidden
