"""Defines operators ``flashrt::…``: one node of a captured graph per seam, and then what it is
made of, so that the compiler sees inside."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Product = Callable[[torch.Tensor, list[torch.Tensor], str], torch.Tensor]


def define(name: str, schema: str, body: Callable[..., torch.Tensor]) -> None:
    """Define ``name`` (``flashrt::…``) with an implementation that every backend decomposes.

    The schema's last argument is ``str seam``. It changes nothing in the result; a graph that the
    tracer hands to its backend carries it, which is how path evidence finds the seam.
    """
    torch.library.define(name, schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(name, "CompositeImplicitAutograd")(body)


def flat(x: torch.Tensor) -> torch.Tensor:
    """``x`` [..., D] as [rows, D]."""
    return x.reshape(-1, x.shape[-1])


def plus(y: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """``y`` with the bias added when there is one."""
    return y if bias is None else y + bias


def activated(gate: torch.Tensor, activation: str) -> torch.Tensor:
    """``silu`` or ``gelu_tanh`` of the gate."""
    return F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")


def define_linear(name: str, product: Product) -> None:
    """``name(x [..., K], packed, bias [N] or None, kernel, seam) -> [..., N]``."""

    def body(
        x: torch.Tensor,
        packed: list[torch.Tensor],
        bias: torch.Tensor | None,
        kernel: str,
        seam: str,
    ) -> torch.Tensor:
        y = plus(product(flat(x), packed, kernel), bias)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    define(name, "(Tensor x, Tensor[] packed, Tensor? bias, str kernel, str seam) -> Tensor", body)


def define_ffn(name: str, product: Product) -> None:
    """``name(x [..., D], packed, biases, recipe, seam) -> [..., D]``.

    ``packed`` are the matrices gate, up and down one after another, each of the same number of
    tensors; ``biases`` are three vectors or None; ``recipe`` is ``activation:kernel``.
    """

    def body(
        x: torch.Tensor,
        packed: list[torch.Tensor],
        biases: list[torch.Tensor | None],
        recipe: str,
        seam: str,
    ) -> torch.Tensor:
        activation, _, kernel = recipe.partition(":")
        each = len(packed) // 3
        gate, up, down = (packed[i * each : (i + 1) * each] for i in range(3))
        rows = flat(x)
        opened = plus(product(rows, gate, kernel), biases[0])
        raised = plus(product(rows, up, kernel), biases[1])
        hidden = activated(opened, activation) * raised
        y = plus(product(hidden, down, kernel), biases[2])
        return y.reshape(*x.shape[:-1], y.shape[-1])

    define(
        name,
        "(Tensor x, Tensor[] packed, Tensor?[] biases, str recipe, str seam) -> Tensor",
        body,
    )


def define_plain(name: str) -> None:
    """``name(x [..., K], weight [N, K], bias [N] or None, seam) -> [..., N]`` in the dtype of x."""

    def body(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, seam: str
    ) -> torch.Tensor:
        y = F.linear(flat(x), weight, bias)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    define(name, "(Tensor x, Tensor weight, Tensor? bias, str seam) -> Tensor", body)
