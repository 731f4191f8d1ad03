"""What somebody asked ``explain`` about, as facts; a word that means nothing is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from flashrt.release.facts import Fact, Some, facts_of
from flashrt.release.source import Body, hex_of, matches, short
from flashrt_runtime.reason import Reason, Refusal

_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{8,64}")
_DEVICE = re.compile(r"cpu|cuda|sm_?[0-9]{2,3}")


@dataclass(frozen=True)
class Words:
    """The words of one question; ``None`` where nothing was said. ``device``: cpu, cuda, sm90."""

    host: str | None = None
    scheme: str | None = None
    phase: str | None = None
    batch: int | None = None
    rows: int | None = None
    context: int | None = None
    device: str | None = None

    def check(self, records: Sequence[Body]) -> None:
        """Raises :class:`Refusal` (CONFLICT) for a word that neither the tool nor a record has."""
        from flashrt.qualify.request import PHASES
        from flashrt.scheme.registry import names

        cells = [record["cell"] for record in records if record.get("cell")]
        hosts = {r["model_artifact"]["name"] for r in records if r.get("model_artifact")}
        schemes = [*names(), *(cell["precision"]["scheme"] for cell in cells)]
        _require("host", self.host, [*sorted(hosts), *_bindings()])
        _require("scheme", self.scheme, schemes)
        _require("phase", self.phase, PHASES)
        if self.device is not None and not _DEVICE.fullmatch(self.device):
            raise _unknown("device", self.device, ("cpu", "cuda", "sm90"))

    def facts(self) -> list[Fact]:
        """The facts asked for."""
        said: list[tuple[str, Any]] = [
            ("model_artifact.name", self.host),
            ("cell.precision.scheme", self.scheme),
            ("cell.shape.phase", self.phase),
            ("cell.shape.batch", self.batch),
            ("cell.shape.rows", self.rows),
            ("cell.shape.context", self.context),
        ]
        return [Fact(name, value) for name, value in said if value is not None] + self._device()

    def _device(self) -> list[Fact]:
        if self.device is None:
            return []
        cuda = re.fullmatch(r"sm_?(\d+)(\d)", self.device)
        if cuda is None:
            return [Fact("cell.device.class", self.device)]
        arch = f"{cuda[1]}.{cuda[2]}"
        return [Fact("cell.device.class", "cuda"), Fact("cell.device.arch", arch)]


def _bindings() -> list[str]:
    """Names of the packaged bindings: the hosts that flashrt knows without any record."""
    from importlib import resources

    files = resources.files("flashrt.bindings").iterdir()
    return sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml"))


def _unknown(kind: str, word: str, known: Iterable[str]) -> Refusal:
    names = list(dict.fromkeys(known))
    near = get_close_matches(word, names, 3) or get_close_matches(word.upper(), names, 3)
    do = f"did you mean {' or '.join(near)}?" if near else f"for example {', '.join(names[:6])}"
    return Refusal(Reason.CONFLICT, f"this is no {kind}", subject=word, do=do)


def _require(kind: str, word: str | None, known: Sequence[str]) -> None:
    if word is not None and word not in known:
        raise _unknown(kind, word, known)


def named(subject: str, records: Sequence[Body]) -> list[Fact]:
    """All facts of the cell that a digest names: a cell's, or a record's (8 digits suffice).

    Of a digest that no record has, the one fact that is known: itself. ``SCHEME@PHASE[:ROWS]``
    names those three facts, ``SCHEME+chains@…`` that there are chains, too. Raises
    :class:`Refusal`: CONFLICT for text that is none of these and for a word in it that does not
    exist, SHAPE for rows that do not fit, AMBIGUOUS for digits that several cells begin with.
    """
    if _DIGEST.fullmatch(subject):
        return _of_digest(subject, records)
    if "@" in subject:
        from flashrt.qualify.request import CellRequest

        asked = CellRequest.parse(subject, context=2**31)
        words = Words(scheme=asked.scheme, phase=asked.phase, rows=asked.rows)
        words.check(records)
        chained = [Some("cell.precision.chains", "one or more")] if asked.chains else []
        return [*words.facts(), *chained]
    known = [name for reason in Reason for name in (reason.name, reason.code)]
    raise _unknown("cell, digest or reason", subject, ["fp16_weight@decode", *known])


def _of_digest(subject: str, records: Sequence[Body]) -> list[Fact]:
    cells = {
        record["cell_digest"]: record["cell"]
        for record in records
        if record["cell"]
        and (matches(record["cell_digest"], subject) or matches(record["digest"], subject))
    }
    if len(cells) > 1:
        raise Refusal(
            Reason.AMBIGUOUS,
            f"{len(cells)} cells begin so: {', '.join(map(short, cells))}",
            subject=subject,
            do="give more digits",
        )
    for digest, cell in cells.items():
        return facts_of(cell, digest)
    return [Fact("cell_digest", f"sha256:{hex_of(subject)}")]
