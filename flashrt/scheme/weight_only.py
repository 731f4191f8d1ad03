"""Schemes that leave activations alone, so that nothing is calibrated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flashrt.calibration.reduce import PointRecord
from flashrt.calibration.statistic import Statistic
from flashrt.host.discovery.near_miss import DECODER_FFN, LINEAR_PROJ
from flashrt.scheme.decision import Bind, Decision, KeepHost, Site
from flashrt.scheme.structures import DENSE
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

BY_PARTS = "its members are bound one by one"
HEAD = "the output head keeps the host's precision"
DECODE_ROWS = 16


@dataclass(frozen=True)
class FusionOnly:
    """``none`` and ``bf16_structural``: quantisation off. Fusions are not asked, and bind."""

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        """Nothing is measured."""
        return dict.fromkeys(seam.points)

    def decide(self, seam: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        """Keep whatever there would be to quantise."""
        return KeepHost.of(seam, "the scheme quantises nothing")


@dataclass(frozen=True)
class Fp16Weight:
    """``fp16_weight``: weights rounded to fp16, at every dense seam, the output head included."""

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        """Nothing is measured."""
        return dict.fromkeys(seam.points)

    def decide(self, seam: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        """Bind dense structures."""
        return Bind() if seam.structure in DENSE else KeepHost.of(seam, BY_PARTS)


@dataclass(frozen=True)
class Decode:
    """Weights alone, in the decode band only, at ``structures``; ``why`` the others are kept.

    The output head keeps the host's precision, because its rounding reaches every logit
    unattenuated.
    """

    structures: tuple[str, ...]
    why: str
    rows: int = DECODE_ROWS

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        """Nothing is measured: activations stay as they are."""
        return dict.fromkeys(seam.points)

    def decide(self, seam: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        """Bind these structures while the rows are in the band."""
        if seam.structure not in self.structures:
            return KeepHost.of(seam, self.why)
        if site.head:
            return KeepHost.of(seam, HEAD)
        if not site.rows <= self.rows:
            what = f"{site.rows} rows are above the decode band of {self.rows}"
            return KeepHost.of(seam, what, Reason.SHAPE)
        return Bind()


W8A16 = Decode((DECODER_FFN, LINEAR_PROJ), BY_PARTS)
W4A16 = Decode(
    (DECODER_FFN,), "four-bit weights are for decoder_ffn only until a measurement says otherwise"
)
