"""Norms in a module tree, told by what they were seen to compute and never by a name.

A norm's output is compared, row by row, with four formulas whose statistics are fp32:
``rms_direct`` n·w, ``rms_offset`` n·(1 + w) with n = x/√(mean(x²) + eps); ``layer_affine`` n·w + b
and ``layer_identity`` n with n = (x − mean)/√(var + eps).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from flashrt.host.discovery.near_miss import NORM_FUSED, NearMiss, raised
from flashrt.host.discovery.norm_forms import (
    COMMON,
    KINDS,
    Batch,
    Form,
    Sample,
    batches,
    changed,
    chosen,
    epsilons,
    fits,
    nearly,
    resembling,
    row_scale_error,
)
from flashrt.host.discovery.probe import copy_of, likeness, run, unprobed
from flashrt.host.discovery.projection import Leaf, held
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.trace import Call, Trace
from flashrt_runtime.reason import Reason, Refusal

__all__ = ["KINDS", "Norm", "find_norms"]


@dataclass(frozen=True)
class Norm:
    """A module that normalises rows of width ``d`` with fp32 statistics.

    ``adds`` is whether it normalises the sum of two tensors that it is given, and returns the
    sum second. Keys are of the state dict, ``None`` where it has no such parameter.
    """

    path: str
    kind: str
    eps: float
    d: int
    weight_key: str | None
    bias_key: str | None
    adds: bool
    calls: tuple[Call, ...]

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of what it reads."""
        first = self.calls[0].input
        return first.dtype if first else None

    @property
    def variant(self) -> dict[str, str]:
        """The axes ``norm`` and ``eps`` of a spec."""
        return {"norm": self.kind, "eps": f"{self.eps:g}"}

    @property
    def weights(self) -> dict[str, str]:
        """State-dict keys by ``weight`` and ``bias``."""
        named = {"weight": self.weight_key, "bias": self.bias_key}
        return {slot: key for slot, key in named.items() if key}


class _Candidate(NamedTuple):
    """What may be a norm. ``at`` is the place of its first sample; there is one a call.

    ``eps`` are the numbers to try as such.
    """

    path: str
    module: torch.nn.Module
    weight: str | None
    bias: str | None
    calls: tuple[Call, ...]
    adds: bool
    eps: tuple[float, ...]
    samples: list[Sample]
    at: int

    @property
    def places(self) -> range:
        """The places of its samples."""
        return range(self.at, self.at + len(self.samples))

    def alike(self) -> Hashable:
        """Equal for norms of one code over equal numbers, whatever their weights are."""
        source, _ = _ends(self.calls[0], self.adds)
        seen = (source.shape, source.dtype, source.kept.device)
        return self.adds, self.weight, self.bias, seen, likeness(self.module)

    def key(self, name: str | None) -> str | None:
        prefix = f"{self.path}." if self.path else ""
        return prefix + name if name else None


def _some(seen: Observed) -> torch.Tensor:
    """The first and the last row; all that are kept in half precision, where more are needed."""
    rows = seen.rows
    count = rows.shape[0]
    return rows[:: count - 1] if count > 2 and rows.element_size() >= 4 else rows


def _ends(call: Call, adds: bool) -> tuple[Observed, Observed]:
    source = call.returned["1"] if adds else call.input
    result = call.returned["0"] if adds else call.output
    assert source is not None
    assert result is not None
    return source, result


def find_norms(leaves: Sequence[Leaf], seen: Trace) -> tuple[dict[str, Norm], list[NearMiss]]:
    """Norms by path, in call order, and modules that are nearly one with the reason."""
    norms: dict[str, Norm] = {}
    missed: list[NearMiss] = []
    try:
        norms, missed = _judged(leaves, seen)
    except Exception:  # one module's tensors refuse an operator: look at each by itself
        for leaf in leaves:
            try:
                one, objections = _judged([leaf], seen)
                norms |= one
                missed += objections
            except Exception as error:
                missed.append(raised(leaf[0], NORM_FUSED, error))
    ordered = sorted(norms.values(), key=lambda n: n.calls[0].order)
    return {n.path: n for n in ordered}, missed


def _judged(leaves: Sequence[Leaf], seen: Trace) -> tuple[dict[str, Norm], list[NearMiss]]:
    every: list[_Candidate] = []
    count = 0
    for path, module in leaves:
        found = _candidate(path, module, tuple(seen.calls.get(path, ())), count)
        if found is not None:
            every.append(found)
            count += len(found.samples)
    stacked = batches([sample for one in every for sample in one.samples])
    differ = changed(stacked)
    candidates = [one for one in every if _changes(one, differ)]
    fitted = _observed_fits(candidates, stacked)
    likely = [(one, forms) for one, forms in zip(candidates, fitted, strict=True) if forms]
    unlike = [one for one, forms in zip(candidates, fitted, strict=True) if not forms]
    missed = _unlike(unlike, stacked)
    norms: dict[str, Norm] = {}
    for (one, observed), forms in zip(likely, _settled(likely), strict=True):
        if any(row_scale_error(sample, *observed[0]) for sample in one.samples):
            what = "its statistics are in low precision: rows are off by one factor each"
            missed.append(NearMiss.of(one.path, NORM_FUSED, Reason.DTYPE, what))
        elif isinstance(forms, NearMiss):
            missed.append(forms)
        elif len(forms) == 1:
            norms[one.path] = _norm(one, *forms[0])
        else:
            shown = ", ".join(f"{kind} eps {eps:g}" for kind, eps in forms)
            what = f"its eps cannot be told from what it computes (fits: {shown})"
            missed.append(NearMiss.of(one.path, NORM_FUSED, Reason.AMBIGUOUS, what))
    return norms, missed


def _changes(one: _Candidate, differ: set[int]) -> bool:
    """Whether no call handed on the rows that it read, by its samples or else by all that is kept.

    Rows that are normal already would pass for normalised.
    """
    for place, call in zip(one.places, one.calls, strict=True):
        source, result = _ends(call, one.adds)
        if place not in differ and source.alike(result):
            return False
    return True


def _observed_fits(candidates: Sequence[_Candidate], stacked: Sequence[Batch]) -> list[list[Form]]:
    """For each candidate: the forms that all of its calls agree with.

    The numbers that a module holds are tried first as eps, and then the common ones.
    """
    out = _agreed(candidates, stacked, [one.eps for one in candidates])
    fresh = [one.eps != COMMON and not forms for one, forms in zip(candidates, out, strict=True)]
    again = _agreed(candidates, stacked, [COMMON if more else () for more in fresh])
    return [forms or common for forms, common in zip(out, again, strict=True)]


def _agreed(
    candidates: Sequence[_Candidate], stacked: Sequence[Batch], eps: Sequence[Sequence[float]]
) -> list[list[Form]]:
    """For each candidate and the eps to try: the forms that all of its samples agree with."""
    pairs = list(zip(candidates, eps, strict=True))
    told = fits(stacked, {place: tried for one, tried in pairs for place in one.places if tried})
    out = []
    for one, tried in pairs:
        calls = [told[place] for place in one.places] if tried else [[]]
        out.append([form for form in calls[0] if all(form in other for other in calls)])
    return out


def _unlike(candidates: Sequence[_Candidate], stacked: Sequence[Batch]) -> list[NearMiss]:
    missed = []
    near = resembling(stacked, {one.at for one in candidates})
    for one in candidates:
        objection = nearly(one.samples[0], one.eps) if one.at in near else None
        if objection is not None:
            missed.append(NearMiss.of(one.path, NORM_FUSED, *objection))
    return missed


def _norm(one: _Candidate, kind: str, eps: float) -> Norm:
    width = _ends(one.calls[0], one.adds)[0].width
    keys = one.key(one.weight), one.key(one.bias)
    return Norm(one.path, kind, eps, width, *keys, one.adds, one.calls)


def _candidate(
    path: str, module: torch.nn.Module, calls: tuple[Call, ...], at: int
) -> _Candidate | None:
    """A leaf with at most two vectors that keeps the shape of what it reads."""
    if not calls:
        return None
    own = held(module)
    shapes = [p.shape for p in own.values()]
    if len(own) > 2 or any(len(shape) != 1 for shape in shapes):
        return None
    adds = _added(calls[0])
    if any(_added(call) != adds for call in calls[1:]):
        return None
    widths = {shape[0] for shape in shapes}
    if not all(_keeps(call, adds, widths) for call in calls):
        return None
    names = list(own)
    if len(names) == 2 and "bias" in names[0]:  # which is which is checked by the numbers
        names.reverse()
    weight = names[0] if names else None
    bias = names[1] if len(names) == 2 else None
    vectors = (own[weight] if weight else None, own[bias] if bias else None)
    samples = []
    for call in calls:
        source, result = _ends(call, adds)
        samples.append(Sample(_some(source), _some(result), *vectors))
    return _Candidate(path, module, weight, bias, calls, adds, epsilons(module), samples, at)


def _keeps(call: Call, adds: bool, widths: set[int]) -> bool:
    """Whether floating rows came out as wide as they went in, as another tensor."""
    if not adds and (call.input is None or call.output is None):
        return False
    source, result = _ends(call, adds)
    kept, shape = source.kept, source.shape
    shaped = shape == result.shape and source.width > 1 and kept.dim() < 5
    fits = shaped and kept.is_floating_point() and widths <= {shape[-1]}
    return fits and kept.numel() > 0 and not source.same(result)


def _added(call: Call) -> bool:
    """Whether it was given two tensors and returned something and their sum."""
    first, second = call.given.get("0"), call.given.get("1")
    if first is None or second is None or first.shape != second.shape:
        return False
    total = call.returned.get("1")
    if total is None or total.shape != first.shape or "0" not in call.returned:
        return False
    return bool((total.kept - (first.kept + second.kept)).abs().amax() == 0)


def _settled(likely: Sequence[tuple[_Candidate, list[Form]]]) -> list[list[Form] | NearMiss]:
    """The forms that also fit rows that the host did not give: the one, if it can be told.

    A copy reads a row for every eps so small that it matters, rows that are not centred, and rows
    with one large element, where a clamp shows.
    """
    settled: list[list[Form] | NearMiss] = [forms for _, forms in likely]
    alike = [one.alike() for one, _ in likely]
    probes: dict[int, Sample] = {}
    first: dict[Hashable, int] = {}  # of the norms that are alike, the one whose copy was run
    for i, (one, _) in enumerate(likely):
        if alike[i] in first:
            continue
        try:
            probes[i] = _probe(one)
            first[alike[i]] = i
        except Exception as error:  # a host's own code, on values that it did not choose
            settled[i] = unprobed(one.path, NORM_FUSED, error)
    tried = {place: _tried(likely[i][0]) for place, i in enumerate(probes)}
    again = fits(batches(list(probes.values())), tried)
    told = {i: again[place] for place, i in enumerate(probes)}
    for i, (one, forms) in enumerate(likely):
        if alike[i] not in first:
            continue
        still = told[first[alike[i]]]
        kinds = {kind for kind, _ in forms}
        kept = [form for form in forms if form in still]
        others = [form for form in still if form[0] in kinds]
        if not kept and others:  # a common eps, though the module holds another small number
            eps = [eps for _, eps in others]
            observed = _agreed([one._replace(at=0)], batches(one.samples), [eps])[0]
            kept = [form for form in others if form in observed]
        settled[i] = kept
        if not kept:
            shown = " or ".join(dict.fromkeys(kind for kind, _ in forms))
            what = f"it is {shown} where it was observed and not on other rows, with no usual eps"
            settled[i] = NearMiss.of(one.path, NORM_FUSED, Reason.STRUCTURE, what)
    return settled


def _alone(module: torch.nn.Module) -> Callable[[torch.Tensor], object]:
    """A module that adds a residual before, with nothing to add."""
    return lambda x: module(x, x.new_zeros(()).expand_as(x).clone())[0]


def _tried(one: _Candidate) -> tuple[float, ...]:
    return tuple(dict.fromkeys((*one.eps, *COMMON)))


def _probe(one: _Candidate) -> Sample:
    """What a copy of the module gives for chosen rows. Raises what the copy raises."""
    source, _ = _ends(one.calls[0], one.adds)
    width, weight, bias = source.width, one.samples[0].weight, one.samples[0].bias
    rows = chosen(width, _tried(one), weight).to(source.kept.device, source.dtype)
    module = copy_of(one.module)
    x, y = run(_alone(module) if one.adds else module, rows, source.shape)
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        raise Refusal(Reason.LAYOUT, "it does not keep the shape of other rows")
    return Sample(x.reshape(-1, width), y.reshape(-1, width), weight, bias)
