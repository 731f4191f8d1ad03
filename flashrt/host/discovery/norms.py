"""Norms in a module tree, told by what they were seen to compute and never by a name.

A norm's output is compared, row by row, with four formulas whose statistics are fp32:
``rms_direct`` n·w, ``rms_offset`` n·(1 + w) with n = x/√(mean(x²) + eps); ``layer_affine`` n·w + b
and ``layer_identity`` n with n = (x − mean)/√(var + eps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flashrt.host.discovery.near_miss import NORM_FUSED, NearMiss
from flashrt.host.discovery.norm_forms import (
    COMMON,
    KINDS,
    Form,
    Sample,
    epsilons,
    fits,
    nearly,
    resembling,
    row_scale_error,
    tells_eps,
)
from flashrt.host.discovery.projection import Leaf
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.trace import Call, Trace
from flashrt_runtime.reason import Reason

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
        elif len(forms) == 1:
            norms[one.path] = _norm(one, *forms[0])
        else:
            shown = ", ".join(f"{kind} eps {eps:g}" for kind, eps in forms) or "none"
            what = f"its eps cannot be told from what it computes (fits: {shown})"
            missed.append(NearMiss.of(one.path, NORM_FUSED, Reason.AMBIGUOUS, what))
    ordered = sorted(norms.values(), key=lambda n: n.calls[0].order)
    return {n.path: n for n in ordered}, missed


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
    own = {name: p for name, p in module._parameters.items() if p is not None}
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


def _settled(likely: Sequence[tuple[_Candidate, list[Form]]]) -> list[list[Form]]:
    """The forms that also fit a row so small that eps matters; the one, if it can be told.

    Where what was observed was small enough already, it is not run again.
    """
    probed = [
        (i, probe)
        for i, (one, forms) in enumerate(likely)
        if not one.adds and not (len(forms) == 1 and tells_eps(one.samples[0], forms[0][1]))
        for probe in [_probe(one, forms)]
    ]
    again = fits([(probe, _tried(likely[i][0].module)) for i, probe in probed])
    settled = [forms for _, forms in likely]
    for (i, _), still in zip(probed, again, strict=True):
        one, forms = likely[i]
        kinds = {kind for kind, _ in forms}
        held = [form for form in forms if form in still]
        others = [form for form in still if form[0] in kinds]
        if not held and others:  # a common eps, though the module holds another small number
            observed = _agreed([one], [[eps for _, eps in others]])[0]
            held = [form for form in others if form in observed]
        settled[i] = held
    return settled


def _tried(module: torch.nn.Module) -> tuple[float, ...]:
    return tuple(dict.fromkeys((*epsilons(module), *COMMON)))


def _probe(one: _Candidate, forms: Sequence[Form]) -> Sample:
    """What the module gives for its first row, scaled so that its mean square is about eps."""
    import torch

    source, _ = _ends(one.calls[0], False)
    row = source.rows[:1]
    spread = float(row.float().square().mean())
    x = row * (forms[0][1] / spread) ** 0.5 if spread > 0 else row
    with torch.no_grad():
        y = one.module(x.reshape((1,) * (len(source.shape) - 1) + (source.width,)))
    return Sample(x, y.reshape(1, -1), one.samples[0].weight, one.samples[0].bias)
