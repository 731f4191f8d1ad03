"""``flashrt lab designs``: the questions that the catalog asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flashrt_cli.output import FormatOption, Output, Table, emit

if TYPE_CHECKING:
    from flashrt.lab.execution import DesignFile


def designs(
    name: Annotated[
        str | None, typer.Argument(metavar="[DESIGN]", help="One design; all by default.")
    ] = None,
    fmt: FormatOption = None,
) -> None:
    """List the designs, or show one: its question, arms, contract and missing controls."""
    from flashrt.lab.execution import find_design, list_designs

    emit(_all(list(list_designs())) if name is None else _one(find_design(name)), fmt)


def _all(found: list[DesignFile]) -> Output:
    rows = [(d.design.name, d.design.question, ", ".join(d.arms)) for d in found]
    return Output(
        title=f"{len(found)} designs",
        tables=[Table(("design", "question", "arms"), rows)],
        lines=["run one arm with `flashrt lab run DESIGN --arm ARM`, all with `flashrt lab sweep`"],
        data={"designs": [d.design.record() | {"digest": d.digest} for d in found]},
    )


def _one(found: DesignFile) -> Output:
    from flashrt.lab.execution import differing

    design = found.design
    setups = [found.setup(arm) for arm in found.arms]
    paths = differing([setup.spec for setup in setups])
    settings = [{one.control: one.setting for one in setup.spec.controls} for setup in setups]
    rows = [
        (arm, *(str(said.get(path, "-")) for path in paths))
        for arm, said in zip(found.arms, settings, strict=True)
    ]
    shared = [(c.control, str(c.setting), c.subject) for c in design.settings.controls]
    tables = [
        Table(("arm", *paths), rows, "What differs"),
        Table(("control", "setting", "owner"), shared, "What all arms share"),
    ]
    if design.missing_controls:
        missing = [(one.control, one.why) for one in design.missing_controls]
        tables.append(Table(("control", "what could be asked with it"), missing, "Missing"))
    contract = design.contract
    return Output(
        title=f"{design.name}: {design.question}",
        tables=tables,
        lines=[
            f"subjects: {', '.join(design.subjects)}",
            *(f"executed: {text}" for text in contract.executed),
            *(f"assumed: {text}" for text in contract.assumed),
            *(f"absent: {text}" for text in contract.absent),
            f"concludes: {contract.concludes}",
            f"{len(list(setups[0].requests()))} requests",
        ],
        data=design.record() | {"digest": found.digest},
    )
