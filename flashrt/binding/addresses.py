"""Whether a host has what a region's boundary addresses: modules, parameters, callables, keys."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import reduce
from typing import Any

from flashrt.binding.address import Address, Capture
from flashrt.binding.callee import callee_of
from flashrt.binding.model import BindingSpec, RegionBinding
from flashrt.binding.tree import Tree, expand
from flashrt.document.problem import Problem
from flashrt.spec.model import suggest
from flashrt_runtime.reason import Reason


def misfits(
    binding: BindingSpec, region: RegionBinding, tree: Tree, index: int
) -> Iterator[Problem]:
    """Every part of every address that the host does not have at one index."""
    for side, held in (("inputs", region.inputs), ("outputs", region.outputs)):
        for name, address in held.items():
            path = f"$.regions.{region.name}.boundary.{side}.{name}"
            for field, what, do in _wrong(address, tree, index):
                where = f"{path}{field}"
                line = binding.document.line(where)
                yield Problem(binding.document.file, line, where, what, do, Reason.BINDING)


def _wrong(address: Address, tree: Tree, index: int) -> Iterator[tuple[str, str, str]]:
    path = expand(address.module, index)
    if path not in tree.modules:
        near = suggest(path, (m for m in tree.modules if m))
        yield ".module", f"the host has no module {path}", near
        return
    module = tree.modules[path]
    callee: Any = module.forward
    if address.capture is Capture.CALL:
        callee = callee_of(module, address.slot)
        if not callable(callee):
            yield ".slot", f"{path} has no callable {address.slot}", "name what its forward calls"
            return
    if address.capture in (Capture.INPUT, Capture.CALL) and address.name not in ("", "output"):
        yield from _parameter(address.name, callee, path)
    for i, step in enumerate(address.then):
        if step.op == "plus":
            for field, what, do in _wrong(step.operand, tree, index):
                yield f".then[{i}].plus{field}", what, do
        key = expand(step.key(), index)
        if key and key not in tree.tensors:
            near = suggest(key, tree.tensors)
            yield f".then[{i}].{step.op}", f"the host has no tensor {key}", near
        for name in step.attributes():
            if not _has_size(module, name):
                what = f"{path} has no whole number {name}"
                yield f".then[{i}].{step.op}", what, "name an attribute that holds the size"


def _parameter(name: str, callee: Any, path: str) -> Iterator[tuple[str, str, str]]:
    target = callee.forward if hasattr(callee, "forward") else callee
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return  # built in: what it was called with is seen when it runs
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    if name not in parameters and not open_ended:
        yield ".name", f"{path} takes no {name}", suggest(name, parameters)


def _has_size(module: Any, name: str) -> bool:
    try:
        value = reduce(getattr, name.split("."), module)
    except AttributeError:
        return False
    return isinstance(value, int) and not isinstance(value, bool)
