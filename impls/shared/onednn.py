"""oneDNN's int8 product behind an operator of ours, because Inductor lowers its own only when the
packed matrix is a frozen constant."""

from __future__ import annotations

import torch

OFFSET = 128

torch.library.define(
    "flashrt::onednn_int8",
    "(Tensor x, Tensor packed, int width) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _product(x: torch.Tensor, packed: torch.Tensor, width: int) -> torch.Tensor:
    ones = torch.ones(width)
    zeros = torch.zeros(width, dtype=torch.int32)
    return torch.ops.onednn.qlinear_pointwise(
        x, 1.0, OFFSET, packed, ones, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )


torch.library.impl("flashrt::onednn_int8", "CPU")(_product)
torch.library.impl("flashrt::onednn_int8", "MkldnnCPU")(_product)


@torch.library.register_fake("flashrt::onednn_int8")
def _fake(x: torch.Tensor, packed: torch.Tensor, width: int) -> torch.Tensor:
    return x.new_empty(x.shape[0], width, dtype=torch.float32)


def pack(levels: torch.Tensor) -> torch.Tensor:
    """An int8 matrix [N, K] in oneDNN's layout."""
    return torch.ops.onednn.qlinear_prepack(levels, None)


def product(steps: torch.Tensor, packed: torch.Tensor, width: int) -> torch.Tensor:
    """Integers in ±127 held as float32 [M, K] times a packed matrix [N, K]: sums, float32 [M, N].

    ``width`` is N. Without VNNI the sums are exact only while the matrix stays in ±63.
    """
    return torch.ops.flashrt.onednn_int8((steps + OFFSET).to(torch.uint8), packed, width)


def runs() -> bool:
    """Whether the build has oneDNN's int8 product and it gives the right sums here."""
    if not torch.backends.mkldnn.is_available():
        return False
    matrix = torch.full((16, 64), 63, dtype=torch.int8)
    try:
        sums = product(torch.full((2, 64), 127.0), pack(matrix), 16)
    except (RuntimeError, AttributeError):
        return False
    return bool((sums == 64 * 63 * 127.0).all())
