"""``flashrt lab verify``: is a record itself, does it follow from its evidence, does it repeat?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashrt_cli.lab_options import (
    DEFAULT_STORE,
    ArtifactOption,
    LabStoreOption,
    open_lab,
    open_model,
)
from flashrt_cli.output import (
    Case,
    ExitCode,
    FormatOption,
    Outcome,
    Output,
    Problem,
    Table,
    emit,
    finish,
    problem_of,
)

if TYPE_CHECKING:
    from flashrt.lab.execution import LabModel, Reexecution


def verify(
    records: Annotated[
        list[str] | None,
        typer.Argument(metavar="[EXEC]...", help="Files or digests; the whole store by default."),
    ] = None,
    rerun: Annotated[
        bool,
        typer.Option("--rerun/--no-rerun", help="Whether to execute each setup again."),
    ] = True,
    artifact: ArtifactOption = None,
    store: LabStoreOption = DEFAULT_STORE,
    fmt: FormatOption = None,
) -> None:
    """Recompute digests and claims, and execute each record's setup again."""
    kept = open_lab(store)
    paths = [kept.find(said) for said in records] if records else list(kept.list())
    model = open_model(artifact) if rerun and paths else None
    checked = [_check(path, model) for path in paths]
    problems = [p for one in checked for p in one["problems"]]
    rows = [(Path(one["file"]).stem[:16], one["design"], one["holds"], one["repeats"])
            for one in checked]  # fmt: skip
    emit(
        Output(
            title=f"{len(checked)} records verified",
            tables=[Table(("record", "design", "claims", "executed again"), rows)] if rows else [],
            data={
                "verified": not problems,
                "records": [
                    {k: v for k, v in one.items() if k not in ("problems", "warnings")}
                    for one in checked
                ],
            },
            problems=problems,
            warnings=[p for one in checked for p in one["warnings"]],
            cases=[_case(one) for one in checked],
        ),
        fmt,
    )
    finish(*(one["code"] for one in checked))


def _case(one: dict[str, Any]) -> Case:
    outcome = Outcome.FAILED if one["problems"] else Outcome.PASSED
    if one["code"] is ExitCode.NOT_MEASURED:
        outcome = Outcome.NOT_MEASURED
    said = "; ".join(p.what for p in one["problems"]) or one["repeats"]
    return Case(one["file"], outcome, said, one["design"])


def _check(path: Path, model: LabModel | None) -> dict[str, Any]:
    """One record: what is wrong with it, and what a second execution says of it."""
    from flashrt.document.problem import InputError
    from flashrt.lab.execution import read_execution, reexecute, wrong_with

    found: dict[str, Any] = {
        "file": str(path), "digest": None, "design": "-", "holds": "no", "repeats": "-",
        "problems": [], "warnings": [], "code": ExitCode.REFUSED,
    }  # fmt: skip
    try:
        stored = read_execution(path)
    except InputError as error:
        return found | {"problems": list(error.problems)}
    design = stored.record.design
    found |= {"digest": stored.digest, "design": f"{design.name}/{design.arm}" if design else "-"}
    problems = wrong_with(stored)
    if problems:
        return found | {"problems": problems, "code": ExitCode.GATE_FAILED}
    found |= {"holds": "every claim holds", "code": ExitCode.OK}
    return found if model is None else found | _repeated(reexecute(stored, model), str(path))


def _repeated(done: Reexecution, file: str) -> dict[str, Any]:
    from flashrt.lab.execution import Verdict
    from flashrt_runtime.reason import Reason

    said: dict[str, Any] = {"repeats": done.verdict.value}
    if done.verdict is Verdict.REPRODUCED:
        return said
    parting = done.comparison.parting
    where = f"first at event {parting.number}" if parting else "in no event"
    evidence = "all evidence is the same" if done.same_evidence else f"evidence differs, {where}"
    if done.verdict is Verdict.ANOTHER_BINDING:
        return {
            "repeats": f"another binding; {evidence}",
            "same_evidence": done.same_evidence,
            "bindings": [one.record() for one in done.bindings],
            "warnings": [problem_of(one, file) for one in done.bindings],
            "code": ExitCode.NOT_MEASURED,
        }
    what = f"executed again under the same binding it has another digest: {evidence}"
    do = "see `flashrt lab compare` with a new run"
    problem = Problem(file, 1, "$.digest", what, do, Reason.DIGEST)
    return said | {"problems": [problem], "code": ExitCode.GATE_FAILED}
