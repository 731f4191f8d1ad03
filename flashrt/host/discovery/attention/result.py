"""What one finder says of one site: a seam with the plan of its adapter, or a near miss."""

from __future__ import annotations

from dataclasses import dataclass, field

from flashrt.host.discovery.near_miss import NearMiss
from flashrt_runtime.adapters.plan import Plan
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

ATTENTION_CORE = "attention_core@1"
QK_NORM_ROPE = "qk_norm_rope@1"
QKV_ROPE = "qkv_rope@1"
GATED_DELTA_CORE = "gated_delta_core@1"


@dataclass(frozen=True)
class Found:
    """``plans`` are by seam id, or by ``PATH.two_way`` for a pair."""

    seams: tuple[Seam, ...] = ()
    misses: tuple[NearMiss, ...] = ()
    plans: dict[str, Plan] = field(default_factory=dict)


NOTHING = Found()


def miss(path: str, structure: str, reason: Reason, detail: str) -> Found:
    """One near miss and no seam."""
    return Found(misses=(NearMiss.of(path, structure, reason, detail),))


def named(path: str, rest: str) -> str:
    """A seam's id below a module's path."""
    return f"{path}.{rest}" if path else rest
