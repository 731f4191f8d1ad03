"""attention_core inside a host's own attention: everything but the attending is the host's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flashrt_runtime.adapters import mask as masks
from flashrt_runtime.adapters import refuse
from flashrt_runtime.adapters.call import AttentionCall
from flashrt_runtime.adapters.slots import plain_forward
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.adapters.body import Account, Body, Core


def attention_processor(
    host: torch.nn.Module, core: Core, variant: Mapping[str, str], *, strict: bool = False
) -> Body:
    """A body for a module that hands its attention to a processor of its own.

    ``core`` maps q [B,Tq,Hq,Dh], k [B,Tk,Hkv,Dh], v [B,Tk,Hkv,Dv] (and ``ranges`` int64 [R,2]
    under key_ranges) to y [B,Tq,Hq,Dv]. A call that ``variant`` does not say runs the host's own
    function, counted; with ``strict`` it raises. Raises :class:`Refusal`: STRUCTURE without a
    processor that takes the module, LAYOUT under context parallelism.
    """
    processor = getattr(host, "processor", None)
    if not callable(processor):
        raise Refusal(Reason.STRUCTURE, "it has no callable processor", subject=_name(host))
    return _body(host, core, variant, strict)


def attention_interface(
    host: torch.nn.Module, core: Core, variant: Mapping[str, str], *, strict: bool = False
) -> Body:
    """A body for a module that looks its attention function up in an interface.

    As :func:`attention_processor`; raises :class:`Refusal` (STRUCTURE) when the module's forward
    reads no registry with ``get_interface``.
    """
    plain = plain_forward(host)
    names = getattr(getattr(plain, "__code__", None), "co_names", ())
    scope = getattr(plain, "__globals__", {})
    if not any(hasattr(scope.get(name), "get_interface") for name in names):
        what = "its forward looks no attention function up in an interface"
        raise Refusal(Reason.STRUCTURE, what, subject=_name(host))
    return _body(host, core, variant, strict)


def _name(host: torch.nn.Module) -> str:
    return type(host).__name__


def _body(host: torch.nn.Module, core: Core, variant: Mapping[str, str], strict: bool) -> Body:
    from flashrt_runtime.adapters.body import Account, Body
    from flashrt_runtime.adapters.substitute import Substitute

    if host.training:
        raise Refusal(Reason.TRAINING, "it is in training mode", subject=_name(host))
    refuse.require(refuse.context_parallel(host), _name(host))
    account = Account(_name(host), strict)
    attend = Attend(core, variant, account)

    def run(*args: Any, **named: Any) -> Any:
        with Substitute(attend):
            return host.forward(*args, **named)

    inner = frozenset(path for path, _ in host.named_modules() if path)
    return Body(host, run, account, inner)


class Attend:
    """scaled_dot_product_attention's signature over a core; outside the variant, the original."""

    def __init__(self, core: Core, variant: Mapping[str, str], account: Account) -> None:
        self.core = core
        self.kind = variant["mask"]
        given = variant.get("scaling") == "given"
        self.scale = float(variant["scale"]) if given else None
        self.account = account

    def __call__(self, *args: Any, **named: Any) -> torch.Tensor:
        """[B, Hq, Tq, Dv], for query [B, Hq, Tq, Dh] and key and value [B, Hkv, Tk, .]."""
        from torch.nn.functional import scaled_dot_product_attention as original

        call = AttentionCall.of(args, named)
        found = self.judge(call)
        if isinstance(found, Because):
            self.account.decline(found)
            return original(*args, **named)
        inputs = {
            "q": call.query.transpose(1, 2),
            "k": call.key.transpose(1, 2),
            "v": call.value.transpose(1, 2),
        }
        if found.ranges is not None:
            inputs["ranges"] = found.ranges
        self.account.ran()
        return self.core(inputs)["y"].transpose(1, 2)

    def judge(self, call: AttentionCall) -> masks.Mask | Because:
        """The call's mask, or why this core does not serve the call."""
        objection = call.objection()
        if objection is not None:
            return objection
        if not call.scaled_as(self.scale):
            return Because(Reason.FORM, f"the call scales by {call.scale}, the core by another")
        return self._mask(call)

    def _mask(self, call: AttentionCall) -> masks.Mask | Because:
        from torch.compiler import is_dynamo_compiling

        if call.attn_mask is not None and is_dynamo_compiling():
            return self._traced(call)
        found = call.mask()
        if isinstance(found, Because) or found.kind == self.kind:
            return found
        if self.kind == masks.KEY_RANGES and found.kind == masks.NONE:
            return masks.whole(call.key.shape[2], call.key.device)
        if self.kind == masks.CAUSAL and found.kind == masks.NONE and call.query.shape[2] == 1:
            return found  # the last row of a causal call
        what = f"the call's mask is {found.kind}, the core's is {self.kind}"
        return Because(Reason.FORM, what)

    def _traced(self, call: AttentionCall) -> masks.Mask | Because:
        """A mask whose values a captured graph must not read back: asserted on the device."""
        if self.kind != masks.KEY_RANGES or call.attn_mask is None:
            what = f"the call gives a mask, and a captured core of mask {self.kind} reads none"
            return Because(Reason.FORM, what)
        return masks.traced(call.attn_mask, call.query.shape[2], call.key.shape[2])
