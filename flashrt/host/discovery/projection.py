"""Dense projections in a module tree, told by what they hold and what they were seen to compute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flashrt.host.discovery.near_miss import LINEAR_PROJ, NearMiss
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.trace import Call, Paths, Trace
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import torch

_COLUMNS = 8  # features out that are computed again; with fewer, a wrong one could hide


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
        own = [p.shape for p in module._parameters.values() if p is not None]
        stacks = [shape for shape in own if len(shape) == 3 and min(shape) > 1]
        if len(stacks) > 1:
            found[names[0]] = stacks[0]
    return found


def find_projections(
    leaves: Sequence[Leaf], seen: Trace
) -> tuple[dict[str, Projection], list[NearMiss]]:
    """Projections by path, in call order, and what only looks like one with the reason."""
    held = [p for path, module in leaves if (p := _held(path, module, seen))]
    lost = _not_finite(o for p in held for call in p.calls for o in (call.input, call.output) if o)
    agree = _agree([(call, p.weight, p.bias) for p in held for call in p.calls])
    found: dict[str, Projection] = {}
    missed: list[NearMiss] = []
    at = 0
    for projection in held:
        agreed = agree[at : at + len(projection.calls)]
        at += len(projection.calls)
        objection = _objection(projection, agreed, lost)
        if objection is not None:
            missed.append(NearMiss.of(projection.path, LINEAR_PROJ, *objection))
        else:
            found[projection.path] = projection
    ordered = sorted(found.values(), key=lambda p: p.calls[0].order)
    return {p.path: p for p in ordered}, missed


def _held(path: str, module: torch.nn.Module, seen: Trace) -> Projection | None:
    """The one floating matrix and at most one vector of a leaf that reads no integers."""
    own = {name: p for name, p in module._parameters.items() if p is not None}
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


Claim = tuple[Call, "torch.Tensor", "torch.Tensor | None"]


def _agree(claims: Sequence[Claim]) -> list[bool]:
    """For each call: whether one row of it is x·weightᵀ + bias, on evenly spread features out.

    ``weight`` is [out, in]. The tolerance is 32 roundings (at most 5 %) of the sum of magnitudes.
    """
    import torch

    verdicts = [False] * len(claims)
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, (call, weight, _) in enumerate(claims):
        x, y = call.input, call.output
        if x is None or y is None or x.dtype != weight.dtype or y.dtype != weight.dtype:
            continue
        fits = x.shape[:-1] == y.shape[:-1] and (y.width, x.width) == tuple(weight.shape)
        if fits and x.kept.numel():
            key = (min(_COLUMNS, y.width), x.width, x.dtype, weight.device)
            groups.setdefault(key, []).append(i)
    for members in groups.values():
        rows, parts, outs, adds = [], [], [], []
        for i in members:
            call, weight, bias = claims[i]
            assert call.input is not None
            assert call.output is not None
            step = max(1, weight.shape[0] // _COLUMNS)
            stop = step * min(_COLUMNS, weight.shape[0])
            rows.append(call.input.rows[0])
            parts.append(weight[:stop:step])
            outs.append(call.output.rows[0, :stop:step])
            adds.append(torch.zeros_like(outs[-1]) if bias is None else bias[:stop:step])
        wide = torch.promote_types(outs[0].dtype, torch.float32)
        source = torch.stack(rows).to(wide)[:, :, None]
        w, made, b = (torch.stack(each).to(wide) for each in (parts, outs, adds))
        want = (w @ source)[:, :, 0] + b
        bound = (w.abs() @ source.abs())[:, :, 0] + b.abs()
        tolerance = min(32 * torch.finfo(outs[0].dtype).eps, 0.05)
        near = ((made - want).abs() <= tolerance * bound + 1e-30).all(dim=1).tolist()
        for i, verdict in zip(members, near, strict=True):
            verdicts[i] = verdict
    return verdicts


def _objection(
    projection: Projection, agreed: Sequence[bool], lost: set[int]
) -> tuple[Reason, str] | None:
    """Why this is not a projection, or ``None`` when every observed call says that it is."""
    calls, weight, bias = projection.calls, projection.weight, projection.bias
    found: tuple[Reason, str] | None = None
    if not calls:
        found = (Reason.NEVER_CALLED, "the observed forward never called it")
    elif not weight.is_floating_point():
        found = (Reason.DTYPE, f"its weight is {weight.dtype}, not a floating type")
    elif any(o and o.number in lost for call in calls for o in (call.input, call.output)):
        found = (Reason.NONFINITE, "what it read or put out is NaN or infinite")
    elif not all(agreed) and all(_agree([(call, weight.T, bias) for call in calls])):
        what = f"its weight is laid out [in, out] = {tuple(weight.shape)}, not [out, in]"
        found = (Reason.LAYOUT, what)
    elif any(call.output is None for call in calls):
        found = (Reason.LAYOUT, "it does not return one tensor")
    elif not all(agreed):
        found = (Reason.LAYOUT, "its output is not its input times its weight (+ bias)")
    elif not all(call.plain for call in calls):
        found = (Reason.LAYOUT, "it is not called with one positional tensor alone")
    elif not weight.is_contiguous():
        found = (Reason.LAYOUT, "its weight is not contiguous as [out, in]")
    return found
