"""How far an adopted layer is from the one that the library would run, on one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from flashrt.doors.packed.source import Source


@dataclass(frozen=True)
class OutputError:
    """One layer's output on the first input it was called with, ‖ours − theirs‖ / ‖theirs‖.

    ``against_dense``: theirs is the unpacked matrix times the input as it is; most of it is the
    format's rounding of activations. ``against_library``: theirs is the unpacked matrix times the
    input as the library's own layer rounds it; this is the conversion's share. ``rows`` were seen.
    """

    rows: int
    against_dense: float
    against_library: float

    def __str__(self) -> str:
        return (
            f"output error {self.against_dense:.2e} against the dense product, "
            f"{self.against_library:.2e} against the library's layer ({self.rows} rows)"
        )


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """‖ours − theirs‖ / ‖theirs‖ in float64; 0 where both are all zeros, infinite where one is."""
    gap = float((ours.double() - theirs.double()).norm())
    size = float(theirs.double().norm())
    if gap == 0.0:
        return 0.0
    return gap / size if size > 0.0 else float("inf")


def output_errors(
    model: torch.nn.Module,
    sources: Sequence[Source],
    forward: Callable[[torch.nn.Module], Any],
) -> dict[str, OutputError]:
    """Run ``forward(model)`` once; every layer that it calls is compared on its first input.

    A matrix is unpacked while its layer is compared and then dropped.
    """
    import torch

    found: dict[str, OutputError] = {}

    def compare(source: Source) -> Callable[[Any, Any, Any], None]:
        def hook(_: Any, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
            if source.path in found:
                return
            x = given[0].detach().to(torch.float32)
            matrix, bias = source.dense(), source.bias
            bias = None if bias is None else bias.to(torch.float32)
            product = torch.nn.functional.linear
            found[source.path] = OutputError(
                rows=x.numel() // x.shape[-1],
                against_dense=relative(out, product(x, matrix, bias)),
                against_library=relative(out, product(source.seen(x), matrix, bias)),
            )

        return hook

    handles = [
        model.get_submodule(source.path).register_forward_hook(compare(source))
        for source in sources
    ]
    try:
        with torch.no_grad():
            forward(model)
    finally:
        for handle in handles:
            handle.remove()
    return found
