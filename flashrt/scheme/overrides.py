"""Scales that a person states: read from a file, checked by schema, put where a scheme binds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashrt.document.schema import require
from flashrt.document.yaml_source import load_yaml
from flashrt.scheme.decision import Bind, Decision
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class Overrides:
    """``scales[seam id][point]``, real value = scale x quantised value; the file's ``digest``."""

    scales: Mapping[str, Mapping[str, float]]
    digest: str

    @classmethod
    def read(cls, path: Path) -> Overrides:
        """Read ``flashrt.scale_overrides/1``, YAML or JSON.

        Raises :class:`InputError`, with file, line and path, for anything else; for a scale that
        is not a normal float32 above zero (0, −1, NaN and infinity are none) first of all.
        """
        document = load_yaml(path)
        require(document.value, "scale_overrides", document)
        scales = {
            seam: {point: float(value) for point, value in points.items()}
            for seam, points in document.value["seams"].items()
        }
        return cls(scales, document.digest)

    def require_known(self, seams: Mapping[str, Seam]) -> None:
        """Raise :class:`Refusal` (BINDING) for a seam or a point that the host does not have."""
        for seam_id, points in self.scales.items():
            seam = seams.get(seam_id)
            if seam is None:
                raise Refusal(Reason.BINDING, "the host has no such seam", subject=seam_id)
            for point in points:
                if point not in seam.points:
                    has = ", ".join(sorted(seam.points)) or "none"
                    what = f"the seam has no point {point!r}; it has {has}"
                    raise Refusal(Reason.BINDING, what, subject=seam_id)

    def apply(self, seam: Seam, decision: Decision) -> Decision:
        """The decision with the stated scales in place of the calibrated ones.

        An override replaces a scale and never makes one: raises :class:`Refusal` (CONFLICT) where
        the host is kept or the point has no static scale.
        """
        given = self.scales.get(seam.id)
        if not given:
            return decision
        if not isinstance(decision, Bind):
            raise Refusal(
                Reason.CONFLICT,
                f"the host is kept here ({decision.because.detail}), so no scale is used",
                subject=seam.id,
                do="take the override out",
            )
        idle = sorted(given.keys() - decision.scales.keys())
        if idle:
            raise Refusal(
                Reason.CONFLICT,
                f"the scheme gives {idle[0]} no static scale to override",
                subject=seam.id,
                do="take the override out",
            )
        return Bind({**decision.scales, **given}, tuple(sorted(given)))
