"""Holds a design against the ontology: its subjects, its controls, and those that it misses."""

from __future__ import annotations

from collections.abc import Iterator

from flashrt.document.problem import Problem
from flashrt.document.yaml_source import Document
from flashrt.lab.ontology.code import Code
from flashrt.lab.ontology.control import controls, resolve
from flashrt.lab.ontology.model import Ontology
from flashrt_runtime.reason import Reason


def check_design(document: Document, ontology: Ontology, code: Code | None = None) -> list[Problem]:
    """What a design that satisfies its schema says and the ontology or the code denies."""
    return [
        Problem(document.file, document.line(path), path, what, do, Reason.CONFLICT)
        for path, what, do in _wrong(document, ontology, code)
    ]


def _wrong(
    document: Document, ontology: Ontology, code: Code | None
) -> Iterator[tuple[str, str, str]]:
    body = document.value
    for index, name in enumerate(body["subjects"]):
        yield from _subject(f"$.subjects[{index}]", name, ontology)
    shared = [("$.settings", body["settings"])]
    arms = [(f"$.arms[{i}].settings", arm["settings"]) for i, arm in enumerate(body["arms"])]
    for path, spec in shared + arms:
        for index, one in enumerate(spec["controls"]):
            yield from _control(f"{path}.controls[{index}]", one, ontology, code)
    # Also by the field that holds it: a control is not missing because it is called otherwise.
    there = {name for one in controls(code) for name in (one.path, f"{one.record}.{one.field}")}
    for index, missing in enumerate(body["missing_controls"]):
        if missing["control"].strip() in there:
            what = f"the missing control {missing['control']} exists"
            yield f"$.missing_controls[{index}]", what, "set it in an arm, or take it out here"


def _control(
    path: str, one: dict[str, object], ontology: Ontology, code: Code | None
) -> Iterator[tuple[str, str, str]]:
    control = resolve(str(one["control"]), code)
    if control is None:
        do = "see the controls of the owners in the ontology"
        yield f"{path}.control", f"the control path {one['control']} does not resolve", do
        return
    owner = ontology.owner_of(control.record)
    if one["subject"] != owner:
        what = f"{control.path} is a control of {owner}, not of {one['subject']}"
        yield f"{path}.subject", what, f"write {owner}"
    related = one.get("related", ())
    for index, name in enumerate(related if isinstance(related, list) else ()):
        yield from _subject(f"{path}.related[{index}]", name, ontology)


def _subject(path: str, name: str, ontology: Ontology) -> Iterator[tuple[str, str, str]]:
    if ontology.owner(name) is None:
        yield path, f"there is no owner {name}", "name an owner of the ontology"
