"""The folder of a dataset: files are looked for inside it, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from flashrt.document.names import text_name
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import pyarrow

_FETCH = "fetch the dataset again, whole"


@dataclass(frozen=True)
class Place:
    """Where something was said: a file, its line (1 where lines mean nothing), a path in it."""

    file: str
    line: int = 1
    path: str = "$"

    def at(self, path: str) -> Place:
        """The same file and line, another path in it."""
        return Place(self.file, self.line, path)

    def refuse(self, what: str, do: str = "", reason: Reason = Reason.SCHEMA) -> InputError:
        """The error that names this place."""
        return InputError(self.file, self.line, self.path, what, do, reason=reason)


@dataclass(frozen=True)
class Folder:
    """A dataset's root."""

    root: Path

    @property
    def name(self) -> str:
        """The folder's own name, no other part of its path; :class:`InputError` if not UTF-8."""
        return text_name(self.root.resolve().name, self.root)

    def place(self, relative: str) -> Place:
        """A file of the dataset, as messages say it."""
        return Place(str(self.root / relative))

    def file(self, relative: str, said: Place) -> Path:
        """The regular file at ``relative``, which ``said`` names.

        Raises :class:`InputError` at ``said`` for a path that is absolute, climbs, leaves the
        folder through a symlink, or leads to no regular file.
        """
        pure = PurePosixPath(relative)
        if pure.is_absolute() or "\\" in relative or ":" in relative:
            raise said.refuse(f"{relative!r} is not a path inside the dataset", "make it relative")
        if ".." in pure.parts or "\0" in relative:
            raise said.refuse(f"{relative!r} climbs out of the dataset", "name a file inside it")
        path = self.root / pure
        try:
            inside = path.resolve(strict=True).is_relative_to(self.root.resolve())
        except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before 3.13
            what = f"names {relative}, which is not in the dataset"
            raise said.refuse(what, _FETCH) from error
        if not inside:
            do = "copy the files themselves (`cp -rL`), also out of a Hub cache"
            raise said.refuse(f"{relative} is a link that leads out of the dataset", do)
        if not path.is_file():
            raise said.refuse(f"names {relative}, which is not a regular file", _FETCH)
        return path

    def under(self, relative: str, pattern: str) -> list[str]:
        """Relative paths of the files under a folder that match, sorted."""
        found = (self.root / relative).glob(pattern)
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def table(self, relative: str, columns: list[str], said: Place) -> pyarrow.Table:
        """These columns of a parquet file. Raises :class:`InputError` for one it does not have."""
        path, place = self.file(relative, said), self.place(relative)
        with reading(place):
            names = parquet().read_schema(path).names
        for column in columns:
            if column not in names:
                raise place.at(f"$.{column}").refuse("the table has no such column", _FETCH)
        with reading(place):
            return parquet().read_table(path, columns=columns, partitioning=None)


def parquet() -> Any:
    """``pyarrow.parquet``. Raises :class:`Refusal` (HOST) where it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        what = "pyarrow is not installed, which reads robot datasets"
        raise Refusal(Reason.HOST, what, do="install the `robot` extra") from error
    return pyarrow.parquet


@contextmanager
def reading(place: Place) -> Iterator[None]:
    """What pyarrow raises for a file that is not parquet becomes an error at ``place``."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise place.refuse(f"cannot be read as parquet: {lines[0]}", _FETCH) from error
