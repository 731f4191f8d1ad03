"""Dense projections in a module tree, told by what they hold and what they were seen to compute."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch.nn.parameter import Parameter, is_lazy

from flashrt.host.discovery.near_miss import LINEAR_PROJ, NearMiss, raised
from flashrt.host.discovery.sample import Observed, signs
from flashrt.host.discovery.torch_linear import of_torch
from flashrt.host.discovery.trace import Call, Paths, Trace
from flashrt_runtime.reason import Reason

_ROUNDINGS = 32  # of the sum of magnitudes
_FEATURES = 4  # of what torch's own code puts out, or all of them


class Projection(NamedTuple):
    """A module that was seen to compute x·Wᵀ (+ bias). ``weight`` is [N, K]; names are keys.

    ``n`` and ``k`` are the widths out and in. ``dead`` is whether all that was kept of what it read
    is zero, which shows nothing of its weight.
    """

    path: str
    weight: torch.Tensor
    bias: torch.Tensor | None
    weight_key: str
    bias_key: str | None
    calls: tuple[Call, ...]
    n: int
    k: int
    dead: bool = False

    @property
    def parent(self) -> str:
        """Path of the module that holds it."""
        return self.path.rpartition(".")[0]

    @property
    def reads(self) -> tuple[int, ...]:
        """The numbers of the tensors it read, call by call. Equal ones: they share their input."""
        return tuple([call.input.number if call.input else -1 for call in self.calls])


def held(module: torch.nn.Module) -> dict[str, Parameter]:
    """A module's own parameters that have a shape already; those of a lazy module have none."""
    own = module._parameters
    if not own:
        return {}
    return {
        name: p
        for name, p in own.items()
        if p is not None and (type(p) is Parameter or not is_lazy(p))
    }


Leaf = tuple[str, torch.nn.Module]


def leaves(paths: Paths, seen: Trace) -> list[Leaf]:
    """Modules without children, under every path by which they were called, or their first."""
    found = []
    for module, names in paths.items():
        if not module._modules:
            called = [name for name in names if name in seen.calls]
            found += [(path, module) for path in called or names[:1]]
    return found


def stacked_matrices(paths: Paths) -> dict[str, torch.Size]:
    """Modules that hold two or more stacks of matrices (rank three), with one's shape."""
    found: dict[str, torch.Size] = {}
    for module, names in paths.items():
        own = [p.shape for p in held(module).values()]
        stacks = [shape for shape in own if len(shape) == 3 and min(shape) > 1]
        if len(stacks) > 1:
            found[names[0]] = stacks[0]
    return found


def find_projections(
    leaves: Sequence[Leaf], seen: Trace
) -> tuple[dict[str, Projection], list[NearMiss]]:
    """Projections by path, in call order, and what only looks like one with the reason."""
    found: dict[str, Projection] = {}
    missed: list[NearMiss] = []
    held_by = [(p, module) for path, module in leaves if (p := _held(path, module, seen))]
    stacks = _stacked(
        [o for p, _ in held_by for call in p.calls for o in (call.input, call.output) if o]
    )
    lost = _not_finite(stacks)
    fine = _fine([p for p, module in held_by if of_torch(module)], stacks)
    for likely, _ in held_by:
        path, known = likely.path, likely.path in fine
        try:
            objection = _objection(likely, lost, seen, fine=known)
            dead = objection is None and not known and all(map(_dead, likely.calls))
        except Exception as error:  # a tensor of a kind of its own may refuse any operator
            missed.append(raised(path, LINEAR_PROJ, error))
            continue
        if objection is not None:
            missed.append(NearMiss.of(path, LINEAR_PROJ, *objection))
        else:
            found[path] = likely._replace(dead=True) if dead else likely
    ordered = sorted(found.values(), key=lambda p: p.calls[0].order)
    return {p.path: p for p in ordered}, missed


def _held(path: str, module: torch.nn.Module, seen: Trace) -> Projection | None:
    """The one floating matrix and at most one vector of a leaf that reads no integers."""
    own = held(module)
    ranks = {p.dim(): name for name, p in own.items()}
    weight, bias = ranks.get(2), ranks.get(1)
    if weight is None or len(own) != (1 if bias is None else 2):
        return None
    calls = tuple(seen.calls.get(path, ()))
    for call in calls:
        if call.input is not None and not call.input.kept.is_floating_point():
            return None
    prefix = f"{path}." if path else ""
    matrix = own[weight].detach()
    vector = None if bias is None else own[bias].detach()
    bias_key = None if bias is None else prefix + bias
    return Projection(path, matrix, vector, prefix + weight, bias_key, calls, *matrix.shape)


class _Stack(NamedTuple):
    """What was kept of tensors of one shape: ``values`` is [G, ...]; ``at`` has G by number."""

    values: torch.Tensor
    at: dict[int, int]

    def ends(self, numbers: Sequence[int]) -> torch.Tensor:
        """The first and the last row of these that are kept, or the only one, [.., 1 or 2, D]."""
        rows = self.values.view(len(self.at), -1, self.values.shape[-1])
        index = torch.tensor([self.at[number] for number in numbers], device=rows.device)
        return rows[:, :: max(1, rows.shape[1] - 1)].index_select(0, index)


def _stacked(seen: Sequence[Observed]) -> list[_Stack]:
    """What was kept of these floating tensors, all of one shape in one."""
    groups: dict[Hashable, dict[int, torch.Tensor]] = {}
    for number, o in {o.number: o for o in seen}.items():
        kept = o.kept
        if kept.is_floating_point():
            groups.setdefault((o.shape, kept.dtype, kept.device), {})[number] = kept
    return [
        _Stack(torch.stack(list(group.values())), {number: i for i, number in enumerate(group)})
        for group in groups.values()
    ]


def _not_finite(stacks: Sequence[_Stack]) -> set[int]:
    """Numbers of the tensors of which a kept value is NaN or infinite."""
    lost: set[int] = set()
    for values, at in stacks:
        flat = values.unsqueeze(-1).flatten(1)
        total = flat.sum(dtype=torch.promote_types(flat.dtype, torch.float32))
        if not bool(total.isfinite()):  # or the sum alone is too large
            good = flat.isfinite().all(dim=1).tolist()
            lost |= {number for number, finite in zip(at, good, strict=True) if not finite}
    return lost


def _agree(calls: Sequence[Call], weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether every call is x·weightᵀ + bias: two rows of it, and the signed sum of all its rows.

    ``weight`` is [out, in]; every feature out is looked at. The tolerance is 32 roundings (at most
    5 %) of the sum of magnitudes.
    """
    xs, ys, sizes, shifts = [], [], [], []
    for call in calls:
        x, y = call.input, call.output
        if x is None or y is None or not _fit(weight, x, y):
            return False
        ends = _ends(x.rows)
        xs.append(x.rows[ends])
        ys.append(y.rows[ends])
        sizes.append(xs[-1].abs())
        shifts += [(1.0, 1.0)] * len(ends)
        if x.sketch is not None and y.sketch is not None and _finite(x.sketch, y.sketch):
            count = math.prod(x.shape[:-1])
            xs.append(x.sketch[None])
            ys.append(y.sketch[None])
            typical = x.rows.abs().mean(0, dtype=torch.float32).to(x.dtype)
            sizes.append(x.sketch.abs()[None] + typical * count**0.5)
            shifts.append((float(signs(count, x.kept).sum()), count**0.5))
    source, made, size = torch.cat(xs), torch.cat(ys), torch.cat(sizes)
    wide = torch.promote_types(made.dtype, torch.float32)
    moved = torch.tensor(shifts, device=weight.device, dtype=wide)
    want = torch.nn.functional.linear(source, weight).to(wide)
    if bias is not None:
        want += moved[:, :1] * bias
    off = (made - want).abs()
    tolerance = _tolerance(made.dtype)
    # the sum of magnitudes is no less than the result: only where that is not enough is it made
    near = want.abs() + _typical(want, made.dtype)
    far = (~(off <= tolerance * near)).any(dim=0).nonzero().flatten()
    if not len(far):
        return True
    bound = (size @ weight[far].abs().T).to(wide)
    if bias is not None:
        bound += moved.abs().amax(1, keepdim=True) * bias[far].abs()
    return bool((off[:, far] <= tolerance * bound + 1e-30).all())


def _fine(projections: Sequence[Projection], stacks: Sequence[_Stack]) -> set[str]:
    """Paths of those whose every call is x·weightᵀ + bias in two rows and a few features out.

    It is for torch's own code, which computes one feature as it does the next. All of one shape
    are multiplied at once. What is not found here is still to be looked at whole.
    """
    place = {number: i for i, stack in enumerate(stacks) for number in stack.at}
    groups: dict[Hashable, list[tuple[Projection, Observed, Observed]]] = {}
    unlike = set()
    for p in projections:
        weight = p.weight
        kind = (weight.shape, weight.dtype, weight.device, p.bias is None)
        for call in p.calls:
            x, y = call.input, call.output
            if x is None or y is None or y.number not in place:
                unlike.add(p.path)
            else:
                key = (kind, place[x.number], place[y.number])
                groups.setdefault(key, []).append((p, x, y))
    for group in groups.values():
        some, (first, x, y) = [p for p, _, _ in group], group[0]
        if not _fit(first.weight, x, y):  # nor does any other: shapes and dtypes are the same
            unlike.update([p.path for p in some])
            continue
        xs = stacks[place[x.number]].ends([x.number for _, x, _ in group])
        ys = stacks[place[y.number]].ends([y.number for _, _, y in group])[..., :_FEATURES]
        weights = torch.stack([p.weight[:_FEATURES] for p in some]).mT
        wide = torch.promote_types(ys.dtype, torch.float32)
        want, size = (xs @ weights).to(wide), (xs.abs() @ weights.abs()).to(wide)
        told = size > 0
        if first.bias is not None:
            bias = torch.stack([p.bias[:_FEATURES] for p in some if p.bias is not None])[:, None]
            want, size = want + bias, size + bias.abs()
        told &= (ys - want).abs() <= _tolerance(ys.dtype) * size
        agrees = told.flatten(1).all(1).tolist()
        unlike.update([p.path for p, right in zip(some, agrees, strict=True) if not right])
    return {p.path for p in projections if p.calls} - unlike


def computes(projection: Projection, x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether ``y`` is what the projection's weight and bias make of ``x``."""
    read, made = (Observed(-1, each, tuple(each.shape), contiguous=True) for each in (x, y))
    call = Call(projection.path, 0, 0, read, made, plain=True)
    return _agree([call], projection.weight, projection.bias)


def _fit(weight: torch.Tensor, x: Observed, y: Observed) -> bool:
    """Whether rows of ``x``, and there are any, have the widths and dtype to give ``y``."""
    fits = x.shape[:-1] == y.shape[:-1] and (y.width, x.width) == weight.shape
    alike = x.kept.dtype == y.kept.dtype == weight.dtype
    return alike and fits and bool(x.kept.numel() and y.kept.numel())


def _tolerance(dtype: torch.dtype) -> float:
    """How much of its size a result may be off by."""
    return min(_ROUNDINGS * torch.finfo(dtype).eps, 0.05)


def _typical(want: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | float:
    """The size of a row [.., 1], where so little of it can hide nothing; else 0."""
    if torch.finfo(dtype).bits < 32:
        return 0.0
    return want.square().mean(-1, keepdim=True).sqrt()


def _ends(rows: torch.Tensor) -> list[int]:
    """The first and the last row that are not zero; of rows that are all zero, the last."""
    told = rows.ne(0).any(dim=1).nonzero().flatten().tolist() or [rows.shape[0] - 1]
    return [told[0], told[-1]] if len(told) > 1 else told


def _finite(*sketches: torch.Tensor) -> bool:
    """Whether sums of half-precision rows did not overflow."""
    return all(bool(sketch.isfinite().all()) for sketch in sketches)


def _dead(call: Call) -> bool:
    """Whether all that was kept of what a call read is zero."""
    seen = call.input
    if seen is None or bool(seen.kept.any()):
        return False
    return seen.sketch is None or not bool(seen.sketch.any())


def _objection(
    projection: Projection, lost: set[int], seen: Trace, *, fine: bool
) -> tuple[Reason, str] | None:
    """Why this is not a projection, or ``None`` when every observed call says that it is."""
    calls, weight, bias = projection.calls, projection.weight, projection.bias
    found = _unseen(projection, lost, seen)
    if found is not None:
        return found
    if not fine and not _agree(calls, weight, bias):
        found = (Reason.LAYOUT, "its output is not its input times its weight (+ bias)")
        if _agree(calls, weight.T, bias):
            what = f"its weight is laid out [in, out] = {tuple(weight.shape)}, not [out, in]"
            found = (Reason.LAYOUT, what)
    elif not all(call.plain for call in calls):
        found = (Reason.LAYOUT, "it is not called with one positional tensor alone")
    elif not weight.is_contiguous():
        found = (Reason.LAYOUT, "its weight is not contiguous as [out, in]")
    return found


def _unseen(projection: Projection, lost: set[int], seen: Trace) -> tuple[Reason, str] | None:
    """Why its calls do not show what it computes."""
    calls, weight = projection.calls, projection.weight
    found: tuple[Reason, str] | None = None
    if projection.path in seen.unseen:
        found = (Reason.HOST, seen.unseen[projection.path])
    elif not calls:
        found = (Reason.NEVER_CALLED, "the observed forward never called it")
    elif not weight.is_floating_point():
        found = (Reason.DTYPE, f"its weight is {weight.dtype}, not a floating type")
    elif not weight.numel():
        found = (Reason.LAYOUT, f"its weight {tuple(weight.shape)} holds nothing")
    elif lost and any(o and o.number in lost for c in calls for o in (c.input, c.output)):
        found = (Reason.NONFINITE, "what it read or put out is NaN or infinite")
    elif any(call.input is None or not call.input.kept.numel() for call in calls):
        found = (Reason.LAYOUT, "it was not given a dense tensor that has rows")
    elif any(call.output is None for call in calls):
        found = (Reason.LAYOUT, "it does not return one tensor")
    return found
