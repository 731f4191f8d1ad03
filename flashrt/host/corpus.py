"""Real text as documents: the Brown corpus, or any folder of ``.txt`` files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.document.names import text_name
from flashrt.document.problem import InputError
from flashrt.host.copies import normal
from flashrt_runtime.reason import Reason, Refusal

_FILE_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True)
class TextDocument:
    """One document: the unit that calibration and held-out frames never share."""

    id: str
    category: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Documents with different texts, in id order. ``source`` never holds a path."""

    name: str
    source: str
    documents: tuple[TextDocument, ...]

    @property
    def digest(self) -> str:
        """Digest over every document's id and text."""
        return sha256(canonical_bytes([[d.id, sha256(d.text.encode())] for d in self.documents]))


def load_corpus(reference: str, cache: Path) -> Corpus:
    """Read ``brown`` or ``text:FOLDER``.

    ``cache`` is the folder that fetched corpora live in. Raises :class:`Refusal` (EMPTY_CORPUS,
    CONFLICT) or :class:`InputError` (a file that is not UTF-8).
    """
    if reference == "brown":
        return brown_corpus(cache)
    kind, colon, rest = reference.partition(":")
    if kind == "text" and colon and rest:
        return folder_corpus(Path(rest).expanduser())
    raise Refusal(
        Reason.CONFLICT, "not a source of frames", subject=reference, do="brown or text:FOLDER"
    )


def brown_corpus(cache: Path) -> Corpus:
    """The Brown corpus, 500 documents in 15 categories, fetched when it is absent."""
    from flashrt.host.brown import SOURCE, ensure_brown, read_folder
    from flashrt.host.detag import plain_text

    files = read_folder(ensure_brown(cache))
    categories = dict(line.split() for line in files.pop("cats.txt").decode().splitlines() if line)
    documents = tuple(
        TextDocument(name, categories[name], plain_text(files[name].decode()))
        for name in sorted(files)
    )
    return Corpus("brown", SOURCE, documents)


def folder_corpus(folder: Path) -> Corpus:
    """Every ``.txt`` file under a folder; a file's category is the folder it lies in.

    Files without text and files whose text another file already has, whatever its case, spacing
    and punctuation, are left out: a copy would sit on both sides of a split. Raises
    :class:`Refusal` (EMPTY_CORPUS) and :class:`InputError`, also for a name that is not UTF-8.
    """
    if not folder.is_dir():
        raise Refusal(
            Reason.EMPTY_CORPUS, "no such folder", subject=str(folder), do="check the path"
        )
    seen: set[str] = set()
    documents = []
    for path in sorted(folder.rglob("*.txt")):
        if not path.is_file():
            continue
        text = _read_text(path)
        kept = normal(text) or text.strip()
        if kept and kept not in seen:
            seen.add(kept)
            name = path.relative_to(folder)
            text_name(name.as_posix(), path)
            documents.append(TextDocument(name.as_posix(), name.parent.as_posix(), text))
    if not documents:
        raise Refusal(
            Reason.EMPTY_CORPUS,
            "there is no .txt file with text in it",
            subject=str(folder),
            do="name a folder that holds plain text files",
        )
    title = text_name(folder.resolve().name, folder)
    return Corpus(title, f"text folder {title}", tuple(documents))


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _FILE_LIMIT:
            raise InputError(str(path), 1, "$", f"over the limit of {_FILE_LIMIT} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(str(path), 1, "$", f"not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise InputError(str(path), 1, "$", error.strerror or str(error)) from error
