"""Expands a binding over a real module tree, and refuses one that does not fit the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashrt.binding import addresses
from flashrt.binding.boundary import base
from flashrt.binding.model import Adapter, BindingSpec, RegionBinding
from flashrt.binding.packages import installed, outside
from flashrt.binding.probe import probe
from flashrt.binding.shaping import slot_shape
from flashrt.binding.tree import Tree, expand
from flashrt.document.problem import InputError, Problem
from flashrt.spec import dims
from flashrt.spec.model import suggest
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch


def resolve(
    binding: BindingSpec,
    model: torch.nn.Module,
    *,
    trust: Iterable[Path] = (),
    versions: Mapping[str, str] | None = None,
) -> list[Seam]:
    """Every seam of the binding on this host, in region and index order.

    ``{i}`` stands for the indices the tree has; dims are solved from the weights' real shapes; each
    region is run once against its reference on drawn input, so a variant or a point that exists but
    is the wrong one is refused too (not on the meta device, where nothing runs). ``trust`` are
    catalog folders outside the package whose references may run; ``versions`` are the packages'
    versions, those installed by default. The host is not changed.

    Raises :class:`InputError` with one problem per path of the binding: BINDING for a path that the
    tree does not have, SHAPE, DTYPE, TIED, SOFTWARE, or BINDING for a variant or point that the
    numbers contradict, or a place that two regions give two roles; :class:`Refusal` (TRAINING) for
    a host in training mode.
    """
    from flashrt.binding.roles import clashes

    found = outside(binding, installed(binding.host.packages) if versions is None else versions)
    tree = Tree.of(model)
    refuse_training(tree)
    placed, misfits = place(binding, tree)
    found += [*misfits, *clashes(binding)]
    if not found:
        found = list(probe(binding, tree, [(p.region, p.seam) for p in placed], trust))
    if found:
        raise InputError.of(first_per_path(found))
    return [p.seam for p in placed]


def refuse_training(tree: Tree) -> None:
    """Raise :class:`Refusal` (TRAINING) where a module draws, drops or averages as it runs."""
    for path, module in tree.modules.items():
        if module.training:
            raise Refusal(
                Reason.TRAINING,
                "the module is in training mode",
                subject=path or type(module).__name__,
                do="call model.eval() first",
            )


@dataclass(frozen=True)
class Placed:
    """One region at one index of a tree; ``index`` is ``NO_INDEX`` for a path without ``{i}``."""

    region: RegionBinding
    index: int
    seam: Seam

    @property
    def key(self) -> tuple[str, str]:
        """Region and seam; two regions of different structures may call their seams the same."""
        return self.region.name, self.seam.id


def place(binding: BindingSpec, tree: Tree) -> tuple[list[Placed], list[Problem]]:
    """Every region at every index the tree has, and every path that does not fit; runs nothing."""
    placed: list[Placed] = []
    found: list[Problem] = []
    for region in binding.regions.values():
        indices = region.at(tree.indices(region.module))
        if not indices:
            found.append(_absent(binding, region, tree))
        for index in indices:
            problems = list(_misfits(binding, region, tree, index))
            found += problems
            if not problems:
                try:
                    placed.append(Placed(region, index, _seam(binding, region, tree, index)))
                except InputError as error:
                    found += error.problems
    return placed, found


def first_per_path(found: list[Problem]) -> list[Problem]:
    """One problem a path: a wrong template is wrong at every index in the same way."""
    first: dict[str, Problem] = {}
    for problem in found:
        first.setdefault(problem.path, problem)
    return sorted(first.values(), key=lambda p: (p.line, p.path))


def _problem(
    binding: BindingSpec, path: str, what: str, do: str, reason: Reason = Reason.BINDING
) -> Problem:
    document = binding.document
    return Problem(document.file, document.line(path), path, what, do, reason)


def _absent(binding: BindingSpec, region: RegionBinding, tree: Tree) -> Problem:
    indexed = {expand(region.module, 0): "", **dict.fromkeys(tree.modules, "")}
    del indexed[expand(region.module, 0)]
    near = suggest(expand(region.module, 0), [name for name in indexed if name])
    return _problem(
        binding, f"$.regions.{region.name}.module", f"the host has no module {region.module}", near
    )


def _misfits(
    binding: BindingSpec, region: RegionBinding, tree: Tree, index: int
) -> Iterator[Problem]:
    path = f"$.regions.{region.name}"
    members = [(f"{path}.members.{r}", expand(m, index)) for r, m in region.members.items()]
    located = [
        (f"{path}.points.{n}.module", expand(p.module, index)) for n, p in region.points.items()
    ]
    for where, module in [*members, *located]:
        if module not in tree.modules:
            near = suggest(module, (m for m in tree.modules if m))
            yield _problem(binding, where, f"the host has no module {module}", near)
    held = {slot: expand(h.at, index) for slot, h in region.weights.items()}
    for slot, key in held.items():
        where = f"{path}.weights.{slot}.at"
        if key not in tree.tensors:
            yield _problem(
                binding, where, f"the host has no tensor {key}", suggest(key, tree.tensors)
            )
            continue
        yield from _tensor(binding, region, tree, index, slot)
    yield from addresses.misfits(binding, region, tree, index)
    if region.adapter is not Adapter.NONE:
        return  # the member does more than the region, so it may hold more
    mapped = set(held.values())
    for where, module in members:
        for key in tree.inside(module):
            if key not in mapped:
                what = f"the host has {key} in this module and no slot holds it"
                do = "map it to a slot, or choose the variant that has one"
                yield _problem(binding, where, what, do)


def _tensor(
    binding: BindingSpec, region: RegionBinding, tree: Tree, index: int, slot: str
) -> Iterator[Problem]:
    path = f"$.regions.{region.name}"
    held = region.weights[slot]
    key = expand(held.at, index)
    dtype = str(tree.tensors[key].dtype).removeprefix("torch.")
    if dtype != region.dtype:
        what = f"{key} is {dtype}, the boundary is {region.dtype}"
        do = f"load the host in {region.dtype}, or bind it at {dtype}"
        yield _problem(binding, f"{path}.boundary.dtype", what, do, Reason.DTYPE)
    allowed = {expand(held.tied, index)} if held.tied else set()
    others = [other for other in tree.sharers(key) if other not in allowed]
    if others:
        what = f"{key} is the same tensor as {others[0]}"
        do = f"say tied: {others[0]}"
        yield _problem(binding, f"{path}.weights.{slot}.at", what, do, Reason.TIED)


def _seam(binding: BindingSpec, region: RegionBinding, tree: Tree, index: int) -> Seam:
    weights = {slot: expand(held.at, index) for slot, held in region.weights.items()}
    members = {role: expand(module, index) for role, module in region.members.items()}
    return Seam(
        id=_id(binding, region, index),
        structure=region.spec.id,
        members=members,
        variant=region.variant,
        dims=_solve(binding, region, tree, weights),
        weights=weights,
        points={
            name: Point(expand(p.module, index), p.capture) for name, p in region.points.items()
        },
    )


def _id(binding: BindingSpec, region: RegionBinding, index: int) -> str:
    """The member's own path where it is the region; several regions may lie in one member.

    Two regions of one structure that would be called the same end in their own names instead.
    """
    called = _called(region)
    others = (r for r in binding.regions.values() if r.spec.id == region.spec.id)
    if any(r is not region and _called(r) == called for r in others):
        called = f"{region.module}.{region.name}"
    return expand(called, index)


def _called(region: RegionBinding) -> str:
    if region.adapter is not Adapter.NONE:
        return f"{region.module}.{region.spec.name}"
    if set(region.members) == {"self"}:
        return region.module
    return f"{region.module}.{''.join(region.members)}"


def _solve(
    binding: BindingSpec, region: RegionBinding, tree: Tree, weights: Mapping[str, str]
) -> dict[str, int]:
    """The dims of the weights. The problem sits at the slot whose shape contradicts.

    A dim that the weights alone do not determine (``Hq`` of ``Hq*Dh``) is left out.
    """
    equations = [*region.spec.said(region.variant), *_counts(region)]
    rules = region.spec.constraints
    solved = dims.solve(equations, constraints=rules, partial=True)
    for slot, key in weights.items():
        path = f"$.regions.{region.name}.weights.{slot}.at"
        shape = slot_shape(region.weights[slot], tuple(tree.tensors[key].shape))
        written = region.spec.slots[base(slot, region.spec.slots)].dims
        try:
            equations += dims.equations(written, shape, key)
            solved = dims.solve(equations, constraints=rules, partial=True)
        except Refusal as error:
            said = ", ".join(str(d) for d in written)
            do = f"{region.spec.id} has {slot} as [{said}]"
            raise binding.refuse(path, error.what, do, Reason.SHAPE) from error
    return solved


def _counts(region: RegionBinding) -> list[dims.Equation]:
    """How many tensors each repeated slot stands for."""
    known = region.spec.slots
    names = [base(slot, known) for slot in region.weights]
    return [
        dims.Equation(dims.Name(known[n].repeat), names.count(n), f"the number of slots {n}")
        for n in dict.fromkeys(names)
        if known[n].repeat
    ]
