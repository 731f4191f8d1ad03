"""Finds gated_delta_core: callable slots that take q, k, v, g, beta and a state and return one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flashrt.host.discovery.attention.norms import agree
from flashrt.host.discovery.attention.result import GATED_DELTA_CORE, NOTHING, Found, miss, named
from flashrt.host.discovery.attention.tap import Site, SlotCall
from flashrt.host.discovery.near_miss import NearMiss
from flashrt_runtime.adapters.gated_delta import PREFILL, objection
from flashrt_runtime.adapters.plan import DeltaPlan
from flashrt_runtime.adapters.slots import Slot
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason

if TYPE_CHECKING:
    import torch

_L2_EPS = 1e-6


def roles(slot: Slot) -> Mapping[str, str] | None:
    """Parameter names by boundary name: g and beta by name, q, k, v the first three, a state."""
    names = slot.parameters
    states = [n for n in names if "state" in n and not n.startswith(("output", "return"))]
    if not {"g", "beta"} <= set(names) or len(names) < 6 or len(states) != 1:
        return None
    first = [name for name in names if name not in ("g", "beta", *states)][:3]
    found = {**dict(zip("qkv", first, strict=True)), "g": "g", "beta": "beta", "state": states[0]}
    wanted = [n for n in names if "state" in n and n.startswith(("output", "return"))]
    norms = [n for n in names if "l2" in n or ("norm" in n and n.startswith("use"))]
    for key, candidates in (("want_state", wanted), ("l2", norms)):
        if len(candidates) == 1:
            found[key] = candidates[0]
    return found


def find_delta(path: str, sites: Sequence[Site], offered: Sequence[Slot]) -> Found:
    """What one module's slots were seen to do in the whole forward."""
    slots = [slot for slot in offered if roles(slot)]
    calls = [c for site in sites for c in site.slots if roles(c.slot)]
    steps = [c for c in calls if _positions(c) == 1]
    if not slots:
        return NOTHING
    if not calls:
        what = "the observed forward never called its recurrence"
        return miss(path, GATED_DELTA_CORE, Reason.NEVER_CALLED, what)
    prefill = NearMiss.of(path, GATED_DELTA_CORE, PREFILL.reason, PREFILL.detail)
    misses = (prefill,) if len(steps) < len(calls) else ()
    if not steps:
        return Found(misses=misses)
    found = _seam(path, steps)
    if isinstance(found, Because):
        return miss(path, GATED_DELTA_CORE, found.reason, found.detail)
    seam, plan = found
    return Found(seams=(seam,), misses=misses, plans={seam.id: plan})


def _positions(call: SlotCall) -> int:
    names = roles(call.slot) or {}
    q = call.given.get(names.get("q", ""))
    return int(q.shape[1]) if q is not None and q.dim() == 4 else 0


def _seam(path: str, steps: Sequence[SlotCall]) -> tuple[Seam, DeltaPlan] | Because:
    variants = set()
    for call in steps:
        kind = _kind(call)
        if isinstance(kind, Because):
            return kind
        variants.add(kind)
    slot = steps[0].slot
    if len(variants) != 1 or any(c.slot.name != slot.name for c in steps):
        return Because(Reason.AMBIGUOUS, "its steps do not run one recurrence in one way")
    names = roles(slot) or {}
    k, v = (steps[0].given[names[n]] for n in ("k", "v"))
    dims = {
        "Hk": k.shape[2],
        "H": v.shape[2],
        "G": v.shape[2] // k.shape[2],
        "Dk": k.shape[3],
        "Dv": v.shape[3],
    }
    seam = Seam(
        id=named(path, "gated_delta_core"),
        structure=GATED_DELTA_CORE,
        members={"self": path},
        variant={"qk_norm": variants.pop()},
        dims=dims,
        weights={},
    )
    return seam, DeltaPlan(slot.name, slot.place, names, (k.shape[2], v.shape[2]))


def _kind(call: SlotCall) -> str | Because:
    """none or l2, as one step was seen to compute; or why the step is not the structure's."""
    names = roles(call.slot) or {}
    inputs = {name: call.given[names[name]] for name in ("q", "k", "v", "g", "beta")}
    state = call.given[names["state"]]
    if call.written:
        return Because(Reason.LAYOUT, f"it writes to its {call.written[0]}: no explicit state")
    if call.views and set(call.views) & set(names.values()):
        return Because(Reason.LAYOUT, f"its {call.views[0]} is a view that is not contiguous")
    heads = (inputs["k"].shape[2], inputs["v"].shape[2])
    found = objection(inputs, state, heads)
    if found is not None:
        return found
    if not isinstance(call.output, tuple) or len(call.output) != 2:
        return Because(Reason.LAYOUT, "it does not return its output and a state")
    for kind in ("none", "l2"):
        y, final = _step(inputs, state, kind)
        if _same(call.output[0], y):
            same = call.output[1] is None or _same(call.output[1], final)
            return kind if same else Because(Reason.STRUCTURE, "its new state is another one")
    return Because(Reason.STRUCTURE, "what it computes is not the gated delta rule")


def _same(got: torch.Tensor, want: torch.Tensor) -> bool:
    # both are sums of products, so what is lost is relative to the largest
    return got.shape == want.shape and agree(
        got.double(), want, got.dtype, float(want.abs().amax())
    )


def _step(
    inputs: Mapping[str, torch.Tensor], state: Any, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step in double: y [B, 1, H, Dv] and the new state [B, H, Dk, Dv]."""
    import torch

    q, k, v, g, beta = (inputs[name][:, 0].double() for name in ("q", "k", "v", "g", "beta"))
    if kind == "l2":
        q, k = (x * (x.square().sum(-1, keepdim=True) + _L2_EPS).rsqrt() for x in (q, k))
    groups = v.shape[1] // k.shape[1]
    q, k = (x.repeat_interleave(groups, dim=1) for x in (q, k))
    old = torch.zeros(*k.shape, v.shape[-1], dtype=v.dtype) if state is None else state.double()
    kept = old.to(v.device) * g.exp()[..., None, None]
    new = (v - torch.einsum("bhkv,bhk->bhv", kept, k)) * beta[..., None]
    final = kept + k[..., None] * new[..., None, :]
    y = torch.einsum("bhkv,bhk->bhv", final, q * q.shape[-1] ** -0.5)
    return y[:, None], final
