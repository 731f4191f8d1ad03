"""Specs: controls put together, one assignment each, and the system they describe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flashrt.lab.execution.control import control, controls
from flashrt.lab.records import ExecutionSpec, ExperimentSpec, KVResidencySystemConfig
from flashrt_runtime.reason import Reason, Refusal

__all__ = ["assign", "compose", "differing", "resolve"]


def assign(path: str, setting: int | str) -> ExperimentSpec:
    """One control and its setting. Raises :class:`Refusal` (SCHEMA) for a path that is none."""
    return ExperimentSpec(control=path, setting=setting, subject=control(path).subject)


def compose(*specs: ExecutionSpec) -> ExecutionSpec:
    """All controls of several specs, in order: one setup.

    Raises :class:`Refusal`: SCHEMA for a path that is none; CONFLICT where a control has two
    assignments, equal ones included (which of the two was meant is not for a tool to guess, and
    nothing is overridden), and where an assignment names another owner than the control's.
    """
    found: dict[str, ExperimentSpec] = {}
    for one in (one for spec in specs for one in spec.controls):
        subject = control(one.control).subject
        if one.control in found:
            what = f"it is assigned twice: {found[one.control].setting!r} and {one.setting!r}"
            do = "keep one of the two; to compare them, make two specs"
            raise Refusal(Reason.CONFLICT, what, subject=one.control, do=do)
        if one.subject != subject:
            what = f"it is a setting of {subject}, not of {one.subject}"
            do = f"write subject: {subject}"
            raise Refusal(Reason.CONFLICT, what, subject=one.control, do=do)
        found[one.control] = one
    return ExecutionSpec(controls=tuple(found.values()))


def resolve(spec: ExecutionSpec) -> KVResidencySystemConfig:
    """The system that a spec describes: no setting that decides time or memory has a default.

    Raises :class:`Refusal` as :func:`compose`, SCHEMA for a control without assignment and for a
    setting of another type, and CONFLICT for one out of bounds.
    """
    said = {one.control: one.setting for one in compose(spec).controls}
    missing = [c.path for c in controls().values() if c.needed and c.path not in said]
    if missing:
        what = f"no setting for {', '.join(missing)}"
        raise Refusal(Reason.SCHEMA, what, subject="spec", do="assign each of them once")
    return KVResidencySystemConfig.from_record(_nested(said.items()))


def _nested(settings: Iterable[tuple[str, int | str]]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for path, setting in settings:
        group, _, name = path.partition(".")
        body.setdefault(group, {})[name] = setting
    return body


def differing(specs: Iterable[ExecutionSpec]) -> list[str]:
    """The paths of the controls whose settings differ between specs, in the order of the fields."""
    several = [{one.control: one.setting for one in spec.controls} for spec in specs]
    return [path for path in controls() if len({said.get(path) for said in several}) > 1]
