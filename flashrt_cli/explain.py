"""``flashrt explain``: why a cell has a receipt, or what a reason means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption, open_store, open_verifier
from flashrt_cli.output import ExitCode, FormatOption, Output, emit, finish

if TYPE_CHECKING:
    from flashrt.release.explain import Considered
    from flashrt.release.facts import Fact
    from flashrt.release.source import Body
    from flashrt_runtime.reason import Reason


def _reason(text: str) -> Reason | None:
    from flashrt_runtime.reason import Reason

    wanted = text.upper()
    return next((r for r in Reason if wanted in (r.code, r.name)), None)


def _page(code: str) -> str:
    """The reason's page, where the documents are beside the package."""
    import flashrt

    for folder in (Path(flashrt.__path__[0]), Path(flashrt.__path__[0]).parent):
        path = folder / "docs" / "reasons" / f"{code}.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""


def _explain_reason(reason: Reason) -> Output:
    page = _page(reason.code)
    return Output(
        title=f"{reason.code} {reason.name}: {reason.sentence}",
        lines=[page.rstrip()] if page else [],
        data={
            "code": reason.code,
            "name": reason.name,
            "sentence": reason.sentence,
            "page": page or None,
        },
    )


def _facts_here(device: str) -> list[Fact]:
    """This machine's own facts, as the runtime reads them."""
    from flashrt.release.facts import Fact
    from flashrt_runtime.facts import device_facts, software_facts

    try:
        found = device_facts("cuda" if device.startswith("sm") else device)
    except (RuntimeError, AssertionError):
        return []  # the device is not on this machine: its own facts cannot be asked for
    return [
        *(Fact(f"cell.device.{name}", found[name]) for name in ("arch", "name", "isa", "threads")),
        *(Fact(f"cell.software.{name}", value) for name, value in software_facts().items()),
    ]


def _unmeasured(records: Sequence[Body]) -> list[str]:
    """What was tried without a measurement, and how to make one."""
    from flashrt.release.matrix import unmeasured_row

    rows = [unmeasured_row(record) for record in records]
    lines = [f"not measured: {row.label}: {'; '.join(map(str, row.reasons))}" for row in rows]
    return [*sorted(set(lines)), "run `flashrt qualify` to earn a receipt"]


def _published(release: Path) -> list[dict[str, Any]]:
    """The receipts of a release whose routes a runtime could take; nothing is checked here."""
    from flashrt.document.canonical import read_json
    from flashrt.release.check import open_manifest
    from flashrt.release.source import hex_of

    routes = open_manifest(release, None)["routes"]
    return [read_json(release / "receipts" / f"{hex_of(r['receipt'])}.json") for r in routes]


def _units(considered: Sequence[Considered]) -> list[str]:
    """The chains of the receipts that answer, else of those that came nearest."""
    best = [c for c in considered if c.serves]
    best = best or [c for c in considered if c.matched == considered[0].matched]
    return [line for one in best for line in one.told()]


def _title(considered: Sequence[Considered]) -> str:
    answer = next((c for c in considered if c.serves), None)
    if answer is not None:
        return f"receipt {answer.receipt['digest']} answers"
    if not considered:
        return "unknown cell: there is no receipt"
    contested = next((c.dead for c in considered if c.contested), None)
    if contested is not None:
        return f"unknown cell: {contested.detail}; withdraw all but one with --revoke"
    if considered[0].mismatch is not None:
        return f"unknown cell: none of {len(considered)} receipts has exactly these facts"
    return "unknown cell: its receipt earned nothing, or is not live"


def explain(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="CELL|REASON",
            help="A cell: its digest, a receipt's, or SCHEME[+chains]@PHASE[:ROWS][/FORM]; "
            "or a reason (FRT004).",
        ),
    ] = None,
    *,
    host: Annotated[str | None, typer.Option(help="Name of the host, e.g. smollm2.")] = None,
    scheme: Annotated[str | None, typer.Option(help="Scheme, e.g. fp16_weight.")] = None,
    phase: Annotated[str | None, typer.Option(help="decode or prefill.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences in one step.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows of one step.")] = None,
    context: Annotated[
        int | None, typer.Option(min=1, help="Positions of the static cache.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or an arch such as sm90.")] = None,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="Leave this machine's own facts out.")
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    release: Annotated[
        Path | None, typer.Option(help="Look in this release folder instead of the store.")
    ] = None,
    fmt: FormatOption = None,
) -> None:
    """Say why a cell has, or has not, a receipt; or what a reason means."""
    from flashrt.release.asked import Words, named
    from flashrt.release.explain import consider, table

    reason = _reason(subject) if subject else None
    if reason is not None:
        emit(_explain_reason(reason), fmt)
        finish()
    opened = open_store(store)
    receipts = list(opened.list("qualification")) if release is None else _published(release)
    tried = [r for kind in ("preflight", "incomplete") for r in opened.list(kind)]
    records = [*receipts, *tried]
    words = Words(host, scheme, phase, batch, rows, context, device)
    words.check(records)
    facts = [*(named(subject, records) if subject else []), *words.facts()]
    facts += _facts_here(device) if device and not anywhere else []
    revoked = opened.revoked() if release is None else ()
    considered = consider(receipts, facts, open_verifier() if release is None else None, revoked)
    answered = any(c.serves for c in considered)
    unknown = not answered and release is None
    emit(
        Output(
            title=_title(considered),
            tables=[table(considered)] if considered else [],
            lines=[*_units(considered), *(_unmeasured(tried) if unknown else [])],
            data={"answers": answered, "considered": [c.record() for c in considered]},
        ),
        fmt,
    )
    finish(ExitCode.OK if answered else ExitCode.NOT_MEASURED)
