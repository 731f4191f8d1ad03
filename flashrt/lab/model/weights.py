"""The numbers of a model as the bytes of one safetensors file: nothing can change them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashrt.document.problem import InputError
from flashrt.lab.model.layout import by_module, tensors
from flashrt.lab.records import ModelArchitecture, ModelWeights, WeightTensor
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import torch

FILE = "weights.safetensors"
PRECISION = "float32"


@dataclass(frozen=True)
class WeightsFile:
    """``data`` is the file. Tensors are made from it anew each time they are asked for."""

    data: bytes

    @classmethod
    def pack(cls, named: Mapping[str, torch.Tensor]) -> WeightsFile:
        """The file of float32 tensors by name (stacked names, see :mod:`.layout`)."""
        from safetensors.torch import save

        return cls(save({name: named[name].detach().contiguous() for name in sorted(named)}))

    @property
    def sha256(self) -> str:
        """``sha256:<hex>`` of the file."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def stacked(self, shape: ModelArchitecture, source: str = FILE) -> dict[str, torch.Tensor]:
        """Fresh tensors as the file has them, held against the architecture.

        Raises :class:`InputError` (named ``source``) for a file that is no safetensors, a tensor
        that is missing, unknown, of another shape or dtype, or not finite.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        do = "prepare the artifact again"
        try:
            found = load(self.data)
        except (SafetensorError, ValueError) as error:
            raise InputError(source, 1, "$", f"not safetensors: {error}", do) from error
        plan = {tensor.name: tensor.shape for tensor in tensors(shape)}
        for name in sorted(plan.keys() ^ found.keys()):
            what = "the tensor is missing" if name in plan else "no tensor of this architecture"
            raise InputError(source, 1, f"$.{name}", what, do)
        for name, size in plan.items():
            tensor = found[name]
            if tuple(tensor.shape) != size or str(tensor.dtype) != f"torch.{PRECISION}":
                seen = f"{tensor.dtype} {list(tensor.shape)}".removeprefix("torch.")
                what = f"{seen} where {PRECISION} {list(size)} is expected"
                raise InputError(source, 1, f"$.{name}", what, do)
            if not bool(tensor.isfinite().all()):
                what = "a number is not finite"
                raise InputError(source, 1, f"$.{name}", what, do, reason=Reason.NONFINITE)
        # A copy: the allocator's own alignment, whatever the file's is.
        return {name: found[name].clone() for name in plan}

    def state_dict(self, shape: ModelArchitecture) -> dict[str, torch.Tensor]:
        """Fresh tensors by the names of a module tree, one for each layer."""
        made: dict[str, torch.Tensor] = {}
        stacked = self.stacked(shape)
        for plan in tensors(shape):
            if plan.layer_axis is None:
                made[plan.name] = stacked[plan.name]
                continue
            for layer in range(shape.layers):
                made[by_module(plan.name, layer)] = stacked[plan.name][layer].clone()
        return made

    def identity(self, shape: ModelArchitecture) -> ModelWeights:
        """Every tensor by name, operation and content."""
        stacked = self.stacked(shape)
        return ModelWeights(
            tuple(
                WeightTensor(
                    name=plan.name,
                    operation=plan.operation,
                    layer_axis=plan.layer_axis,
                    dtype=PRECISION,
                    shape=plan.shape,
                    sha256="sha256:"
                    + hashlib.sha256(stacked[plan.name].numpy().tobytes()).hexdigest(),
                )
                for plan in sorted(tensors(shape), key=lambda plan: plan.name)
            )
        )
