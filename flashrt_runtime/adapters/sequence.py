"""qk_norm_rope inside a host's own sequence attention: cache and dispatch stay the host's."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flashrt_runtime.adapters import refuse
from flashrt_runtime.adapters.plan import Parameters, SequencePlan
from flashrt_runtime.adapters.slots import GLOBAL, plain_forward, rehost, slots_of
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.adapters.body import Account, Body, Core


def sequence_attention(
    host: torch.nn.Module, core: Core, plan: SequencePlan, *, strict: bool = False
) -> Body:
    """The host's own forward, its norms of q and k passed through and its rotation the core's.

    ``core`` maps q [B,T,Hq*Dh], k and v [B,T,Hkv*Dh], cos and sin float32 [B or 1,T,R] to q and k
    [B,T,H,Dh]. Its v is not read: the host has used its own by then. The host's cache is written
    by the host, after the core, with what the core returned. Raises :class:`Refusal`: STRUCTURE
    when the host lacks what the plan names, LAYOUT under context parallelism.
    """
    from flashrt_runtime.adapters.body import Account, Body

    subject = type(host).__name__
    if host.training:
        raise Refusal(Reason.TRAINING, "it is in training mode", subject=subject)
    refuse.require(refuse.context_parallel(host), subject)
    for child in (plan.q_norm, plan.k_norm, plan.v):
        if not child or "." in child or child not in dict(host.named_children()):
            raise Refusal(Reason.STRUCTURE, f"it has no child {child!r}", subject=subject)
    slot = next(
        (s for s in slots_of(host) if (s.name, s.place) == (plan.rope.name, plan.rope.place)), None
    )
    if slot is None:
        what = f"its forward calls no {plan.rope.name!r} that rotates q and k"
        raise Refusal(Reason.STRUCTURE, what, subject=subject)
    account = Account(subject, strict)
    turn = _Turn(host, plan, core, account, slot.function)
    own = {plan.rope.name: turn.rotate}
    functions = own if plan.rope.place == GLOBAL else {}
    children = {plan.q_norm: turn.q_norm, plan.k_norm: turn.k_norm, plan.v: turn.project}
    run = rehost(host, functions, children | ({} if functions else own))
    kept = {plan.q_norm, plan.k_norm}
    inner = frozenset(path for path, _ in host.named_modules() if path and path not in kept)
    _checked_decorators(host)
    return Body(host, run, account, inner)


def _checked_decorators(host: torch.nn.Module) -> None:
    if not inspect.isfunction(plain_forward(host)):
        raise Refusal(
            Reason.LAYOUT, "its forward is not a Python function", subject=type(host).__name__
        )


class _Turn:
    """One forward's intermediate values; seats admit one thread, so there is one at a time."""

    def __init__(
        self,
        host: torch.nn.Module,
        plan: SequencePlan,
        core: Core,
        account: Account,
        rotate: Any,
    ) -> None:
        self.host = host
        self.plan = plan
        self.core = core
        self.account = account
        self.original = rotate
        self.parameters = Parameters(rotate)
        self.v: torch.Tensor | None = None
        self.shapes: dict[str, tuple[int, ...]] = {}  # of what the host gave its norms

    def q_norm(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes[self.plan.q_norm] = tuple(x.shape)
        return x

    def k_norm(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes[self.plan.k_norm] = tuple(x.shape)
        return x

    def project(self, *args: Any, **named: Any) -> torch.Tensor:
        self.v = getattr(self.host, self.plan.v)(*args, **named)
        return self.v

    def rotate(self, *args: Any, **named: Any) -> tuple[torch.Tensor, torch.Tensor]:
        rope = self.plan.rope
        given = self.parameters.bind(args, named)
        q, k = given[rope.q], given[rope.k]
        inputs = self.inputs(q, k, given[rope.cos], given[rope.sin])
        if isinstance(inputs, Because):
            self.account.decline(inputs)
            given[rope.q] = self._normed(self.plan.q_norm, q)
            given[rope.k] = self._normed(self.plan.k_norm, k)
            return self.original(**given)
        self.account.ran()
        out = self.core(inputs)
        if rope.heads_first:
            return out["q"].transpose(1, 2), out["k"].transpose(1, 2)
        return out["q"], out["k"]

    def _normed(self, child: str, x: torch.Tensor) -> torch.Tensor:
        """The host's norm of ``x``, on the shape on which the host called it: heads may be one row.

        Between the norm and the rotation the host splits heads and turns axes, nothing else.
        """
        norm, shape = getattr(self.host, child), self.shapes.pop(child, tuple(x.shape))
        if shape == tuple(x.shape):
            return norm(x)
        rows = x.transpose(1, 2) if self.plan.rope.heads_first else x
        normed = norm(rows.reshape(shape)).reshape(rows.shape)
        return normed.transpose(1, 2) if self.plan.rope.heads_first else normed

    def inputs(
        self, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> Mapping[str, torch.Tensor] | Because:
        """The core's inputs as views of the projections, or why they are not views."""
        if self.v is None:
            return Because(Reason.SHARED_INPUT, "v was not projected before q and k were rotated")
        v, self.v = self.v, None
        flat = {}
        for name, x in (("q", q), ("k", k)):
            rows = x.transpose(1, 2) if self.plan.rope.heads_first else x
            joined = _joined(rows)
            if joined is None:
                what = f"{name} is a strided view that the boundary takes only as a copy"
                return Because(Reason.LAYOUT, what)
            flat[name] = joined
        if v.shape != flat["k"].shape:
            return Because(Reason.SHAPE, f"v is {tuple(v.shape)}, k {tuple(flat['k'].shape)}")
        if cos.dim() != 3 or cos.shape != sin.shape:
            return Because(Reason.SHAPE, f"cos is {tuple(cos.shape)}, not [B or 1, T, R]")
        return flat | {"v": v, "cos": cos.float(), "sin": sin.float()}


def _joined(x: torch.Tensor) -> torch.Tensor | None:
    """[B, T, H, D] as a view [B, T, H*D], or ``None`` where only a copy would do."""
    size, stride = x.shape, x.stride()
    if size[2] > 1 and stride[2] != size[3] * stride[3]:
        return None
    return x.flatten(2)
