"""What a wheel holds: the packages, the files they read, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAPPED = {
    "flashrt": "flashrt",
    "flashrt_cli": "flashrt_cli",
    "flashrt_runtime": "flashrt_runtime",
    "catalog": "flashrt/catalog",
    "bindings": "flashrt/bindings",
    "schemas": "flashrt/schemas",
    "impls": "flashrt_runtime/impls",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "wheel.py"), str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def sources() -> set[str]:
    """Every file of the mapped folders, by the name it has in a wheel."""
    found = set()
    for folder, package in MAPPED.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("."):
                found.add(f"{package}/{path.relative_to(ROOT / folder).as_posix()}")
    return found


def test_the_wheel_holds_each_file_of_the_packages_and_no_other(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packed = {name for name in names if ".dist-info/" not in name}
    assert sources() - packed == set()
    assert packed - sources() == set()


def test_the_wheel_holds_data_of_each_kind(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for ending in (
        "flashrt/catalog/decoder_ffn/structure.yaml",
        "flashrt/catalog/digests.lock",
        "flashrt/bindings/smollm2.yaml",
        "flashrt/schemas/structure.schema.json",
        "flashrt_runtime/impls/decoder_ffn/cpu_w8a16.json",
    ):
        assert ending in names


def test_the_wheel_reads_its_data_without_the_sources(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import flashrt.document.schema as schema, flashrt_runtime; print(schema.__file__); "
        "print(len(schema.schema_text('structure')) > 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    file, found = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path)
    assert found == "True"
