"""Dense projections in a module tree, told by what they hold and what they were seen to compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashrt.host.near_miss import LINEAR_PROJ, NearMiss
from flashrt.host.trace import Call, Observed, Trace
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Projection:
    """A module that was seen to compute x·Wᵀ (+ bias). ``weight`` is [N, K]; names are keys."""

    path: str
    weight: torch.Tensor
    bias: torch.Tensor | None
    weight_key: str
    bias_key: str | None
    calls: tuple[Call, ...]

    @property
    def parent(self) -> str:
        """Path of the module that holds it."""
        return self.path.rpartition(".")[0]

    @property
    def n(self) -> int:
        """Width out."""
        return int(self.weight.shape[0])

    @property
    def k(self) -> int:
        """Width in."""
        return int(self.weight.shape[1])


def leaf_matrices(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Modules without children that hold exactly one floating matrix and at most one vector."""
    found = {}
    for path, module in model.named_modules():
        own = [p for _, p in module.named_parameters(recurse=False)]
        ranks = sorted(p.dim() for p in own)
        if not list(module.children()) and ranks in ([2], [1, 2]):
            found[path] = module
    return found


def stacked_matrices(model: torch.nn.Module) -> dict[str, torch.Size]:
    """Modules that hold two or more stacks of matrices (rank three), with one's shape."""
    found = {}
    for path, module in model.named_modules():
        stacks = [p.shape for _, p in module.named_parameters(recurse=False) if p.dim() == 3]
        if len(stacks) > 1:
            found[path] = stacks[0]
    return found


def close(got: torch.Tensor, want: torch.Tensor, bound: torch.Tensor) -> bool:
    """Whether they agree within 32 roundings (at most 5 %) of ``bound``, element by element."""
    import torch

    if got.shape != want.shape:
        return False
    tolerance = min(32 * torch.finfo(got.dtype).eps, 0.05)
    difference = (got.double() - want.double()).abs()
    return bool((difference <= tolerance * bound.double() + 1e-30).all())


def _finite(seen: Observed | None) -> bool:
    return seen is None or bool(seen.tensor.isfinite().all())


def _first_row(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1])[:1]


def _computes(call: Call, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether one row of the call is x·weightᵀ + bias; ``weight`` is [out, in]."""
    from torch.nn.functional import linear

    if call.input is None or call.output is None:
        return False
    x, y = call.input.tensor, call.output.tensor
    if x.shape[:-1] != y.shape[:-1] or x.shape[-1] != weight.shape[1] or not x.numel():
        return False
    if y.shape[-1] != weight.shape[0] or x.dtype != weight.dtype:
        return False
    row = _first_row(x)
    bound = linear(row.abs(), weight.abs(), None if bias is None else bias.abs())
    return close(_first_row(y), linear(row, weight, bias), bound)


def find_projections(
    model: torch.nn.Module, seen: Trace
) -> tuple[dict[str, Projection], list[NearMiss]]:
    """Projections by path, in call order, and what only looks like one with the reason."""
    found: dict[str, Projection] = {}
    missed: list[NearMiss] = []
    for path, module in leaf_matrices(model).items():
        named = dict(module.named_parameters(recurse=False))
        weight_name = next(name for name, p in named.items() if p.dim() == 2)
        bias_name = next((name for name, p in named.items() if p.dim() == 1), None)
        weight = named[weight_name].detach()
        bias = named[bias_name].detach() if bias_name else None
        calls = tuple(seen.calls.get(path, ()))
        reads_integers = any(
            c.input is not None and not c.input.tensor.is_floating_point() for c in calls
        )
        if not reads_integers:
            refused = _refusal(path, calls, weight, bias)
            if refused is not None:
                missed.append(refused)
                continue
            prefix = f"{path}." if path else ""
            bias_key = prefix + bias_name if bias_name else None
            found[path] = Projection(path, weight, bias, prefix + weight_name, bias_key, calls)
    ordered = sorted(found.values(), key=lambda p: p.calls[0].order)
    return {p.path: p for p in ordered}, missed


def _refusal(
    path: str, calls: tuple[Call, ...], weight: torch.Tensor, bias: torch.Tensor | None
) -> NearMiss | None:
    found = _objection(calls, weight, bias)
    return NearMiss.of(path, LINEAR_PROJ, *found) if found else None


def _objection(
    calls: tuple[Call, ...], weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[Reason, str] | None:
    """Why this is not a projection, or ``None`` when every observed call says that it is."""
    found: tuple[Reason, str] | None = None
    if not calls:
        found = (Reason.NEVER_CALLED, "the observed forward never called it")
    elif not weight.is_floating_point():
        found = (Reason.DTYPE, f"its weight is {weight.dtype}, not a floating type")
    elif any(o and not o.intact() for call in calls for o in (call.input, call.output)):
        what = "its input or output was written in place later, so it cannot be checked"
        found = (Reason.LAYOUT, what)
    elif not all(_finite(o) for call in calls for o in (call.input, call.output)):
        found = (Reason.NONFINITE, "what it read or put out is NaN or infinite")
    elif all(_computes(call, weight.T, bias) for call in calls) and not all(
        _computes(call, weight, bias) for call in calls
    ):
        what = f"its weight is laid out [in, out] = {tuple(weight.shape)}, not [out, in]"
        found = (Reason.LAYOUT, what)
    elif any(call.output is None for call in calls):
        found = (Reason.LAYOUT, "it does not return one tensor")
    elif not all(_computes(call, weight, bias) for call in calls):
        found = (Reason.LAYOUT, "its output is not its input times its weight (+ bias)")
    elif not all(call.plain for call in calls):
        found = (Reason.LAYOUT, "it is not called with one positional tensor alone")
    elif not weight.is_contiguous():
        found = (Reason.LAYOUT, "its weight is not contiguous as [out, in]")
    return found
