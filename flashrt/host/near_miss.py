"""A place that was looked at and refused: the structure it was looked at for, and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashrt_runtime.reason import Because, Reason

DECODER_FFN = "decoder_ffn@1"
LINEAR_PROJ = "linear_proj@1"
QKV_PACK = "qkv_pack@1"


@dataclass(frozen=True)
class NearMiss:
    """``path`` is the module looked at, empty for the whole model."""

    path: str
    structure: str
    because: Because

    @classmethod
    def of(cls, path: str, structure: str, reason: Reason, detail: str) -> NearMiss:
        """A near miss whose reason's subject is the path."""
        return cls(path, structure, Because(reason, detail, path))

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "path": self.path,
            "structure": self.structure,
            "because": self.because.record(),
        }
