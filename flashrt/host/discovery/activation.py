"""Which activation a product used, told from observed numbers and never from a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

KNOWN = ("silu", "gelu_tanh")
_VALUES = 128  # of each product that are looked at, spread evenly

Triple = tuple["torch.Tensor", "torch.Tensor | None", "torch.Tensor"]


def functions() -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Every function that is tried, by name; the catalog knows those in :data:`KNOWN`."""
    import torch
    from torch.nn import functional as f

    return {
        "silu": f.silu,
        "gelu_tanh": partial(f.gelu, approximate="tanh"),
        "gelu_erf": partial(f.gelu, approximate="none"),
        "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
        "relu": f.relu,
        "relu_squared": lambda x: f.relu(x).square(),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "identity": lambda x: x,
    }


def fitting(
    triples: Sequence[Triple], *, whole: bool = False, among: Collection[str] = ()
) -> list[list[str]]:
    """For each (gate, up, product): the functions f for which f(gate) * up is the product.

    The three tensors have one shape; an ``up`` of ``None`` is all ones. The tolerance is eight
    roundings of |gate·up| per element in the host's dtype, so functions that differ by less on
    these values are all returned. Values are spread evenly over the tensors, at most 255 each;
    ``whole`` looks at all. ``among`` names the functions to try, all of them where it is empty.
    """
    import torch

    out: list[list[str]] = [[] for _ in triples]
    tried = {name: f for name, f in functions().items() if not among or name in among}
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, (gate, up, product) in enumerate(triples):
        whole = gate.shape == product.shape and (up is None or up.shape == product.shape)
        if whole and product.numel():
            groups.setdefault((product.numel(), product.dtype, product.device), []).append(i)
    for members in groups.values():
        gates = torch.stack([_spread(triples[i][0], whole) for i in members])
        ups = torch.stack([_up(triples[i], whole) for i in members])
        products = torch.stack([_spread(triples[i][2], whole) for i in members])
        wide = torch.promote_types(products.dtype, torch.float32)
        tolerance = 8 * torch.finfo(products.dtype).eps
        bound = (gates * ups).abs().to(wide)
        for name, function in tried.items():
            # sigmoid is not small where its argument is, so its rounding is relative to |up| alone
            scale = ups.abs().to(wide) if name == "sigmoid" else bound
            want = function(gates) * ups
            difference = (products.to(wide) - want.to(wide)).abs()
            near = (difference <= tolerance * scale + 1e-30).all(dim=1).tolist()
            for i, fits in zip(members, near, strict=True):
                if fits:
                    out[i].append(name)
    return out


def _spread(tensor: torch.Tensor, whole: bool) -> torch.Tensor:
    flat = tensor.reshape(-1)
    step = 1 if whole else max(1, flat.shape[0] // _VALUES)
    return flat[:: step | 1]  # an odd step does not meet the same features in every row


def _up(triple: Triple, whole: bool) -> torch.Tensor:
    import torch

    gate, up, _ = triple
    values = _spread(gate if up is None else up, whole)
    return torch.ones_like(values) if up is None else values
