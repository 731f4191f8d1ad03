"""A kernel launch as data: a device launches what is compiled without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Launch:
    """One launch of a Triton kernel.

    ``types`` are the tensor and number parameters in order with Triton's type names (``*fp32``,
    ``i32``); ``constants`` the compile-time ones. Every pointer is 16-byte aligned, which both
    a launch and an offline compile declare. ``grid`` depends on the rows of the call:
    ``(block of rows or 1, number of column blocks)``.
    """

    kernel: str
    types: Mapping[str, str]
    constants: Mapping[str, int | float]
    warps: int
    stages: int
    row_block: int = 1
    column_blocks: int = 1
    fusion: bool = field(default=False)

    def grid(self, rows: int) -> tuple[int, int]:
        """Programs along rows and columns for this many rows."""
        return ((rows + self.row_block - 1) // self.row_block, self.column_blocks)

    def options(self) -> dict[str, int | bool]:
        """Compiler options, stated at a launch and at an offline compile alike."""
        return {
            "num_warps": self.warps,
            "num_stages": self.stages,
            "enable_fp_fusion": self.fusion,
        }
