"""gated_delta_core in the callable slot that a host runs one step of its recurrence through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flashrt_runtime.adapters.plan import DeltaPlan, Parameters
from flashrt_runtime.adapters.slots import GLOBAL, rehost, slots_of
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.adapters.body import Body, Core

PREFILL = Because(
    Reason.FORM, "a sequence longer than one step stays the host's: it has no explicit state"
)


def gated_delta_slots(
    host: torch.nn.Module,
    core: Core,
    plan: DeltaPlan,
    variant: Mapping[str, str],
    *,
    strict: bool = False,
) -> Body:
    """The host's own forward with the core where it runs one step of the gated delta rule.

    ``core`` maps q, k [B,1,Hk,Dk], v [B,1,H,Dv], g, beta [B,1,H] and state [B,H,Dk,Dv] to y
    [B,1,H,Dv] and final_state; the state that was given is not written. Longer sequences run the
    host's callable by design. Views that are not contiguous run it too, counted as declined:
    nothing is copied to fit. Raises :class:`Refusal` (STRUCTURE) without the slot.
    """
    from flashrt_runtime.adapters.body import Account, Body

    subject = type(host).__name__
    if host.training:
        raise Refusal(Reason.TRAINING, "it is in training mode", subject=subject)
    slot = next((s for s in slots_of(host) if (s.name, s.place) == (plan.name, plan.place)), None)
    if slot is None:
        what = f"its forward calls no {plan.name!r} with a state"
        raise Refusal(Reason.STRUCTURE, what, subject=subject)
    missing = set(plan.parameters.values()) - set(slot.parameters)
    if missing:
        what = f"{plan.name} has no parameter {sorted(missing)[0]!r}"
        raise Refusal(Reason.STRUCTURE, what, subject=subject)
    account = Account(subject, strict)
    parameters = Parameters(slot.function)

    def step(*args: Any, **named: Any) -> Any:
        given = parameters.bind(args, named)
        inputs = {name: given[plan.parameters[name]] for name in ("q", "k", "v", "g", "beta")}
        state = given[plan.parameters["state"]]
        if inputs["q"].shape[1] != 1:
            account.leave(PREFILL)
            return slot.function(*args, **named)
        found = objection(inputs, state, plan.heads) or _form(given, plan, variant)
        if found is not None:
            account.decline(found)
            return slot.function(*args, **named)
        account.ran()
        out = core(inputs if state is None else inputs | {"state": state})
        wanted = plan.parameters.get("want_state")
        keep = given[wanted] if wanted else True
        return out["y"], out["final_state"] if keep else None

    functions = {plan.name: step} if plan.place == GLOBAL else {}
    run = rehost(host, functions, {} if functions else {plan.name: step})
    inner = frozenset(path for path, _ in host.named_modules() if path)
    return Body(host, run, account, inner)


def objection(
    inputs: Mapping[str, torch.Tensor], state: torch.Tensor | None, heads: tuple[int, int]
) -> Because | None:
    """Why one step's tensors are not the boundary's, or ``None``."""
    tensors = dict(inputs) if state is None else {**inputs, "state": state}
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            return Because(Reason.LAYOUT, f"{name} is a view that is not contiguous")
    for name, want in (("q", heads[0]), ("k", heads[0]), ("v", heads[1])):
        if tensors[name].shape[2] != want:
            return Because(Reason.SHAPE, f"{name} has {tensors[name].shape[2]} heads, not {want}")
    if heads[0] < 1 or heads[1] % heads[0]:
        return Because(Reason.SHAPE, f"{heads[1]} value heads are no multiple of {heads[0]}")
    return None


def _form(given: Mapping[str, Any], plan: DeltaPlan, variant: Mapping[str, str]) -> Because | None:
    flag = plan.parameters.get("l2")
    if flag and bool(given[flag]) != (variant["qk_norm"] == "l2"):
        return Because(Reason.FORM, f"the call's {flag} is not what the core was bound for")
    if given.get("cu_seqlens") is not None:
        return Because(Reason.FORM, "the call packs several sequences in one")
    return None
