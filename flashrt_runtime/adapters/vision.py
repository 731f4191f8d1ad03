"""qkv_rope behind a packed projection of a vision tower, before the host's own dispatch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flashrt_runtime.adapters import refuse
from flashrt_runtime.adapters.plan import Parameters, VisionPlan
from flashrt_runtime.adapters.slots import plain_forward
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.adapters.body import Body, Core

_DISPATCH = ("module", "query", "key", "value", "attention_mask")


def packed_vision_qkv(
    host: torch.nn.Module,
    core: Core,
    plan: VisionPlan,
    variant: Mapping[str, str],
    *,
    strict: bool = False,
) -> Body:
    """A body that projects once, rotates in the core, and attends as the host does.

    ``core`` maps qkv [M,3*H*Dh], cos and sin float32 [M,Dh] to q, k, v [M,H,Dh]. With variant
    ``bias: present`` the projection's bias is the core's, and the packed projection is then a
    matrix product and no module call; with ``none`` it is the host's module. The token capacity
    is the observed one: another number of tokens runs the host. Raises :class:`Refusal`:
    STRUCTURE without a dispatcher, SHAPE for an odd head dim or one above 256.
    """
    from flashrt_runtime.adapters.body import Account, Body

    subject = type(host).__name__
    if host.training:
        raise Refusal(Reason.TRAINING, "it is in training mode", subject=subject)
    refuse.require(refuse.context_parallel(host), subject)
    heads, size = plan.heads
    refuse.head_dim(size, subject)
    width = host.get_parameter(f"{plan.qkv}.weight").shape[0]
    if width != 3 * heads * size:
        what = f"its packed projection is {width} wide, not 3 x {heads} heads x {size}"
        raise Refusal(Reason.SHAPE, what, subject=subject)
    dispatch = dispatcher_of(host)
    account = Account(subject, strict)
    parameters = Parameters(host.forward)

    def run(*args: Any, **named: Any) -> Any:
        given = parameters.bind(args, named)
        found = _objection(host, given, plan)
        if found is not None:
            account.decline(found)
            return host.forward(*args, **named)
        account.ran()
        packed = _project(host, plan, plan.x.take(given), variant["bias"] == "present")
        out = core({"qkv": packed, "cos": plan.cos.take(given), "sin": plan.sin.take(given)})
        y = _attend(host, dispatch, out, _lengths(plan, given))
        return host.get_submodule(plan.out)(y.reshape(packed.shape[0], -1))

    inner = {plan.out} | (set() if variant["bias"] == "present" else {plan.qkv})
    return Body(host, run, account, frozenset(inner))


def dispatcher_of(host: torch.nn.Module) -> Callable[..., Any]:
    """What the host's forward would call to attend now: looked up again at every call.

    Raises :class:`Refusal` (STRUCTURE) when its file has no registry with ``get_interface`` and
    a function to fall back to.
    """
    plain = plain_forward(host)
    scope = getattr(plain, "__globals__", {})
    names = [n for n in getattr(getattr(plain, "__code__", None), "co_names", ()) if n in scope]
    registry = next((scope[n] for n in names if hasattr(scope[n], "get_interface")), None)
    default = next((scope[n] for n in names if _attends(scope[n])), None)
    if registry is None or default is None:
        what = "its forward looks no attention function up in an interface"
        raise Refusal(Reason.STRUCTURE, what, subject=type(host).__name__)

    def dispatch(*args: Any, **named: Any) -> Any:
        chosen = registry.get_interface(_implementation(host), default)
        return chosen(*args, **named)

    return dispatch


def _implementation(host: Any) -> str | None:
    return host.config._attn_implementation


def _attends(value: Any) -> bool:
    if not inspect.isfunction(value):
        return False
    return tuple(inspect.signature(value).parameters)[: len(_DISPATCH)] == _DISPATCH


def _objection(host: torch.nn.Module, given: dict[str, Any], plan: VisionPlan) -> Because | None:
    import torch

    chosen = str(_implementation(host))
    if "flash" in chosen:
        return Because(Reason.FORM, f"{chosen} attends to packed sequences in one call")
    try:
        x, cos, sin = (a.take(given) for a in (plan.x, plan.cos, plan.sin))
    except (KeyError, IndexError, TypeError):
        return Because(Reason.STRUCTURE, "the call gives no rotate-half table")
    if x.shape[0] != plan.capacity:
        return Because(Reason.SHAPE, f"{x.shape[0]} tokens; the observed capacity {plan.capacity}")
    if cos.dtype != torch.float32 or sin.dtype != torch.float32:
        return Because(Reason.DTYPE, f"its rotate-half table is {cos.dtype}, not float32")
    return None


def _project(host: torch.nn.Module, plan: VisionPlan, x: torch.Tensor, bare: bool) -> torch.Tensor:
    projection: Any = host.get_submodule(plan.qkv)
    if bare:
        from torch.nn.functional import linear

        return linear(x, projection.weight)
    return projection(x)


def _lengths(plan: VisionPlan, given: dict[str, Any]) -> list[int] | None:
    if plan.lengths is None:
        return None
    marks = plan.lengths.take(given)
    return (marks[1:] - marks[:-1]).tolist()


def _attend(
    host: torch.nn.Module,
    dispatch: Callable[..., Any],
    out: Mapping[str, torch.Tensor],
    lengths: list[int] | None,
) -> torch.Tensor:
    """[1, M, H, Dh]: every sequence of the pack attends to itself."""
    import torch

    rows = [out[name].transpose(0, 1).unsqueeze(0) for name in ("q", "k", "v")]
    parts = [torch.split(t, lengths or [t.shape[2]], dim=2) for t in rows]
    scaling = getattr(host, "scaling", None)
    attended = [
        dispatch(host, q, k, v, attention_mask=None, scaling=scaling, dropout=0.0, is_causal=False)[
            0
        ]
        for q, k, v in zip(*parts, strict=True)
    ]
    return torch.cat(attended, dim=1)
