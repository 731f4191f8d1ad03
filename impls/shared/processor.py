"""What this processor can do, as far as an impl's choice of kernel depends on it."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Processor:
    """``vnni``: int8 products accumulate in 32 bits. ``wide``: 512-bit vectors."""

    vnni: bool
    wide: bool

    @classmethod
    def here(cls) -> Processor:
        """This machine's; a flag that cannot be read counts as absent."""
        flags = torch.cpu.get_capabilities()
        return cls(
            vnni=bool(flags.get("avx512_vnni", False)),
            wide=bool(flags.get("avx512_f", False) and flags.get("avx512_bw", False)),
        )
