"""Names and addresses of a region against its spec: slots, points, boundary; each at its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flashrt.document.problem import Problem
from flashrt.document.yaml_source import Document
from flashrt.spec.model import Presence, StructureSpec, TensorSpec, suggest
from flashrt_runtime.reason import Reason


def repeats(tensor: TensorSpec) -> bool:
    """Whether the tensor stands for several, ``NAME.0``, ``NAME.1``, …"""
    return bool(tensor.repeat)


def base(name: str, known: Mapping[str, TensorSpec]) -> str:
    """The spec's name of a tensor: ``buffer`` for ``buffer.2``, where the spec repeats it."""
    bare = name.partition(".")[0]
    return bare if bare in known and repeats(known[bare]) else name


def live(known: Mapping[str, TensorSpec], variant: Mapping[str, str]) -> dict[str, TensorSpec]:
    """The tensors that exist under a variant."""
    return {name: tensor for name, tensor in known.items() if tensor.applies(variant)}


def needed(spec: StructureSpec, variant: Mapping[str, str]) -> set[str]:
    """The inputs that a call cannot be without."""
    some = live(spec.inputs, variant).items()
    return {name for name, tensor in some if tensor.presence is Presence.REQUIRED}


def names(
    document: Document,
    path: str,
    given: Mapping[str, Any],
    *,
    what: str,
    spec: StructureSpec,
    variant: Mapping[str, str],
) -> Iterator[Problem]:
    """Names the spec does not have under this variant, and names it needs and does not get.

    ``what`` is slot, point, input or output. An output may be left out here: the proof reports each
    one that is neither addressed nor said to be unseen.
    """
    known = {
        "slot": spec.slots,
        "point": spec.points,
        "input": spec.inputs,
        "output": spec.outputs,
    }[what]
    some = live(known, variant)
    got: dict[str, list[str]] = {}
    for name in given:
        bare = base(name, known)
        got.setdefault(bare, []).append(name)
        if bare not in some:
            why = "under this variant" if bare in known else ""
            said = f"{spec.id} has no {what} {name} {why}".strip()
            yield _at(document, f"{path}.{name}", said, suggest(bare, some))
        elif repeats(known[bare]) and name == bare:
            do = f"name {bare}.0, {bare}.1, …"
            yield _at(document, f"{path}.{name}", f"{spec.id} repeats {bare}", do)
    for name, tensor in some.items():
        want = [f"{name}.{k}" for k in range(len(got.get(name, ())))]
        if repeats(tensor) and set(got.get(name, ())) - {name} - set(want):
            what_is = f"{', '.join(got[name])} are not numbered from 0 without a gap"
            yield _at(document, path, what_is, f"name {', '.join(want)}")
        if what == "output" or tensor.presence is not Presence.REQUIRED or name in got:
            continue
        do = f"say where it {'is held' if what == 'slot' else 'sits'}"
        yield _at(document, path, f"the {what} {name} of {spec.id} is not located", do)


def addressed(
    document: Document,
    path: str,
    entry: Mapping[str, Any],
    spec: StructureSpec,
    variant: Mapping[str, str],
) -> Iterator[Problem]:
    """What is wrong with a region's ``boundary`` addresses.

    They may be left out where the region's only input is ``x`` and it has no adapter, and in a
    provisional binding, which nothing can run.
    """
    boundary = entry["boundary"]
    some = live(spec.outputs, variant)
    given = {side: boundary.get(f"{side}s", {}) for side in ("input", "output")}
    for name in boundary.get("unseen", {}):
        yield from _unseen(document, f"{path}.boundary.unseen.{name}", name, given["output"], some)
    if not any(given.values()):
        plain = needed(spec, variant) == {"x"} and entry.get("adapter", "none") == "none"
        if not plain and "provisional" not in document.value:
            what = f"where {spec.id} reads and writes on this host is not said"
            yield _at(document, f"{path}.boundary", what, "add inputs and outputs")
        return
    for side, addresses in given.items():
        where = f"{path}.boundary.{side}s"
        yield from names(document, where, addresses, what=side, spec=spec, variant=variant)
    if not given["output"]:
        what = f"no output of {spec.id} is addressed, so nothing can be compared"
        yield _at(document, f"{path}.boundary", what, "add outputs")


def _unseen(
    document: Document,
    where: str,
    name: str,
    outputs: Mapping[str, Any],
    some: Mapping[str, TensorSpec],
) -> Iterator[Problem]:
    if base(name, some) not in some:
        what = f"there is no output {name} under this variant to be unseen"
        yield _at(document, where, what, suggest(name, some))
    elif name in outputs:
        yield _at(document, where, f"the output {name} is addressed too", "keep one of the two")
    elif not outputs:
        what = "no output is addressed, so the whole region would be unseen"
        yield _at(document, where, what, "address an output")


def _at(document: Document, path: str, what: str, do: str) -> Problem:
    return Problem(document.file, document.line(path), path, what, do, Reason.BINDING)
