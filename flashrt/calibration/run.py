"""Calibrates: chooses frames, collects, reduces, and seals the receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flashrt.calibration.collect import Tell, collect, silent
from flashrt.calibration.receipt import Calibration, build
from flashrt.calibration.reduce import effective_percentile, reduce
from flashrt.calibration.sampling import stratify
from flashrt.calibration.statistic import Statistic, shown
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch


_MOST_SAMPLES = 2**53  # what a receipt can hold exactly


def choose(observations: Sequence[Any], max_samples: int | None, seed: int) -> list[Any]:
    """All observations, or ``max_samples`` of them, stratified anew (never the first ones).

    An observation has an ``id`` and ``strata``, coarsest first, and where the innermost stratum is
    an episode a ``position`` in it; without one, ids say which comes first.
    """
    whole = isinstance(max_samples, int) and not isinstance(max_samples, bool)
    if max_samples is not None and not (whole and 1 <= max_samples < _MOST_SAMPLES):
        raise Refusal(
            Reason.CONFLICT,
            f"max_samples is {shown(max_samples)}",
            do="give a whole number of frames, at least one, or leave it out",
        )
    ordered = sorted(observations, key=lambda o: (o.strata, getattr(o, "position", 0), o.id))
    if max_samples is None or max_samples >= len(ordered):
        return ordered
    strata = [o.strata for o in ordered]
    placed = all(hasattr(o, "position") for o in ordered)
    positions = [o.position for o in ordered] if placed else None
    return [ordered[i] for i in stratify(strata, max_samples, seed, positions=positions)]


def _forward(model: torch.nn.Module) -> Callable[[Any], object]:
    return lambda frame: model(frame.token_ids[None])


def calibrate(
    model: torch.nn.Module,
    seams: Sequence[Seam],
    observations: Sequence[Any],
    *,
    model_artifact: Mapping[str, Any],
    workload: Mapping[str, Any],
    specs: Mapping[str, str],
    binding: Mapping[str, str] | None = None,
    percentile: float = 99.9,
    max_samples: int | None = None,
    verbose: bool = False,
    seed: int = 0,
    run: Callable[[Any], object] | None = None,
    tell: Tell = silent,
    statistics: Mapping[tuple[str, str], Statistic | None] | None = None,
    mask: Callable[[Any], torch.Tensor | None] | None = None,
) -> Calibration:
    """Measure every point of ``seams`` over ``observations`` and reduce to one amax each.

    ``observations`` are frames (``id``, ``strata``, ``record()``, and ``token_ids`` [window] for
    the default ``run``, one plain forward). Within a frame the maximum over calls is kept; across
    frames the ``percentile``. ``workload`` is the Workload record; its ``frames`` are replaced by
    those that were used. ``verbose`` reports every point through ``tell``. ``statistics`` asks for
    more than the amax of the tensor at a (seam id, point), and ``mask(frame)`` says which positions
    count (padding does not): see :func:`flashrt.calibration.collect.collect`. The model is left as
    it was. Raises :class:`Refusal` (see :func:`flashrt.calibration.collect.collect`; PERCENTILE for
    a number that is not one), and then nothing was kept.
    """
    effective_percentile(percentile, 1)  # refuses a bad number before minutes are spent
    frames = choose(observations, max_samples, seed)
    held_out = {frame["id"] for frame in workload["held_out"]}
    shared = sorted(held_out & {frame.id for frame in frames})
    if shared:
        what = "a frame is in the calibration and in the held-out set"
        raise Refusal(Reason.CONFLICT, what, subject=shared[0])
    samples = collect(
        model,
        seams,
        frames,
        run or _forward(model),
        tell,
        statistics=statistics,
        percentile=percentile,
        mask=mask,
    )
    reduction = reduce(samples, percentile)
    if verbose:
        for point in reduction.points:
            value = "none" if point.amax is None else f"{point.amax:.6g}"
            tell("point", note=f"{point.address.name} amax {value} ({point.verdict.value})")
    by_id = {frame.id: frame.record() for frame in frames}
    return build(
        samples,
        reduction,
        model_artifact=model_artifact,
        binding=binding,
        seams=seams,
        specs=specs,
        workload={**workload, "frames": [by_id[name] for name in samples.frames]},
        max_samples=max_samples,
    )
