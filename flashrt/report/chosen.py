"""Which record somebody means who names one: by digest, by its cell's digest, or by its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flashrt.document import schema
from flashrt.document.canonical import read_json
from flashrt.document.problem import InputError
from flashrt.receipt.live import live
from flashrt.release.resolve import withdrawn
from flashrt.release.source import Source, hex_of, matches, short
from flashrt_runtime.reason import Reason, Refusal

_SCHEMAS = {"qualification": "qualification_receipt", "calibration": "calibration_receipt"}


def _checked(body: dict[str, Any], file: str) -> dict[str, Any]:
    """The body when it is of a kind that is drawn, and has that kind's shape."""
    name = _SCHEMAS.get(str(body.get("kind")))
    if name is None:
        do = "`flashrt matrix` lists what was not measured"
        what = "neither a qualification nor a calibration receipt: there is nothing to draw"
        raise InputError(file, 1, "$.kind", what, do)
    schema.require(body, name, file=file)
    return body


def _of(source: Source, subject: str) -> Iterator[dict[str, Any]]:
    for kind in _SCHEMAS:
        yield from (body for body in source.list(kind) if matches(body["digest"], subject))


def choose(source: Source, subject: str) -> dict[str, Any]:
    """A qualification or calibration receipt. Of a cell's digest, its live receipt.

    Eight digits of a digest suffice. Raises :class:`InputError` for a file that is none and for a
    digest that nothing has (UNKNOWN_CELL), :class:`Refusal` (AMBIGUOUS) for digits that several
    records begin with and for a cell with two live receipts.
    """
    file = Path(subject)
    if file.is_file():
        return _checked(read_json(file), subject)
    found = {body["digest"]: body for body in _of(source, subject)}
    if not found:
        receipts = list(source.list("qualification"))
        cells = {b["cell_digest"] for b in receipts if matches(b["cell_digest"], subject)}
        lives = [live(receipts, cell, withdrawn(source)) for cell in cells]
        found = {body["digest"]: body for body in lives if body is not None}
    if not found:
        raise InputError(
            subject, 1, "$", f"no such file, and no receipt is named {hex_of(subject)}",
            "see `flashrt matrix`", reason=Reason.UNKNOWN_CELL,
        )  # fmt: skip
    if len(found) > 1:
        raise Refusal(
            Reason.AMBIGUOUS, f"{len(found)} records begin so: {', '.join(map(short, found))}",
            subject=subject, do="give more digits",
        )  # fmt: skip
    (body,) = found.values()
    return _checked(body, body["digest"])
