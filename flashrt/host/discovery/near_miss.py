"""What a finder hands back: seams, and the places that it looked at and refused, with reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason

ADALN_PRODUCER = "adaln_producer@1"
ATTENTION_CORE = "attention_core@1"
CADENCE_STATIC = "cadence_static@1"
DECODER_BLOCK = "decoder_block@1"
DECODER_FFN = "decoder_ffn@1"
LINEAR_PROJ = "linear_proj@1"
MODNORM_QKV_CHAIN = "modnorm_qkv_chain@1"
NORM_FUSED = "norm_fused@1"
PATCH_PROJECTION = "patch_projection@1"
QKV_PACK = "qkv_pack@1"
VISION_FFN = "vision_ffn@1"


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


@dataclass
class Found:
    """Seams and near misses of one finder, in the order in which they were met."""

    seams: list[Seam] = field(default_factory=list)
    misses: list[NearMiss] = field(default_factory=list)

    def add(self, result: Seam | NearMiss | None) -> None:
        """Put a result where it belongs; ``None`` is nothing like the structure."""
        if isinstance(result, Seam):
            self.seams.append(result)
        elif result is not None:
            self.misses.append(result)

    def look(self, path: str, structure: str, judge: Callable[[], Seam | NearMiss | None]) -> None:
        """Put what ``judge`` returns where it belongs; where it raises, refuse ``path`` alone."""
        try:
            self.add(judge())
        except Exception as error:  # a host's tensors and modules may raise anything
            self.add(raised(path, structure, error))


def raised(path: str, structure: str, error: Exception) -> NearMiss:
    """The refusal of a module that could not be looked at."""
    what = (str(error).splitlines() or ["no message"])[0]
    detail = f"looking at it raised {type(error).__name__}: {what}"
    return NearMiss.of(path, structure, Reason.HOST, detail)
