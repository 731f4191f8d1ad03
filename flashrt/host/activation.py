"""Which activation a gated product used, told from observed numbers and never from a name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

KNOWN = ("silu", "gelu_tanh")


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


def fitting(gate: torch.Tensor, up: torch.Tensor, product: torch.Tensor) -> list[str]:
    """Names of the functions f for which f(gate) * up is the observed product, in its rounding.

    All three tensors are [..., F]. The tolerance is eight roundings of |gate·up| per element in
    the host's dtype, so functions that differ by less on these values are all returned.
    """
    import torch

    if not (gate.shape == up.shape == product.shape) or not product.numel():
        return []
    bound = (gate.double() * up.double()).abs().clamp(min=0)
    tolerance = 8 * torch.finfo(product.dtype).eps
    out = []
    for name, function in functions().items():
        # sigmoid is not small where its argument is, so its rounding is relative to |up| alone
        scale = up.double().abs() if name == "sigmoid" else bound
        want = function(gate) * up
        difference = (product.double() - want.double()).abs()
        if bool((difference <= tolerance * scale + 1e-30).all()):
            out.append(name)
    return out
