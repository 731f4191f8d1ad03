"""One region of a binding against its spec: variant, slots, points, layouts and paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flashrt.binding import boundary
from flashrt.binding.address import Address
from flashrt.document.problem import Problem
from flashrt.document.yaml_source import Document
from flashrt.spec.model import StructureSpec
from flashrt_runtime.reason import Reason, Refusal

# A kernel over two dimensions is one over three whose first is 1; it is a view of the same bytes.
_ALSO = {"conv_out_in_t_h_w": "conv_out_in_h_w"}


def violations(
    document: Document, path: str, entry: Mapping[str, Any], spec: StructureSpec
) -> Iterator[Problem]:
    """Everything in a region's entry that its spec does not admit."""
    try:
        variant = spec.complete(entry["variant"])
    except Refusal as error:
        where = f"{path}.variant.{error.subject}"
        yield _at(document, where, error.what, error.do)
        return
    yield from boundary.names(
        document, f"{path}.weights", entry["weights"], what="slot", spec=spec, variant=variant
    )
    yield from boundary.names(
        document, f"{path}.points", entry["points"], what="point", spec=spec, variant=variant
    )
    yield from boundary.addressed(document, path, entry, spec, variant)
    for slot, held in entry["weights"].items():
        tensor = spec.slots.get(boundary.base(slot, spec.slots))
        wanted = tensor.layout if tensor else held["layout"]
        if held["layout"] not in (wanted, _ALSO.get(wanted)):
            what = f"the slot {slot} has layout {wanted}, not {held['layout']}"
            do = "only the spec's own layout is bound"
            yield _at(document, f"{path}.weights.{slot}.layout", what, do, Reason.LAYOUT)
    indexed = "{i}" in entry["module"]
    for where, template in _templates(path, entry):
        if "{i}" in template and not indexed:
            what = "{i} is used here and not in the region's module"
            yield _at(document, where, what, "the module says which indices there are")
    if "indices" in entry and not indexed:
        what = "the region's module has no {i}, so there are no indices to choose from"
        yield _at(document, f"{path}.indices", what, "remove it")
    prefix = entry["module"]
    for role, member in entry["members"].items():
        if member != prefix and not member.startswith(prefix + "."):
            what = f"the member {role} is outside the module {prefix}"
            yield _at(document, f"{path}.members.{role}", what, "name the module that holds it")


def _templates(path: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for role, member in entry["members"].items():
        yield f"{path}.members.{role}", member
    for slot, held in entry["weights"].items():
        yield f"{path}.weights.{slot}.at", held["at"]
    for name, point in entry["points"].items():
        yield f"{path}.points.{name}.module", point["module"]
    for side in ("inputs", "outputs"):
        for name, address in entry["boundary"].get(side, {}).items():
            where = f"{path}.boundary.{side}.{name}"
            yield from _within(where, Address.of(address))


def _within(where: str, address: Address) -> Iterator[tuple[str, str]]:
    yield f"{where}.module", address.module
    for i, step in enumerate(address.then):
        if step.key():
            yield f"{where}.then[{i}].{step.op}", step.key()
        if step.op == "plus":
            yield from _within(f"{where}.then[{i}].plus", step.operand)


def _at(
    document: Document, path: str, what: str, do: str, reason: Reason = Reason.BINDING
) -> Problem:
    return Problem(document.file, document.line(path), path, what, do, reason)
