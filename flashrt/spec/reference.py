"""A structure's reference and cost function, loaded from its catalog folder and called one way."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.spec import dims
from flashrt.spec.call import (
    boundary_dtype,
    given,
    shape_of,
    shapes_of,
    wanted_names,
    whole_state,
)
from flashrt.spec.model import StructureSpec, TensorSpec
from flashrt.spec.registry import catalog_root
from flashrt.spec.repeat import base
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True)
class Cost:
    """Fewest floating-point operations and bytes of one call."""

    flops: float
    bytes: float


@dataclass(frozen=True)
class Reference:
    """The gate's ground truth of one structure.

    Every method takes tensors by the spec's own names: ``inputs`` and ``weights`` as ``[M, …]`` or
    with any leading dims, ``variant`` by axis. A tensor that the spec repeats is given and returned
    as ``name.0``, ``name.1``, …. Raises :class:`Refusal`: BINDING for a name, slot or variant the
    spec does not have or that is missing, for a gap in repeated tensors and for state given in
    part; SHAPE for contradicting shapes (both sources named) and broken constraints; AMBIGUOUS
    where the shapes can be read in two ways; DTYPE for an input that is not of its fixed dtype;
    STRUCTURE when the reference itself fails.
    """

    spec: StructureSpec
    function: Callable[..., Any]
    cost_function: Callable[..., Any]

    def run(self, inputs: Tensors, weights: Tensors, variant: Mapping[str, str]) -> dict[str, Any]:
        """The outputs by name."""
        return self._some(self.spec.outputs, inputs, weights, variant)

    def points(
        self, inputs: Tensors, weights: Tensors, variant: Mapping[str, str]
    ) -> dict[str, Any]:
        """The tensor at each calibration point by name."""
        return self._some(self.spec.points, inputs, weights, variant)

    def everything(
        self, inputs: Tensors, weights: Tensors, variant: Mapping[str, str]
    ) -> dict[str, Any]:
        """Outputs and points by name, from one run; a name that is both is one tensor."""
        return self._some({**self.spec.points, **self.spec.outputs}, inputs, weights, variant)

    def dims(self, inputs: Tensors, weights: Tensors, variant: Mapping[str, str]) -> dict[str, int]:
        """The symbolic dims that these tensors, the variant and the constraints give a size."""
        full = self.spec.complete(variant)
        found = given("input", self.spec.inputs, inputs, full)
        found += given("slot", self.spec.slots, weights, full)
        whole_state(self.spec, inputs, full)
        return dims.solve(
            [*self.spec.said(full), *shapes_of(self.spec, found)], constraints=self.spec.constraints
        )

    def outputs_fit(self, inputs: Tensors, weights: Tensors, variant: Mapping[str, str]) -> None:
        """Run once and hold every output and point against the spec.

        Raises :class:`Refusal`: SHAPE where the sizes contradict the inputs', DTYPE where the spec
        says another dtype, NONFINITE for a value that is NaN or infinite.
        """
        import torch

        full = self.spec.complete(variant)
        sizes = self.dims(inputs, weights, full)
        bound = boundary_dtype(self.spec, inputs)
        for group in (self.spec.outputs, self.spec.points):
            for name, value in self._some(group, inputs, weights, full).items():
                tensor = group[base(name)]
                said = f"its reference's {name}"
                shape = shape_of(self.spec, tensor, tuple(value.shape))
                dims.solve(dims.equations(tensor.dims, shape, said), sizes)
                fixed = tensor.dtype if tensor.dtype != "@binding" else bound
                if group is self.spec.outputs and fixed and str(value.dtype) != f"torch.{fixed}":
                    raise Refusal(
                        Reason.DTYPE, f"{said} is {value.dtype}, not {fixed}", subject=self.spec.id
                    )
                if not bool(torch.isfinite(value).all()):
                    raise Refusal(Reason.NONFINITE, f"{said} is not finite", subject=self.spec.id)

    def cost(
        self,
        sizes: Mapping[str, int],
        variant: Mapping[str, str],
        weight_bytes: float = 4.0,
        activation_bytes: float = 4.0,
    ) -> Cost:
        """The cost of one call; bytes are per element.

        ``sizes`` are the spec's dims, less those that a constraint or the variant gives and those
        that only optional tensors or tensors of another variant have: such a tensor that is not
        there has size 0.
        """
        full = self.spec.complete(variant)
        sizes = dims.solve(
            self.spec.said(full), sizes, constraints=self.spec.constraints, partial=True
        )
        sizes = dict.fromkeys(self.spec.optional_dims(full), 0) | sizes
        missing = sorted(set(self.spec.dims) - set(sizes))
        if missing:
            raise Refusal(
                Reason.SHAPE,
                f"the dim {missing[0]} has no size",
                subject=self.spec.id,
                do=f"give {missing[0]}: {self.spec.dims[missing[0]]}",
            )
        try:
            flops, moved = self.cost_function(sizes, full, weight_bytes, activation_bytes)
            cost = Cost(float(flops), float(moved))
        except Exception as error:
            raise _broken(self.spec, "its cost function failed", error) from error
        if not (cost.flops >= 0 and cost.bytes > 0):
            raise Refusal(Reason.STRUCTURE, f"{cost} is not a cost", subject=self.spec.id)
        return cost

    def _some(
        self,
        wanted: Mapping[str, TensorSpec],
        inputs: Tensors,
        weights: Tensors,
        variant: Mapping[str, str],
    ) -> dict[str, Any]:
        import torch

        full = self.spec.complete(variant)
        sizes = self.dims(inputs, weights, full)
        try:
            with torch.no_grad():
                out = self.function(dict(inputs), dict(weights), full)
        except Exception as error:
            raise _broken(self.spec, "its reference failed", error) from error
        return {name: _returned(self.spec, out, name) for name in wanted_names(wanted, full, sizes)}


def _returned(spec: StructureSpec, out: Any, name: str) -> Any:
    import torch

    if not isinstance(out, Mapping) or not isinstance(out.get(name), torch.Tensor):
        raise Refusal(
            Reason.STRUCTURE,
            f"its reference returned no tensor {name}",
            subject=spec.id,
            do="return every output and every point by name",
        )
    return out[name]


def _broken(spec: StructureSpec, what: str, error: BaseException) -> Refusal:
    said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return Refusal(
        Reason.STRUCTURE,
        f"{what}: {said}",
        subject=f"{spec.id} ({spec.reference})",
        do="a structure without a reference that runs cannot gate anything: repair the file",
    )


def trusted(path: Path, trust: Iterable[Path] = ()) -> bool:
    """Whether code in this file may run: it is in the packaged catalog or in a trusted folder."""
    real = path.resolve()
    return any(real.is_relative_to(folder.resolve()) for folder in (catalog_root(), *trust))


def load_reference(spec: StructureSpec, trust: Iterable[Path] = ()) -> Reference:
    """The spec's reference, executed from its file.

    Only files of the packaged catalog and of the folders in ``trust`` are executed. Raises
    :class:`Refusal` (STRUCTURE) for any other file, one that is missing, fails at import or lacks
    ``reference`` or ``cost``, and for a pipeline, whose reference is the unmodified host.
    """
    if spec.reference is None:
        raise Refusal(
            Reason.STRUCTURE,
            "the unmodified host is its reference",
            subject=spec.id,
            do="run the host",
        )
    if not trusted(spec.reference, trust):
        raise Refusal(
            Reason.STRUCTURE,
            "its reference is code outside the packaged catalog",
            subject=f"{spec.id} ({spec.reference})",
            do="read it, then name its catalog folder with --catalog (trust=[FOLDER])",
        )
    name = f"flashrt_catalog_{spec.name}_v{spec.version}"
    found = importlib.util.spec_from_file_location(name, spec.reference)
    if found is None or found.loader is None:
        raise Refusal(Reason.STRUCTURE, "its reference is not Python", subject=spec.id)
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _broken(spec, "its reference does not load", error) from error
    for function in ("reference", "cost"):
        if not callable(getattr(module, function, None)):
            raise Refusal(
                Reason.STRUCTURE,
                f"its reference file has no function {function}",
                subject=f"{spec.id} ({spec.reference})",
                do=f"define {function}(…) in it",
            )
    return Reference(spec, module.reference, module.cost)
