"""``get(name)``: one structure by name, to bind to one module by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.doors.observe import feed_of
from flashrt.doors.swaps import Sampling, SwapPlan, plan_swaps, stated
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt.scheme.overrides import Overrides
    from flashrt.spec import StructureSpec


@dataclass(frozen=True)
class Region:
    """A structure of the catalog. ``spec`` is its spec."""

    spec: StructureSpec

    def bind(
        self,
        module: torch.nn.Module,
        calibration: Sequence[Any],
        *,
        scheme: str = "fp16_weight",
        percentile: float = 99.9,
        overrides: str | Path | Overrides | None = None,
    ) -> torch.nn.Module:
        """The executable form of this structure in ``module``, bound from the module's weights.

        ``calibration`` are inputs that ``module`` is called with, one sample each. The result is a
        module of its own; ``module`` is left as it is. ``overrides`` as :func:`flashrt.auto_swaps`;
        the seam's id in them is ``module``. Raises :class:`Refusal` (STRUCTURE) when the
        module is not exactly one seam of this structure, and what discovery and binding raise.
        """
        import torch

        # Seams are named by their path, and a root has none: it becomes a child of a root.
        root = torch.nn.ModuleDict({"module": module})
        root.training = module.training
        feed = feed_of(module, list(calibration))
        asked = Sampling(percentile, overrides=stated(overrides))
        made = plan_swaps(root, feed, scheme, asked, structure=self.spec.id)
        return _body(made, self.spec.id)


def _body(made: SwapPlan, structure: str) -> torch.nn.Module:
    if len(made.swaps) != 1 or len(made.swaps[0].bound.bodies) != 1:
        why = "; ".join(str(because) for because in (*made.kept, *made.refusals)[:3])
        raise Refusal(
            Reason.STRUCTURE,
            f"{len(made.swaps)} seams bind here, one of one module was wanted"
            + (f": {why}" if why else ""),
            subject=structure,
            do="give the module that is the seam, or use auto_swaps on the model",
        )
    return next(iter(made.swaps[0].bound.bodies.values()))


def get(name: str) -> Region:
    """A region structure of the catalog, ``decoder_ffn`` or ``decoder_ffn@1``.

    Raises :class:`Refusal`: STRUCTURE for an unknown name or a pipeline, RETIRED.
    """
    from flashrt.spec import load

    spec = load(name)
    if spec.kind.value != "region":
        raise Refusal(Reason.STRUCTURE, "a pipeline is not bound to a module", subject=spec.id)
    return Region(spec)
