"""Norms in a module tree, told by what they were seen to compute and never by a name.

A norm's output is compared, row by row, with four formulas whose statistics are fp32:
``rms_direct`` n·w, ``rms_offset`` n·(1 + w) with n = x/√(mean(x²) + eps); ``layer_affine`` n·w + b
and ``layer_identity`` n with n = (x − mean)/√(var + eps).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flashrt.host.discovery.near_miss import NORM_FUSED, NearMiss, raised
from flashrt.host.discovery.norm_forms import (
    COMMON,
    KINDS,
    Form,
    Sample,
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

if TYPE_CHECKING:
    import torch

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


@dataclass(frozen=True)
class _Candidate:
    path: str
    module: torch.nn.Module
    weight: str | None
    bias: str | None
    calls: tuple[Call, ...]
    adds: bool

    @cached_property
    def samples(self) -> list[Sample]:
        """Rows in, rows out and the parameters of every call."""
        own = self.module._parameters
        weight = own[self.weight] if self.weight else None
        bias = own[self.bias] if self.bias else None
        ends = (_ends(call, self.adds) for call in self.calls)
        return [Sample(_some(source), _some(result), weight, bias) for source, result in ends]

    @cached_property
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
    return rows[:: max(1, rows.shape[0] - 1)] if rows.element_size() >= 4 else rows


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
    candidates = [
        found
        for path, module in leaves
        if (found := _candidate(path, module, tuple(seen.calls.get(path, ()))))
    ]
    fitted = _observed_fits(candidates)
    likely = [(one, forms) for one, forms in zip(candidates, fitted, strict=True) if forms]
    unlike = [one for one, forms in zip(candidates, fitted, strict=True) if not forms]
    missed = _unlike(unlike)
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


def _observed_fits(candidates: Sequence[_Candidate]) -> list[list[Form]]:
    """For each candidate: the forms that all of its calls agree with.

    The numbers that a module holds are tried first as eps, and then the common ones.
    """
    out = _agreed(candidates, [epsilons(one.module) for one in candidates])
    again = [i for i, forms in enumerate(out) if not forms]
    common = _agreed([candidates[i] for i in again], [COMMON] * len(again))
    for i, forms in zip(again, common, strict=True):
        out[i] = forms
    return out


def _agreed(candidates: Sequence[_Candidate], eps: Sequence[Sequence[float]]) -> list[list[Form]]:
    flat = [
        (sample, tried)
        for one, tried in zip(candidates, eps, strict=True)
        for sample in one.samples
    ]
    each = iter(fits(flat))
    out = []
    for one in candidates:
        calls = [next(each) for _ in one.samples]
        out.append([form for form in calls[0] if all(form in other for other in calls)])
    return out


def _unlike(candidates: Sequence[_Candidate]) -> list[NearMiss]:
    missed = []
    near = resembling([one.samples[0] for one in candidates])
    for one, resembles in zip(candidates, near, strict=True):
        objection = nearly(one.samples[0], epsilons(one.module)) if resembles else None
        if objection is not None:
            missed.append(NearMiss.of(one.path, NORM_FUSED, *objection))
    return missed


def _norm(one: _Candidate, kind: str, eps: float) -> Norm:
    width = _ends(one.calls[0], one.adds)[0].width
    keys = one.key(one.weight), one.key(one.bias)
    return Norm(one.path, kind, eps, width, *keys, one.adds, one.calls)


def _candidate(path: str, module: torch.nn.Module, calls: tuple[Call, ...]) -> _Candidate | None:
    """A leaf with at most two vectors that keeps the shape of what it reads."""
    own = held(module)
    if not calls or len(own) > 2 or any(p.dim() != 1 for p in own.values()):
        return None
    adds = [_added(call) for call in calls]
    widths = {p.shape[0] for p in own.values()}
    if len(set(adds)) != 1 or not all(_keeps(call, adds[0], widths) for call in calls):
        return None
    names = list(own)
    if len(names) == 2 and "bias" in names[0]:  # which is which is checked by the numbers
        names.reverse()
    weight = names[0] if names else None
    return _Candidate(path, module, weight, names[1] if len(names) == 2 else None, calls, adds[0])


def _keeps(call: Call, adds: bool, widths: set[int]) -> bool:
    """Whether rows came out as wide as they went in, and changed."""
    if not adds and (call.input is None or call.output is None):
        return False
    source, result = _ends(call, adds)
    shaped = source.shape == result.shape and source.kept.dim() < 5 and source.width > 1
    fits = shaped and source.dtype.is_floating_point and widths <= {source.width}
    # rows that are normal already would pass for normalised by a module that only hands them on
    return fits and source.kept.numel() > 0 and not source.alike(result)


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
    probes: list[tuple[int, Sample]] = []
    first: dict[Hashable, int] = {}  # of the norms that are alike, the one whose copy was run
    for i, (one, _) in enumerate(likely):
        if one.alike in first:
            continue
        try:
            probes.append((i, _probe(one)))
            first[one.alike] = i
        except Exception as error:  # a host's own code, on values that it did not choose
            settled[i] = unprobed(one.path, NORM_FUSED, error)
    again = fits([(probe, _tried(likely[i][0].module)) for i, probe in probes])
    told = {i: still for (i, _), still in zip(probes, again, strict=True)}
    for i, (one, forms) in enumerate(likely):
        if one.alike not in first:
            continue
        still = told[first[one.alike]]
        kinds = {kind for kind, _ in forms}
        kept = [form for form in forms if form in still]
        others = [form for form in still if form[0] in kinds]
        if not kept and others:  # a common eps, though the module holds another small number
            observed = _agreed([one], [[eps for _, eps in others]])[0]
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


def _tried(module: torch.nn.Module) -> tuple[float, ...]:
    return tuple(dict.fromkeys((*epsilons(module), *COMMON)))


def _probe(one: _Candidate) -> Sample:
    """What a copy of the module gives for chosen rows. Raises what the copy raises."""
    import torch

    source, _ = _ends(one.calls[0], one.adds)
    width, weight, bias = source.width, one.samples[0].weight, one.samples[0].bias
    rows = chosen(width, _tried(one.module), weight).to(source.kept.device, source.dtype)
    module = copy_of(one.module)
    x, y = run(_alone(module) if one.adds else module, rows, source.shape)
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        raise Refusal(Reason.LAYOUT, "it does not keep the shape of other rows")
    return Sample(x.reshape(-1, width), y.reshape(-1, width), weight, bias)
