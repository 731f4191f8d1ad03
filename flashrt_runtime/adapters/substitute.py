"""Lets a host's own forward run with another function where it attends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as f
from torch.overrides import TorchFunctionMode


class Substitute(TorchFunctionMode):
    """While it is entered, ``attend`` runs where scaled_dot_product_attention is called.

    ``attend`` has that function's signature and may call it itself.
    """

    def __init__(self, attend: Callable[..., Any]) -> None:
        super().__init__()
        self.attend = attend

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The call itself, or ``attend`` in its place."""
        if func is f.scaled_dot_product_attention:
            return self.attend(*args, **(kwargs or {}))
        if func is torch.Tensor.unflatten:  # the method is Python that a compiler cannot enter here
            return torch.unflatten(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))
