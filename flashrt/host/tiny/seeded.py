"""Weights that are the same in every process and large enough that a wrong one shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@contextmanager
def seed(number: int) -> Iterator[None]:
    """Torch's global random state is ``number``'s inside, and what it was before outside."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        yield


def instance(make: Callable[[], Any], number: int = 0) -> Any:
    """The module that ``make`` returns: float32, evaluation mode, no gradients, drawn weights.

    Vectors (norms, biases) are moved off their initial ones and zeros by up to a fifth, so that a
    forgotten gain or bias changes the numbers; matrices are scaled to keep rows of unit size.
    """
    import torch

    with seed(number):
        model: torch.nn.Module = make().float().eval().requires_grad_(False)
        source = torch.Generator().manual_seed(number)
        for parameter in model.parameters():
            if parameter.ndim <= 1:
                parameter.add_(0.4 * torch.rand(parameter.shape, generator=source) - 0.2)
            else:
                fan = parameter[0].numel()
                parameter.copy_(torch.randn(parameter.shape, generator=source) / fan**0.5)
    return model


def frozen(forward: Callable[[], object], number: int = 1) -> Callable[[], object]:
    """``forward`` without gradients and with the same random draws in every call."""

    def once() -> object:
        import torch

        with torch.no_grad(), seed(number):
            return forward()

    return once
