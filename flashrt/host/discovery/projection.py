"""Dense projections in a module tree, told by what they hold and what they were seen to compute."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flashrt.host.discovery.near_miss import LINEAR_PROJ, NearMiss, raised
from flashrt.host.discovery.sample import Observed, signs
from flashrt.host.discovery.torch_linear import of_torch
from flashrt.host.discovery.trace import Call, Paths, Trace
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import torch

_ROUNDINGS = 32  # of the sum of magnitudes
_FEATURES = 32  # of what torch's own code puts out, at least, or all of them


@dataclass(frozen=True)
class Projection:
    """A module that was seen to compute x·Wᵀ (+ bias). ``weight`` is [N, K]; names are keys."""

    path: str
    weight: torch.Tensor
    bias: torch.Tensor | None
    weight_key: str
    bias_key: str | None
    calls: tuple[Call, ...]

    @cached_property
    def parent(self) -> str:
        """Path of the module that holds it."""
        return self.path.rpartition(".")[0]

    @cached_property
    def dead(self) -> bool:
        """Whether all that was kept of what it read is zero, which shows nothing of its weight."""
        return all(_dead(call) for call in self.calls)

    @cached_property
    def n(self) -> int:
        """Width out."""
        return int(self.weight.shape[0])

    @cached_property
    def k(self) -> int:
        """Width in."""
        return int(self.weight.shape[1])

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """The numbers of the tensors it read, call by call. Equal ones: they share their input."""
        return tuple(call.input.number if call.input else -1 for call in self.calls)


def held(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """A module's own parameters that have a shape already; those of a lazy module have none."""
    from torch.nn.parameter import is_lazy

    return {n: p for n, p in module._parameters.items() if p is not None and not is_lazy(p)}


Leaf = tuple[str, "torch.nn.Module"]


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
    likely = [projection for projection, _ in held_by]
    lost = _not_finite(
        o for p in likely for call in p.calls for o in (call.input, call.output) if o
    )
    fine = _fine([p for p, module in held_by if of_torch(module)])
    for projection in likely:
        try:
            objection = _objection(projection, lost, seen, fine)
        except Exception as error:  # a tensor of a kind of its own may refuse any operator
            missed.append(raised(projection.path, LINEAR_PROJ, error))
            continue
        if objection is not None:
            missed.append(NearMiss.of(projection.path, LINEAR_PROJ, *objection))
        else:
            found[projection.path] = projection
    ordered = sorted(found.values(), key=lambda p: p.calls[0].order)
    return {p.path: p for p in ordered}, missed


def _held(path: str, module: torch.nn.Module, seen: Trace) -> Projection | None:
    """The one floating matrix and at most one vector of a leaf that reads no integers."""
    own = held(module)
    if sorted(p.dim() for p in own.values()) not in ([2], [1, 2]):
        return None
    calls = tuple(seen.calls.get(path, ()))
    if any(c.input is not None and not c.input.dtype.is_floating_point for c in calls):
        return None
    weight = next(name for name, p in own.items() if p.dim() == 2)
    bias = next((name for name, p in own.items() if p.dim() == 1), None)
    prefix = f"{path}." if path else ""
    return Projection(
        path,
        own[weight].detach(),
        own[bias].detach() if bias else None,
        prefix + weight,
        prefix + bias if bias else None,
        calls,
    )


def _not_finite(seen: Iterable[Observed]) -> set[int]:
    """Numbers of the tensors of which a kept value is NaN or infinite."""
    import torch

    groups: dict[tuple[object, ...], list[Observed]] = {}
    for o in {o.number: o for o in seen if o.dtype.is_floating_point}.values():
        groups.setdefault((o.kept.shape, o.dtype, o.kept.device), []).append(o)
    lost: set[int] = set()
    for group in groups.values():
        finite = torch.stack([o.kept for o in group]).isfinite().flatten(1).all(dim=1).tolist()
        lost |= {o.number for o, good in zip(group, finite, strict=True) if not good}
    return lost


def _agree(calls: Sequence[Call], weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether every call is x·weightᵀ + bias: two rows of it, and the signed sum of all its rows.

    ``weight`` is [out, in]; every feature out is looked at. The tolerance is 32 roundings (at most
    5 %) of the sum of magnitudes.
    """
    import torch

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
    tolerance = min(_ROUNDINGS * torch.finfo(made.dtype).eps, 0.05)
    # the sum of magnitudes is no less than the result: only where that is not enough is it made
    near = want.abs() + _typical(want, made.dtype)
    far = (~(off <= tolerance * near)).any(dim=0).nonzero().flatten()
    if not len(far):
        return True
    bound = (size @ weight[far].abs().T).to(wide)
    if bias is not None:
        bound += moved.abs().amax(1, keepdim=True) * bias[far].abs()
    return bool((off[:, far] <= tolerance * bound + 1e-30).all())


def _fine(projections: Sequence[Projection]) -> set[str]:
    """Paths of those whose every call is x·weightᵀ + bias in two rows and a few features out.

    It is for torch's own code, which computes one feature as it does the next. All of one shape
    are multiplied at once. What is not found here is still to be looked at whole.
    """
    import torch

    groups: dict[Hashable, list[tuple[Projection, Call]]] = {}
    for p in projections:
        for call in p.calls:
            x, y = call.input, call.output
            if x is not None and y is not None and _fit(p.weight, x, y):
                kind = (p.weight.shape, p.bias is None, p.weight.dtype, p.weight.device)
                shape = (len(x.rows), x.kept.device, y.kept.device)
                groups.setdefault((kind, shape), []).append((p, call))
    right: dict[str, int] = {}
    for group in groups.values():
        step = max(1, group[0][0].n // _FEATURES)
        xs = torch.stack([_two(c.input) for _, c in group])
        ys = torch.stack([_two(c.output)[:, ::step] for _, c in group])
        weights = torch.stack([p.weight[::step] for p, _ in group])
        wide = torch.promote_types(ys.dtype, torch.float32)
        want = (xs @ weights.mT).to(wide)
        if group[0][0].bias is not None:
            want += torch.stack([p.bias[::step] for p, _ in group if p.bias is not None])[:, None]
        tolerance = min(_ROUNDINGS * torch.finfo(ys.dtype).eps, 0.05)
        size = want.abs() + _typical(want, ys.dtype)
        near = (ys - want).abs() <= tolerance * size
        told = near.flatten(1).all(1) & xs.any(2).all(1)
        for (p, _), agrees in zip(group, told.tolist(), strict=True):
            right[p.path] = right.get(p.path, 0) + agrees
    return {p.path for p in projections if p.calls and right.get(p.path) == len(p.calls)}


def computes(projection: Projection, x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether ``y`` is what the projection's weight and bias make of ``x``."""
    read, made = (Observed(-1, each, tuple(each.shape), contiguous=True) for each in (x, y))
    call = Call(projection.path, 0, 0, read, made, plain=True)
    return _agree([call], projection.weight, projection.bias)


def _fit(weight: torch.Tensor, x: Observed, y: Observed) -> bool:
    """Whether rows of ``x``, and there are any, have the widths and dtype to give ``y``."""
    fits = x.shape[:-1] == y.shape[:-1] and (y.width, x.width) == tuple(weight.shape)
    alike = x.dtype == y.dtype == weight.dtype
    return alike and fits and bool(x.kept.numel() and y.kept.numel())


def _typical(want: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | float:
    """The size of a row [.., 1], where so little of it can hide nothing; else 0."""
    import torch

    if torch.finfo(dtype).bits < 32:
        return 0.0
    return want.square().mean(-1, keepdim=True).sqrt()


def _two(seen: Observed | None) -> torch.Tensor:
    """The first and the last row that are kept, or the only one."""
    assert seen is not None
    rows = seen.rows
    return rows[:: max(1, len(rows) - 1)]


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
    projection: Projection, lost: set[int], seen: Trace, fine: Collection[str]
) -> tuple[Reason, str] | None:
    """Why this is not a projection, or ``None`` when every observed call says that it is."""
    calls, weight, bias = projection.calls, projection.weight, projection.bias
    found = _unseen(projection, lost, seen)
    if found is not None:
        return found
    if projection.path not in fine and not _agree(calls, weight, bias):
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
    elif any(o and o.number in lost for call in calls for o in (call.input, call.output)):
        found = (Reason.NONFINITE, "what it read or put out is NaN or infinite")
    elif any(call.input is None or not call.input.kept.numel() for call in calls):
        found = (Reason.LAYOUT, "it was not given a dense tensor that has rows")
    elif any(call.output is None for call in calls):
        found = (Reason.LAYOUT, "it does not return one tensor")
    return found
