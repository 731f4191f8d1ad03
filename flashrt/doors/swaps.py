"""``auto_swaps``: discovers, calibrates and binds. It builds and does not judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.doors.observe import Feed, feed_of
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt.calibration.precision_spec import ModelPrecisionSpec
    from flashrt.calibration.reduce import PointRecord, Reduction
    from flashrt.doors.chains import Chain
    from flashrt.scheme.overrides import Overrides
    from flashrt_runtime.swap import Swap


@dataclass(frozen=True)
class Measured:
    """A reduction as a scheme reads it; it belongs to this process and has no receipt."""

    reduction: Reduction
    digest: str = ""

    @property
    def limit(self) -> float:
        """The scale ceiling."""
        return float(self.reduction.limit)

    def of(self, seam: Seam) -> dict[str, PointRecord]:
        """The seam's points by name."""
        return {p.address.point: p for p in self.reduction.points if p.address.seam == seam.id}


@dataclass(frozen=True)
class Sampling:
    """How observations become scales: the arguments every door shares."""

    percentile: float = 99.9
    max_samples: int | None = None
    verbose: bool = False
    overrides: Overrides | None = None


@dataclass(frozen=True)
class SwapPlan:
    """What could be bound.

    ``swaps`` go to ``swap.attach``. ``precision_spec`` is what each seam is stored and computed in,
    with the identity of the model and of the data behind the scales.
    ``notes["calibration"]`` says method, samples, percentile (asked and effective) and dispersion.
    ``kept`` are the seams that stay the host's, with the reason, and ``refusals`` the near misses.
    ``chains`` are the negotiated ones: their swaps are attached whole or not at all.
    """

    scheme: str
    swaps: tuple[Swap, ...]
    precision_spec: ModelPrecisionSpec
    notes: Mapping[str, Any]
    kept: tuple[Because, ...]
    refusals: tuple[Because, ...]
    chains: tuple[Chain, ...] = ()


def auto_swaps(
    model: torch.nn.Module,
    forward: Callable[..., Any] | Sequence[Callable[[], Any]],
    *,
    observations: Sequence[Any] | None = None,
    scheme: str = "auto",
    percentile: float = 99.9,
    max_samples: int | None = None,
    verbose: bool = False,
    overrides: str | Path | Overrides | None = None,
) -> SwapPlan:
    """Build the swaps of a scheme for this model from what ``forward`` shows of it.

    ``forward()`` runs the model once (one sample); with ``observations``, ``forward(observation)``
    does; a list of closures is one sample each. The form of every seam is chosen for the rows that
    were observed there. Nothing is attached and nothing is judged: whoever attaches owns the gate
    and reads the ledger. ``overrides`` is a ``flashrt.scale_overrides/1`` file, or one that was
    read: its scales stand in place of the calibrated ones. Raises :class:`Refusal` as discovery,
    calibration and binding do, and :class:`InputError` for a file that is no such file.
    """
    asked = Sampling(percentile, max_samples, verbose, stated(overrides))
    return plan_swaps(model, feed_of(forward, observations), scheme, asked)


def stated(overrides: str | Path | Overrides | None) -> Overrides | None:
    """Scales that a person states, read where a path was given. Raises :class:`InputError`."""
    from flashrt.scheme.overrides import Overrides

    if isinstance(overrides, (str, Path)):
        return Overrides.read(Path(overrides))
    return overrides


def plan_swaps(
    model: torch.nn.Module,
    feed: Feed,
    scheme: str,
    asked: Sampling,
    structure: str = "",
) -> SwapPlan:
    """:func:`auto_swaps` over a feed; ``structure`` (``name@version``) leaves the others out."""
    from flashrt.calibration.collect import collect
    from flashrt.calibration.reduce import reduce
    from flashrt.calibration.run import choose
    from flashrt.calibration.summary import summary
    from flashrt.doors.chains import Where, linked, negotiate
    from flashrt.doors.identity import artifact_of, data_of, device_name, dtypes
    from flashrt.host.discovery import discover
    from flashrt.host.seams import emitting, served, spec_digests
    from flashrt.scheme.needs import finer
    from flashrt.scheme.plan import plan
    from flashrt.scheme.precision import precision_spec
    from flashrt.scheme.registry import get, resolve
    from flashrt_runtime.activate import make_swap

    found = discover(model, lambda: feed.run(feed.observations[0])).require(structure)
    seams = served(found.of(structure) if structure else found.seams)
    device = next(model.parameters()).device
    place = device_name(device)
    chosen = choose(feed.observations, asked.max_samples, seed=0)
    samples = collect(
        model,
        seams,
        chosen,
        feed.run,
        statistics=finer(get(resolve(scheme, place)), seams),
        percentile=asked.percentile,
    )
    reduction = reduce(samples, asked.percentile)
    rows = _rows(samples)
    artifact, tensors = artifact_of(model), model.state_dict()
    measured = Measured(reduction)
    of = dtypes(tensors)
    settled = plan(
        scheme,
        seams,
        measured,
        device=place,
        rows=rows[1],
        dtype=of,
        overrides=asked.overrides,
    )
    runs = [lambda one=one: feed.run(one) for one in chosen]
    norms = () if structure else emitting(found.seams)
    negotiated = negotiate(settled, norms, Where(place, rows[1], of), model, runs)
    made, chains = negotiated.plan, negotiated.chains
    bound = [
        make_swap(one.seam, impl, one.record()["scales"], tensors, _band(impl, rows), device=device)
        for one in made.bound
        if (impl := one.impl) is not None
    ]
    kept = [s.record()["reason"] for s in made.seams if s.record()["reason"]]
    line = summary(reduction, "observations")
    if asked.verbose:
        print(line)
    return SwapPlan(
        scheme=made.scheme,
        swaps=linked(bound, chains),
        precision_spec=precision_spec(
            made,
            model_artifact=artifact,
            binding=None,
            specs=spec_digests([one.seam for one in made.seams]),
            workload=data_of(chosen, reduction),
        ),
        notes={
            "calibration": {
                "method": "max over calls in a sample, percentile over samples",
                "samples": reduction.samples,
                "percentile": {"asked": reduction.asked, "effective": reduction.effective},
                "dispersion": {
                    p.address.name: p.dispersion for p in reduction.points if p.amax is not None
                },
                "summary": line,
            },
            "rows": list(rows),
        },
        kept=(*(Because.from_record(r) for r in kept), *negotiated.refused),
        refusals=tuple(miss.because for miss in found.refusals),
        chains=chains,
    )


def _band(impl: Mapping[str, str], seen: tuple[int, int]) -> tuple[int, int]:
    """The observed rows that the chosen form serves; others run the host and are dispatched."""
    from flashrt_runtime.impl_loader import find

    low, high = find(impl).rows
    return max(seen[0], low), seen[1] if high is None else min(seen[1], high)


def _rows(samples: Any) -> tuple[int, int]:
    """The fewest and the most rows that any point saw in one call."""
    seen = [o.rows for o in samples.observations if o is not None]
    if not seen:
        raise Refusal(Reason.NEVER_CALLED, "the forward reached no point of any seam")
    return min(low for low, _ in seen), max(high for _, high in seen)
