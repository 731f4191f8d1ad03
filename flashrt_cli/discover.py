"""``flashrt discover``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashrt_cli.output import FormatOption

if TYPE_CHECKING:
    from flashrt.binding.proof import Proof
    from flashrt.host.discovery import Discovery
    from flashrt.host.match import Match
    from flashrt.host.observe import Observed
    from flashrt.report.table import Table
    from flashrt_runtime.contract import Seam
    from flashrt_runtime.reason import Because


@dataclass(frozen=True)
class Bound:
    """A host's binding: its seams, its proofs where asked for, and what discovery says."""

    name: str
    provisional: str
    seams: tuple[Seam, ...]
    proofs: tuple[Proof, ...]
    match: Match

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "name": self.name,
            "provisional": self.provisional or None,
            "seams": len(self.seams),
            "unseen": [because.record() for because in self.match.unseen],
            "proofs": [
                {
                    "region": p.region,
                    "seam": p.seam_id,
                    "output": p.output,
                    "ok": p.ok,
                    "unseen": p.unseen,
                    "reason": p.why,
                    "cosine": p.agreement.cosine if p.agreement else None,
                    "max_abs": p.agreement.max_abs if p.agreement else None,
                }
                for p in self.proofs
            ],
        }


def discover(
    host: Annotated[
        str,
        typer.Option(
            help="smollm2, tiny_gpt, tiny:NAME, transformers:FOLDER, transformers:ORG/NAME@COMMIT."
        ),
    ] = "smollm2",
    binding: Annotated[
        str | None,
        typer.Option(help="Compare with this binding: a name, or a file (./mine.yaml)."),
    ] = None,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove", help="Run each bound region's reference on the host's own tensors as well."
        ),
    ] = False,
    cache: Annotated[Path, typer.Option(help="Folder of converted hosts.")] = Path(".flashrt"),
    fmt: FormatOption = None,
) -> None:
    """List the seams of a host, what was refused and why, and what its binding proves."""
    from flashrt.binding import load_binding
    from flashrt.host.discovery import discover as find
    from flashrt.host.observe import observe
    from flashrt_cli.output import ExitCode, Output, emit, finish, problem_of
    from flashrt_cli.progress import reporting
    from flashrt_runtime.reason import Because, Reason, Refusal

    if binding is not None:
        load_binding(binding)  # refused before a host is loaded
    with reporting() as tell:
        tell("load", note=host)
        observed = observe(host, cache)
        observed = replace(observed, binding_name=binding or observed.binding_name)
        if prove and observed.binding_name is None:
            what = "there is no binding for this host, so nothing to prove"
            raise Refusal(Reason.BINDING, what, subject=host, do="give --binding NAME or FILE")
        tell("discover", note="one forward, observed")
        found = find(observed.model, observed.forward)
        bound = None
        if observed.binding_name:
            tell("prove" if prove else "resolve", note=f"the binding {observed.binding_name}")
            bound = _bound(observed, found, prove)
    lines = [f"{len(found.seams)} seams, {len(found.refusals)} refused"]
    if bound is None:
        lines.append("no binding is packaged for this host; --binding FILE compares one of yours")
    tables = [_seams(found.seams), _refused(found)]
    problems: list[Because] = []
    warnings = list(found.notes)
    if bound is not None:
        lines += _lines(bound)
        tables += [_proofs(bound.proofs)] if prove else []
        problems = [
            Because(Reason.BINDING, f"{p.output or 'nothing'} is not proven: {p.why}", p.seam_id)
            for p in bound.proofs
            if not p.ok and not p.unseen
        ]
        problems += bound.match.contradicted
        warnings += bound.match.unseen
        warnings += [
            Because(Reason.BINDING, f"{p.output} is not seen: {p.why}", p.seam_id)
            for p in bound.proofs
            if p.unseen
        ]
    emit(
        Output(
            title=f"discover {observed.label}",
            tables=tables,
            lines=lines,
            data={
                "model_artifact": observed.artifact,
                "binding": observed.binding_name,
                "bound": bound.record() if bound else None,
                **found.record(),
            },
            problems=[problem_of(because) for because in problems],
            warnings=[problem_of(note) for note in warnings],
        ),
        fmt,
    )
    finish(ExitCode.OK if found.seams and not problems else ExitCode.REFUSED)


def _bound(observed: Observed, found: Discovery, prove: bool) -> Bound:
    from flashrt.binding import load_binding, resolve
    from flashrt.binding.proof import prove as run_proofs
    from flashrt.host.match import match

    binding = load_binding(str(observed.binding_name))
    seams = tuple(resolve(binding, observed.model))
    proofs = tuple(run_proofs(binding, observed.model, observed.forward)) if prove else ()
    provisional = binding.provisional.reason if binding.provisional else ""
    said = match(seams, found.seams, found.refusals)
    return Bound(binding.name, provisional, seams, proofs, said)


def _lines(bound: Bound) -> list[str]:
    proven = sum(p.ok for p in bound.proofs)
    unseen_outputs = sum(p.unseen for p in bound.proofs)
    lines = [f"the binding {bound.name} resolves to {len(bound.seams)} seams"]
    if bound.proofs:
        apart = f"; {unseen_outputs} the host never shows" if unseen_outputs else ""
        judged = len(bound.proofs) - unseen_outputs
        lines.append(f"{proven} of {judged} outputs equal their reference's at fp32{apart}")
    if bound.provisional:
        lines.append(f"the binding is provisional: {bound.provisional}")
    agree = "differs from" if bound.match.contradicted else "agrees with"
    unseen = f"; {len(bound.match.unseen)} of its seams were not" if bound.match.unseen else ""
    return [*lines, f"the binding {bound.name} {agree} what was found{unseen}"]


def _seams(seams: Sequence[Seam]) -> Table:
    from flashrt_cli.output import Table

    return Table(
        ("seam", "structure", "shape", "variant", "points"),
        [
            (
                seam.id,
                seam.structure,
                " ".join(f"{k}={v}" for k, v in seam.dims.items()),
                " ".join(f"{k}={v}" for k, v in seam.variant.items() if v not in ("none", "host")),
                " ".join(f"{n}@{p.module}.{p.capture}" for n, p in seam.points.items()),
            )
            for seam in seams
        ],
        "Seams",
    )


def _refused(found: Discovery) -> Table:
    from flashrt_cli.output import Table

    return Table(
        ("path", "looked at for", "reason", "what was seen"),
        [
            (m.path or "(the model)", m.structure, m.because.reason.name, m.because.detail)
            for m in found.refusals
        ],
        "Refused",
    )


def _proofs(proofs: Sequence[Proof]) -> Table:
    from flashrt_cli.output import Table

    return Table(
        ("region", "seam", "output", "cosine", "max abs / scale", "proven"),
        [
            (
                p.region,
                p.seam_id,
                p.output,
                f"{p.agreement.cosine:.7f}" if p.agreement else "",
                f"{p.agreement.max_abs / p.agreement.scale:.1e}"
                if p.agreement and p.agreement.scale
                else "",
                "yes" if p.ok else p.why or "no",
            )
            for p in proofs
        ],
        "Binding",
    )
