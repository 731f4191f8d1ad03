"""Schemes that quantise weights and leave activations alone: nothing is calibrated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flashrt.calibration.reduce import PointRecord
from flashrt.calibration.statistic import Statistic
from flashrt.host.near_miss import DECODER_FFN, LINEAR_PROJ, QKV_PACK
from flashrt.scheme.decision import Bind, Decision, KeepHost, Site
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

DENSE = (DECODER_FFN, LINEAR_PROJ)
FUSION = (QKV_PACK,)


@dataclass(frozen=True)
class FusionOnly:
    """``none``: quantisation off; fusion structures bind as usual."""

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        """Nothing is measured."""
        return dict.fromkeys(seam.points)

    def decide(self, seam: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        """Bind fusion structures, keep everything else."""
        if seam.structure in FUSION:
            return Bind()
        return KeepHost.of(seam, "the scheme quantises nothing")


@dataclass(frozen=True)
class Fp16Weight:
    """``fp16_weight``: weights rounded to fp16, at every dense seam, the output head included."""

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        """Nothing is measured."""
        return dict.fromkeys(seam.points)

    def decide(self, seam: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        """Bind dense structures."""
        if seam.structure in DENSE:
            return Bind()
        return KeepHost.of(seam, "its members are bound one by one")


@dataclass(frozen=True)
class W8A16Decode:
    """``w8a16_decode``: INT8 weights with a scale a row, in the decode band only.

    Takes decoder_ffn and the projections of a layer; the output head keeps the host's precision,
    because its rounding reaches every logit unattenuated.
    """

    rows: int = 16

    def statistics(self, seam: Seam) -> Mapping[str, Statistic | None]:
        """Nothing is measured: activations stay as they are."""
        return dict.fromkeys(seam.points)

    def decide(self, seam: Seam, reduced: Mapping[str, PointRecord], site: Site) -> Decision:
        """Bind dense structures of layers while the rows are in the band."""
        if seam.structure not in DENSE:
            return KeepHost.of(seam, "its members are bound one by one")
        if site.head:
            return KeepHost.of(seam, "the output head keeps the host's precision")
        if site.rows > self.rows:
            what = f"{site.rows} rows are above the decode band of {self.rows}"
            return KeepHost.of(seam, what, Reason.SHAPE)
        return Bind()
