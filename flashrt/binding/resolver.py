"""Expands a binding over a real module tree, and refuses one that does not fit the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashrt.binding.model import BindingSpec, RegionBinding
from flashrt.binding.packages import installed, outside
from flashrt.binding.probe import probe
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
    numbers contradict.
    """
    found = outside(binding, installed(binding.host.packages) if versions is None else versions)
    tree = Tree.of(model)
    seams: list[tuple[RegionBinding, Seam]] = []
    for region in binding.regions.values():
        indices = tree.indices(region.module)
        if not indices:
            found.append(_absent(binding, region, tree))
        for index in indices:
            problems = list(_misfits(binding, region, tree, index))
            found += problems
            if not problems:
                try:
                    seams.append((region, _seam(binding, region, tree, index)))
                except InputError as error:
                    found += error.problems
    if not found:
        found = list(probe(binding, tree, seams, trust))
    if found:
        raise InputError.of(_first_per_path(found))
    return [seam for _, seam in seams]


def conflicts(seams: Sequence[Seam]) -> list[tuple[Seam, Seam]]:
    """Pairs of seams that replace one module, or a module and one inside it.

    A binding may hold such pairs on purpose; a scheme must choose one of each.
    """
    found = []
    for i, a in enumerate(seams):
        for b in seams[i + 1 :]:
            if any(_overlap(p, q) for p in a.members.values() for q in b.members.values()):
                found.append((a, b))
    return found


def _overlap(a: str, b: str) -> bool:
    return a == b or a.startswith(f"{b}.") or b.startswith(f"{a}.")


def _first_per_path(found: list[Problem]) -> list[Problem]:
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
    module = expand(region.module, index)
    return Seam(
        id=module if set(members) == {"self"} else f"{module}.{''.join(members)}",
        structure=region.spec.id,
        members=members,
        variant=region.variant,
        dims=_solve(binding, region, tree, weights),
        weights=weights,
        points={
            name: Point(expand(p.module, index), p.capture) for name, p in region.points.items()
        },
    )


def _solve(
    binding: BindingSpec, region: RegionBinding, tree: Tree, weights: Mapping[str, str]
) -> dict[str, int]:
    """The dims of the weights. The problem sits at the slot whose shape contradicts."""
    equations: list[dims.Equation] = []
    solved: dict[str, int] = {}
    for slot, key in weights.items():
        path = f"$.regions.{region.name}.weights.{slot}.at"
        shape = tuple(tree.tensors[key].shape)
        try:
            equations += dims.equations(region.spec.slots[slot].dims, shape, key)
            solved = dims.solve([e for e in equations if _ready(e, equations)])
        except Refusal as error:
            do = f"{region.spec.id} has {slot} as [{_written(region, slot)}]"
            raise binding.refuse(path, error.what, do, Reason.SHAPE) from error
    try:
        return dims.solve(equations)
    except Refusal as error:
        path = f"$.regions.{region.name}.weights"
        do = f"solved so far: {solved}"
        raise binding.refuse(path, error.what, do, Reason.SHAPE) from error


def _ready(equation: dims.Equation, others: Sequence[dims.Equation]) -> bool:
    """Whether each of its names stands alone in some equation, so a partial solve is fair."""
    alone = {e.expr.name for e in others if isinstance(e.expr, dims.Name)}
    return dims.names(equation.expr) <= alone


def _written(region: RegionBinding, slot: str) -> str:
    return ", ".join(str(d) for d in region.spec.slots[slot].dims)
