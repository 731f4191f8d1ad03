"""``flashrt explain``: why a cell has a receipt, or what a reason means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashrt_cli.options import DEFAULT_STORE, StoreOption, open_store
from flashrt_cli.output import ExitCode, FormatOption, Output, emit, finish

if TYPE_CHECKING:
    from flashrt.receipt.store import Store
    from flashrt.release.explain import Fact
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


def _device_facts(device: str) -> list[Fact]:
    from flashrt.release.explain import Fact

    cuda = re.fullmatch(r"sm_?(\d+)(\d)", device)
    if cuda:
        arch = f"{cuda[1]}.{cuda[2]}"
        return [Fact("cell.device.class", "cuda"), Fact("cell.device.arch", arch)]
    return [Fact("cell.device.class", device)]


def _facts_here(device: str) -> list[Fact]:
    """This machine's own facts, as the runtime reads them."""
    from flashrt.release.explain import Fact
    from flashrt_runtime.facts import device_facts, software_facts

    try:
        found = device_facts("cuda" if device.startswith("sm") else device)
    except (RuntimeError, AssertionError):
        return []  # the device is not on this machine: its own facts cannot be asked for
    return [
        *(Fact(f"cell.device.{name}", found[name]) for name in ("arch", "name", "isa", "threads")),
        *(Fact(f"cell.software.{name}", value) for name, value in software_facts().items()),
    ]


def _unmeasured(store: Store) -> list[str]:
    """What was tried without a measurement, and how to make one."""
    from flashrt.release.matrix import unmeasured_row

    rows = [unmeasured_row(r) for kind in ("preflight", "incomplete") for r in store.list(kind)]
    lines = [f"not measured: {row.label}: {'; '.join(map(str, row.reasons))}" for row in rows]
    return [*sorted(set(lines)), "run `flashrt qualify` to earn a receipt"]


def _published(release: Path) -> list[dict[str, Any]]:
    """The receipts of a release whose routes a runtime could take; nothing is checked here."""
    from flashrt.document.canonical import read_json
    from flashrt.release.check import open_manifest
    from flashrt.release.source import hex_of

    routes = open_manifest(release, None)["routes"]
    return [read_json(release / "receipts" / f"{hex_of(r['receipt'])}.json") for r in routes]


def explain(
    subject: Annotated[
        str | None, typer.Argument(help="A cell's or a receipt's digest, or a reason (FRT004).")
    ] = None,
    *,
    host: Annotated[str | None, typer.Option(help="Name of the host, e.g. smollm2.")] = None,
    scheme: Annotated[str | None, typer.Option(help="Scheme, e.g. fp16_weight.")] = None,
    phase: Annotated[str | None, typer.Option(help="decode or prefill.")] = None,
    batch: Annotated[int | None, typer.Option(help="Sequences in one step.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of one step.")] = None,
    context: Annotated[int | None, typer.Option(help="Positions of the static cache.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, or an arch such as sm90.")] = None,
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
    from flashrt.release.explain import Fact, consider, table
    from flashrt.release.source import matches

    reason = _reason(subject) if subject else None
    if reason is not None:
        emit(_explain_reason(reason), fmt)
        finish()
    asked: list[tuple[str, Any]] = [
        ("model_artifact.name", host),
        ("cell.precision.scheme", scheme),
        ("cell.shape.phase", phase),
        ("cell.shape.batch", batch),
        ("cell.shape.rows", rows),
        ("cell.shape.context", context),
    ]
    facts = [Fact(name, value) for name, value in asked if value is not None]
    facts += _device_facts(device) if device else []
    if device and not anywhere:
        facts += _facts_here(device)
    opened = open_store(store)
    receipts = list(opened.list("qualification")) if release is None else _published(release)
    if subject:
        receipts = [
            r
            for r in receipts
            if matches(r["cell_digest"], subject) or matches(r["digest"], subject)
        ]
    considered = consider(receipts, facts)
    answer = next((c for c in considered if c.serves), None)
    if answer is not None:
        title = f"receipt {answer.receipt['digest']} answers"
    elif not considered:
        named = f" named {subject}" if subject else ""
        title = f"unknown cell: no receipt was found{named}"
    elif considered[0].mismatch is not None:
        title = f"unknown cell: none of {len(considered)} receipts has exactly these facts"
    else:
        title = "unknown cell: its receipt earned nothing, or is not live"
    emit(
        Output(
            title=title,
            tables=[table(considered)] if considered else [],
            lines=_unmeasured(opened) if answer is None and release is None else [],
            data={"answers": answer is not None, "considered": [c.record() for c in considered]},
        ),
        fmt,
    )
    finish(ExitCode.OK if answer is not None else ExitCode.NOT_MEASURED)
