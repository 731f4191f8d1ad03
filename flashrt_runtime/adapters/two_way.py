"""Two packs of tokens, one causal and one that sees both, through qk_norm_rope and attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.adapters import refuse
from flashrt_runtime.adapters.plan import Group, Parameters, TwoWayPlan
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.adapters.body import Body, Core


@dataclass(frozen=True)
class TwoWayCores:
    """qk_norm_rope for each pack (each with its own norm weights), and attention_core for each.

    ``attend_causal`` is bound for mask causal, ``attend_full`` for mask none.
    """

    rope_causal: Core
    rope_full: Core
    attend_causal: Core
    attend_full: Core


def two_way_attention(
    host: torch.nn.Module, cores: TwoWayCores, plan: TwoWayPlan, *, strict: bool = False
) -> Body:
    """A body that needs both packs: projections and outputs are the host's modules, per call.

    Packs are [T,D] or [B,T,D]; tables [T,R] or [B,T,R]. A call with neighbourhood metadata, with
    a cache that it would write to, or without one of the packs runs the host's own forward,
    counted; with ``strict`` it raises. Raises :class:`Refusal`: STRUCTURE when a group is not
    complete, SHAPE when heads do not divide, LAYOUT under context parallelism or with
    neighbourhood metadata on the module.
    """
    from flashrt_runtime.adapters.body import Account, Body

    subject = type(host).__name__
    if host.training:
        raise Refusal(Reason.TRAINING, "it is in training mode", subject=subject)
    refuse.require(refuse.context_parallel(host), subject)
    refuse.require(refuse.neighbourhood(vars(host)), subject)
    query, key, size = plan.heads
    refuse.heads(query, key, subject)
    refuse.head_dim(size, subject)
    for name, group in (("causal", plan.causal), ("full", plan.full)):
        _complete(host, name, group, subject)
    account = Account(subject, strict)
    parameters = Parameters(host.forward)

    def run(*args: Any, **named: Any) -> Any:
        given = parameters.bind(args, named)
        found = _objection(given, plan)
        if found is not None:
            account.decline(found)
            return host.forward(*args, **named)
        account.ran()
        return _run(host, cores, plan, given)

    children = [p for g in (plan.causal, plan.full) for p in (g.q, g.k, g.v, g.out)]
    return Body(host, run, account, frozenset(children))


def _complete(host: torch.nn.Module, name: str, group: Group, subject: str) -> None:
    modules = dict(host.named_modules())
    for role in ("q", "k", "v", "out"):
        path = getattr(group, role)
        if not path or path not in modules:
            what = f"the {name} pack has no {role} projection: an incomplete pair"
            raise Refusal(Reason.STRUCTURE, what, subject=subject)


def _objection(given: dict[str, Any], plan: TwoWayPlan) -> Because | None:
    found = refuse.neighbourhood(given) or refuse.mutating_cache(given)
    if found is not None:
        return found
    for group in (plan.causal, plan.full):
        for argument in (group.x, group.cos, group.sin):
            try:
                value = argument.take(given)
            except (KeyError, IndexError, TypeError):
                value = None
            if getattr(value, "shape", None) is None:
                return Because(Reason.STRUCTURE, f"the call gives no {argument.name}")
    return None


def _run(
    host: torch.nn.Module, cores: TwoWayCores, plan: TwoWayPlan, given: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    causal = _heads(host, plan.causal, cores.rope_causal, given)
    full = _heads(host, plan.full, cores.rope_full, given)
    both = {name: torch.cat((causal[name], full[name]), dim=1) for name in ("k", "v")}
    a = cores.attend_causal(causal)["y"]
    b = cores.attend_full({"q": full["q"], **both})["y"]
    first = _out(host, plan.causal, a, given)
    second = _out(host, plan.full, b, given)
    return (first, second) if plan.causal_first else (second, first)


def _heads(
    host: torch.nn.Module, group: Group, rope: Core, given: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """q, k and v of one pack, [B, T, H, D]."""
    x = group.x.take(given)
    flat = {name: host.get_submodule(getattr(group, name))(x) for name in ("q", "k", "v")}
    tables = {
        "cos": group.cos.take(given).float(),
        "sin": group.sin.take(given).float(),
    }
    batched = {n: t if t.dim() == 3 else t[None] for n, t in (flat | tables).items()}
    out = rope(batched)
    return {name: out[name] for name in ("q", "k", "v")}


def _out(
    host: torch.nn.Module, group: Group, y: torch.Tensor, given: dict[str, Any]
) -> torch.Tensor:
    flat = y.flatten(2)
    packed = flat if group.x.take(given).dim() == 3 else flat[0]
    return host.get_submodule(group.out)(packed)
