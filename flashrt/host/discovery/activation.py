"""Which activation a product used, told from observed numbers and never from a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

KNOWN = ("silu", "gelu_tanh")
_VALUES = 128  # of each product that are looked at first, spread evenly

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


def fitting(triples: Sequence[Triple], *, among: Collection[str] = ()) -> list[list[str]]:
    """For each (gate, up, product): the functions f for which f(gate) * up is the product.

    The three tensors have one shape; an ``up`` of ``None`` is all ones. The tolerance is eight
    roundings of |gate·up| per element in the host's dtype, so functions that differ by less on
    these values are all returned. A few values, spread evenly, rule out; every value decides.
    ``among`` names the functions to try, all of them where it is empty.
    """
    tried = [name for name in functions() if not among or name in among]
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, (gate, up, product) in enumerate(triples):
        whole = gate.shape == product.shape and (up is None or up.shape == product.shape)
        if whole and product.numel():
            groups.setdefault((product.numel(), product.dtype, product.device), []).append(i)
    out: list[list[str]] = [[] for _ in triples]
    for members in groups.values():
        some = _spread(triples[members[0]][2].numel())
        left = _near(triples, dict.fromkeys(members, tried), some)
        for i, names in (left if some == 1 else _near(triples, left, 1)).items():
            out[i] = names
    return out


def _near(
    triples: Sequence[Triple], tried: Mapping[int, Sequence[str]], step: int
) -> dict[int, list[str]]:
    """Of the functions ``tried`` for each triple: those that fit every ``step``-th value."""
    import torch

    if not tried:
        return {}
    ones = torch.ones_like(triples[next(iter(tried))][2])
    three = [
        (gate, ones if up is None else up, out) for gate, up, out in map(triples.__getitem__, tried)
    ]
    # gate and up are in two triples, one for either order
    some = {id(one): one.reshape(-1)[::step] for each in three for one in each}
    gates, ups, products = (
        torch.stack([some[id(one)] for one in each]) for each in zip(*three, strict=True)
    )
    wide = torch.promote_types(products.dtype, torch.float32)
    tolerance = 8 * torch.finfo(products.dtype).eps
    bound = (gates * ups).abs().to(wide).mul_(tolerance).add_(1e-30)
    near = {}
    for name, function in functions().items():
        if not any(name in names for names in tried.values()):
            continue
        # sigmoid is not small where its argument is, so its rounding is relative to |up| alone
        most = ups.abs().to(wide) * tolerance + 1e-30 if name == "sigmoid" else bound
        off = (products.to(wide) - (function(gates) * ups).to(wide)).abs_()
        near[name] = (off <= most).all(dim=1)
    fit = torch.stack(list(near.values()), dim=1).tolist()
    out = {}
    for (i, names), told in zip(tried.items(), fit, strict=True):
        left = [name for name, agrees in zip(near, told, strict=True) if agrees and name in names]
        if left:
            out[i] = left
    return out


def _spread(count: int) -> int:
    """The step between the values that are looked at first."""
    return max(1, count // _VALUES) | 1  # an odd one does not meet the same features in every row
