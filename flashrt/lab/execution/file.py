"""A stored execution, read: the record, and the JSON body that its digest is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashrt.document.canonical import digest_of, read_json, seal
from flashrt.document.problem import InputError
from flashrt.lab.records import ExecutionRecord, RunOutcome
from flashrt_runtime.reason import Reason, Refusal

# What an execution consumed, in the order in which a reader asks.
CONSUMED = ("specification", "system", "workload", "customers", "graph", "placement")


@dataclass(frozen=True)
class StoredExecution:
    """A frozen record, where it came from (a file's name, or "" for one just made), and its body.

    ``body`` is the JSON form that ``digest`` is of: whoever changes it makes another execution.
    """

    record: ExecutionRecord
    body: Mapping[str, Any]
    file: str = ""

    @property
    def digest(self) -> str:
        """The sealed digest."""
        return str(self.body["digest"])

    @property
    def name(self) -> str:
        """The arm of its design and the beginning of its digest: what a table calls it."""
        design = self.record.design
        said = f"{design.name}/{design.arm} " if design else ""
        return said + self.digest.removeprefix("sha256:")[:12]

    @property
    def outcomes(self) -> dict[str, RunOutcome]:
        """The outcome of each request by its name."""
        return {one.request_id: one for one in self.record.outcomes}


def sealed(record: ExecutionRecord, file: str = "") -> StoredExecution:
    """A record with its digest. Raises :class:`Refusal` (NONFINITE) for NaN or infinity in it."""
    try:
        body = seal({k: v for k, v in record.record().items() if k != "digest"})
    except ValueError as error:
        raise Refusal(Reason.NONFINITE, str(error), subject="execution record") from error
    return StoredExecution(record, body, file)


def read_execution(path: Path) -> StoredExecution:
    """The record in a file, with the digest that its content has.

    Raises :class:`InputError`: DIGEST when the digest in it, or the name of a file that is one, is
    of another content; SCHEMA for what is no execution record.
    """
    body = read_json(path)
    if body.get("schema") != ExecutionRecord.document:
        what = "it is no execution record of the lab"
        do = "make one with `flashrt lab run`"
        raise InputError(str(path), 1, "$.schema", what, do)
    _require_itself(path, body)
    try:
        record = ExecutionRecord.from_record(body)
    except Refusal as error:
        where = error.subject.removeprefix(ExecutionRecord.__name__)
        path_in = f"${where}" if where != error.subject else "$"
        raise InputError(
            str(path), 1, path_in, error.what, error.do, reason=error.reason
        ) from error
    return StoredExecution(record, body, str(path))


def _require_itself(path: Path, body: Mapping[str, Any]) -> None:
    try:
        true = digest_of(dict(body))
    except ValueError:
        true = ""
    claimed = {"digest": body.get("digest")}
    if len(path.stem) == 64 and path.suffix == ".json":
        claimed["the file's name"] = f"sha256:{path.stem}"
    for name, said in claimed.items():
        if said != true:
            what = f"{name} is of another content: the record was changed after it was sealed"
            do = "restore the file, or run the same setup again"
            raise InputError(str(path), 1, "$.digest", what, do, reason=Reason.DIGEST)
