"""Modules whose call is torch's own linear function: its code is known, little has to be seen."""

from __future__ import annotations

from types import BuiltinFunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def of_torch(module: torch.nn.Module) -> bool:
    """Whether its call is torch's own linear function on its own parameters, and nothing else."""
    import torch

    kind, functional = type(module), torch.nn.functional
    return (
        kind.forward is torch.nn.Linear.forward
        and kind.__call__ is torch.nn.Module.__call__
        and not {"forward", "_call_impl", "__class__"} & vars(module).keys()
        and not (module._forward_hooks or module._forward_pre_hooks)
        and all(type(p) is torch.nn.Parameter for p in module._parameters.values() if p is not None)
        and isinstance(functional.linear, BuiltinFunctionType)
    )
