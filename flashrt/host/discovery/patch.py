"""Finds patch_projection: a module whose every row is one whole patch, times one kernel.

The host flattens patches before: the module reads [M, C·Pt·Ph·Pw] and holds one kernel
[N, C, Pt, Ph, Pw]. A kernel that slides over a volume is refused, with what was seen.
"""

from __future__ import annotations

from functools import partial

import torch

from flashrt.host.discovery.near_miss import PATCH_PROJECTION, Found, NearMiss
from flashrt.host.discovery.projection import held
from flashrt.host.discovery.sample import Observed, signs
from flashrt.host.discovery.trace import Call
from flashrt.host.discovery.view import View
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

_ROUNDINGS = 64


def find(view: View) -> Found:
    """patch_projection seams, and kernels over volumes that are nearly one."""
    found = Found()
    for path, module in view.leaves:
        kernels = [(n, p) for n, p in held(module).items() if p.dim() in (4, 5)]
        if len(kernels) == 1 and path in view.seen.calls:
            judge = partial(_judge, path, module, kernels[0][0], view)
            found.look(path, PATCH_PROJECTION, judge)
    return found


def _judge(path: str, module: torch.nn.Module, name: str, view: View) -> Seam | NearMiss:
    kernel = module._parameters[name]
    assert kernel is not None
    biases = [(n, p) for n, p in held(module).items() if p.dim() == 1]
    calls = view.seen.calls[path]
    objection = _declared(module, kernel) or _supplied(calls, kernel)
    outer = _wrapper(path, calls, view)
    if objection is None and outer is None:
        what = "no module around it reads one flattened patch a row and returns one row for it"
        objection = (Reason.LAYOUT, what)
    bias = biases[0] if biases else None
    if objection is None and outer is not None:
        if not outer[1].contiguous:
            objection = (Reason.LAYOUT, "it reads a view that is not contiguous")
        elif not _computes(outer, kernel.detach(), bias[1].detach() if bias else None):
            what = "its output is not a patch times the kernel (+ bias)"
            objection = (Reason.STRUCTURE, what)
    if objection is not None:
        return NearMiss.of(path, PATCH_PROJECTION, *objection)
    assert outer is not None
    prefix = f"{path}." if path else ""
    weights = {"weight": prefix + name} | ({"bias": prefix + bias[0]} if bias else {})
    sizes = dict(zip(("N", "C", "Pt", "Ph", "Pw"), map(int, kernel.shape), strict=True))
    return Seam(
        id=outer[0],
        structure=PATCH_PROJECTION,
        members={"self": outer[0]},
        variant={"bias": "present" if bias else "none"},
        dims=sizes,
        weights=weights,
    )


def _declared(module: torch.nn.Module, kernel: torch.Tensor) -> tuple[Reason, str] | None:
    """What the module declares of how its kernel moves that a whole patch would not need."""
    size = tuple(kernel.shape[2:])
    stride = getattr(module, "stride", size)
    dilation = getattr(module, "dilation", ())
    padding = getattr(module, "padding", ())
    groups = getattr(module, "groups", 1)
    found: tuple[Reason, str] | None = None
    if kernel.dim() == 4:
        what = f"its kernel {tuple(kernel.shape)} has no time axis and slides over an image"
        found = (Reason.LAYOUT, what)
    elif groups != 1:
        found = (Reason.STRUCTURE, f"its channels are in {groups} groups")
    elif isinstance(stride, tuple) and any(s < k for s, k in zip(stride, size, strict=True)):
        found = (Reason.STRUCTURE, f"its patches overlap: {size} moved by {stride}")
    elif isinstance(stride, tuple) and stride != size:
        found = (Reason.STRUCTURE, f"its patches leave gaps: {size} moved by {stride}")
    elif any(d != 1 for d in dilation):
        found = (Reason.STRUCTURE, f"its kernel is dilated by {dilation}")
    elif (isinstance(padding, str) and padding != "valid") or any(map(_moves, padding)):
        found = (Reason.STRUCTURE, f"its volume is padded by {padding}")
    return found


def _supplied(calls: list[Call], kernel: torch.Tensor) -> tuple[Reason, str] | None:
    """What was seen of its input that is not one whole patch an item."""
    for call in calls:
        if call.input is None or call.output is None:
            return Reason.LAYOUT, "it does not read and return one tensor"
        volume = call.input.shape[1:]
        if tuple(volume) != tuple(kernel.shape[1:]):
            what = f"it reads an ordinary volume {tuple(volume)}, not one patch an item"
            return Reason.STRUCTURE, what
        if call.output.shape[1:] != (kernel.shape[0], 1, 1, 1):
            return Reason.STRUCTURE, "it does not return one vector an item"
    return None


def _wrapper(path: str, calls: list[Call], view: View) -> tuple[str, Observed, Observed] | None:
    """The innermost module around one call that reads flattened patches and returns rows."""
    if len(calls) != 1 or calls[0].input is None:
        return None
    count = calls[0].input.shape[0]
    inner, parts = calls[0], path.split(".")
    for depth in range(len(parts) - 1, 0, -1):
        around = ".".join(parts[:depth])
        outer = view.seen.one(around)
        if outer is None or not outer.holds(inner) or outer.input is None or outer.output is None:
            continue
        x, y = outer.input, outer.output
        flat = len(x.shape) == 2 and len(y.shape) == 2 and x.shape[0] == y.shape[0] == count
        return (around, x, y) if flat and outer.plain else None
    return None


def _moves(side: object) -> bool:
    """Whether one side's padding is a number above none; a name's letters are not."""
    return isinstance(side, int) and side != 0


def _computes(
    outer: tuple[str, Observed, Observed], kernel: torch.Tensor, bias: torch.Tensor | None
) -> bool:
    """Whether the rows that were kept, and the signed sum of all rows, are patches times kernel."""
    _, x, y = outer
    flat = kernel.flatten(1)
    if x.width != flat.shape[1] or y.width != flat.shape[0] or not bool(x.rows.any()):
        return False
    rows = [(x.rows, y.rows, x.rows.abs(), 1.0, 1.0)]
    if x.sketch is not None and y.sketch is not None:
        count = x.shape[0]
        size = x.sketch.abs() + x.rows.abs().mean(0) * count**0.5
        total = float(signs(count, x.kept).sum())
        rows.append((x.sketch[None], y.sketch[None], size[None], total, count**0.5))
    elif len(x.rows) != x.shape[0]:
        return False  # some rows were not looked at
    tolerance = min(_ROUNDINGS * torch.finfo(y.dtype).eps, 0.05)
    weight = flat.double()
    for source, made, size, times, most in rows:
        want, bound = source.double() @ weight.T, size.double() @ weight.abs().T
        if bias is not None:
            want, bound = want + times * bias.double(), bound + most * bias.double().abs()
        if not bool(((made.double() - want).abs() <= tolerance * bound + 1e-30).all()):
            return False
    return True
