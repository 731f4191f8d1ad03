"""From parity windows to the numbers that bands, floors and people look at.

Distribution outputs (logits) are judged by token agreement and divergence, value outputs by
cosine, tokens by identity. The first two also carry a metric that sees scale, because neither an
argmax nor a cosine does: an output of half the size agrees perfectly.

Under the race's first protocol every other token than the host's first counts against the
agreement. Since the second one a token that the host itself cannot tell from its first (a near-tie)
counts as agreeing: the plain share stays beside it as ``top1_strict``, and ``near_ties`` counts
the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashrt.race.protocol import CURRENT, Protocol

# Which way a metric is better. A floor on a metric whose way is down is a ceiling.
DIRECTIONS: Mapping[str, str] = {
    "top1_agreement": "up",
    "top1_strict": "up",
    "token_identity": "up",
    "cosine": "up",
    "worst_value": "up",
    "kl_mean": "down",
    "kl_max": "down",
    "max_abs": "down",
    "perplexity_ratio": "down",
}
# The pooled norm of each treated window over the host's. This catches an output of another size
# (half, double), which neither an argmax nor a cosine sees, and nothing else: how good a
# quantisation is, is the bands' question. The bounds are the geometric middle between "the same"
# and "half or double". Static INT8 of every linear of SmolLM2, in band `low`, was measured at up to
# 1.32 a window while its single rows reach 0.25 and 3.2; so rows are reported, windows judged.
SCALE_BOUNDS = (0.7071, 1.4142)


@dataclass(frozen=True)
class Window:
    """Parity of one frame. Metrics are None when a value in either arm was not finite.

    ``units`` is the number of judged positions (distribution, tokens) or elements (value).
    ``agree`` counts positions with the host's token; the negative log-likelihood sums (nats) exist
    for distributions only; ``kl_sum`` and ``kl_max`` are in nats; ``norm_ratio`` is the range over
    rows, ``scale`` the pooled one. ``rows_alike`` says that several rows are all the same;
    ``treated`` is the digest of the treated output, None in receipts that do not hold it.
    """

    frame: str
    units: int
    nonfinite: int
    distinct: int
    cosine: float | None
    max_abs: float | None
    norm_ratio: tuple[float, float] | None
    scale: float | None
    agree: int = 0
    near_ties: int = 0
    kl_sum: float | None = None
    kl_max: float | None = None
    nll_host_sum: float | None = None
    nll_treated_sum: float | None = None
    rows_alike: bool = False
    treated: str | None = None
    first_difference: int | None = None

    def agreeing(self, protocol: Protocol) -> int:
        """Positions with the host's token, or since protocol 2 with one that ties with it."""
        return self.agree if protocol is Protocol.EVEN else self.agree + self.near_ties

    def reading(self, metric: str, protocol: Protocol) -> float:
        """The window's own value of the banded metric; NaN where it has none."""
        if metric == "cosine":
            return math.nan if self.cosine is None else self.cosine
        return self.agreeing(protocol) / self.units


def _exp(nats: float) -> float | None:
    return math.exp(nats) if nats < 700 else None


def _known(values: Sequence[float | None]) -> list[float] | None:
    found = [v for v in values if v is not None]
    return found if found and len(found) == len(values) else None


def summarise(
    windows: Sequence[Window], metric: str, protocol: Protocol = CURRENT
) -> dict[str, Any]:
    """Metrics over all windows: counts pooled, extremes taken, the worst frame named.

    A metric that some window lacks is None. Perplexities are exp of the mean negative
    log-likelihood; ``perplexity_ratio`` is treated over host. ``protocol`` decides which metrics
    there are: a receipt of an earlier one is recomputed as it was written.
    """
    units = sum(w.units for w in windows)
    distribution = metric == "top1_agreement"
    agree = sum(w.agreeing(protocol) for w in windows) / units
    strict = sum(w.agree for w in windows) / units
    newer = {
        "top1_strict": strict if distribution else None,
        "token_identity": strict if metric == "token_identity" else None,
    }
    cosines = _known([w.cosine for w in windows])
    scales = _known([w.scale for w in windows])
    kl, kl_max = _known([w.kl_sum for w in windows]), _known([w.kl_max for w in windows])
    peaks = _known([w.max_abs for w in windows])
    ranges = [w.norm_ratio for w in windows if w.norm_ratio is not None]
    host = _known([w.nll_host_sum for w in windows])
    treated = _known([w.nll_treated_sum for w in windows])
    perplexities = [_exp(math.fsum(n) / units) if n else None for n in (host, treated)]
    gap = (math.fsum(treated) - math.fsum(host)) / units if host and treated else None
    worst = min(windows, key=lambda w: (w.reading(metric, protocol), -(w.kl_max or 0.0), w.frame))
    measured = cosines or metric == "token_identity"
    return ({} if protocol is Protocol.EVEN else newer) | {
        "units": units,
        "windows": len(windows),
        "top1_agreement": agree if distribution else None,
        "near_ties": sum(w.near_ties for w in windows) if distribution else None,
        "kl_mean": math.fsum(kl) / units if kl else None,
        "kl_max": max(kl_max) if kl_max else None,
        "cosine": min(cosines) if cosines else None,
        "max_abs": max(peaks) if peaks else None,
        "norm_ratio": [min(r[0] for r in ranges), max(r[1] for r in ranges)] if ranges else None,
        "scale": [min(scales), max(scales)] if scales else None,
        "worst_window": worst.frame,
        "worst_value": worst.reading(metric, protocol) if measured else None,
        "perplexity_host": perplexities[0],
        "perplexity_treated": perplexities[1],
        "perplexity_ratio": _exp(gap) if gap is not None else None,
    }


def meets(metric: str, value: float | None, bound: float) -> bool:
    """Whether a metric is on the good side of a bound. None and NaN never are."""
    if value is None:
        return False
    return value >= bound if DIRECTIONS[metric] == "up" else value <= bound
