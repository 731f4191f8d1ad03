"""Modules whose call is torch's own linear function: its code is known, little has to be seen."""

from __future__ import annotations

from types import BuiltinFunctionType

import torch

from flashrt.host.discovery.listener import own_forward

_OWN = frozenset({"_call_impl", "__class__", "weight", "bias"})
_PARAMETERS = frozenset({torch.nn.Parameter, type(None)})


def of_torch(module: torch.nn.Module) -> bool:
    """Whether its call is torch's own linear function on its own parameters, and nothing else."""
    kind = type(module)
    return (
        kind.forward is torch.nn.Linear.forward
        and kind.__call__ is torch.nn.Module.__call__
        and not hasattr(kind, "weight")
        and not hasattr(kind, "bias")
        and _OWN.isdisjoint(vars(module))
        and own_forward(module) is None
        and not (module._forward_hooks or module._forward_pre_hooks)
        and _PARAMETERS.issuperset(map(type, module._parameters.values()))
        and isinstance(torch.nn.functional.linear, BuiltinFunctionType)
    )
