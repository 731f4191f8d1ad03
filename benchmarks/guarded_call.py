"""One guarded call of a seam, beside one call of an empty ``nn.Module``.

The seam's implementation does nothing, so that what is timed is the guard: device, dtype, width,
rows, thread, hooks, and the count. Bar: 0.65 of the empty module call.
"""

from __future__ import annotations

from typing import Any

import torch
from interleave import interleave, show
from torch import nn

from flashrt_runtime.contract import BoundSeam, Seam
from flashrt_runtime.guard import FormContract
from flashrt_runtime.swap import Swap, attach

WIDTH = 64


class Empty(nn.Module):
    """Returns its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As it came."""
        return x


class Host(nn.Module):
    """A host with one module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Empty()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through the one module."""
        return self.inner(x)


def guarded() -> tuple[Any, Any]:
    """A seat around an empty body, and the handle that counts its calls."""
    host = Host().eval()
    seam = Seam("inner", "linear_proj@1", {"self": "inner"}, {}, {"K": WIDTH, "N": WIDTH}, {})
    bound = BoundSeam({"self": Empty()}, "flashrt::nothing", 0)
    contract = FormContract(torch.device("cpu"), torch.float32, WIDTH, (1, 4))
    handle = attach(host, [Swap(seam, bound, contract, "empty", "eager")])
    return host.inner, handle


def main(rounds: int = 201, repeat: int = 5000) -> None:
    """Print the table."""
    x = torch.zeros(1, 1, WIDTH)
    seat, handle = guarded()
    module = Empty().eval()

    def bare(value: torch.Tensor) -> torch.Tensor:
        return value

    def many(call: Any) -> Any:
        def arm() -> None:
            for _ in range(repeat):
                call(x)

        return arm

    with torch.inference_mode():
        arms = {
            "empty nn.Module call": many(module),
            "guarded seam call": many(seat),
            "bare function call": many(bare),
        }
        samples = interleave(arms, rounds, scale=1 / repeat)
    show(
        "One guarded call (bar: 0.65 of an empty nn.Module call)",
        samples,
        "us",
        "empty nn.Module call",
        note=f"each arm includes the loop's own cost; {handle.summary()['calls']} calls counted",
    )


if __name__ == "__main__":
    main()
