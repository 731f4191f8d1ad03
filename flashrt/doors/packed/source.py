"""The packed layers of a model that compressed-tensors loaded and has not decompressed yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

DENSE = "to run it dense, load it with transformers' CompressedTensorsConfig(dequantize=True)"


@dataclass(frozen=True)
class Source:
    """One packed layer: its module, the library's scheme, its own tensors by name, and [N, K]."""

    path: str
    module: torch.nn.Module
    format: str
    scheme: Any
    tensors: Mapping[str, torch.Tensor]
    shape: tuple[int, int]

    @property
    def bytes(self) -> int:
        """Memory of the layer as the checkpoint packs it."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias [N], if there is one."""
        return self.tensors.get("bias")

    def dense(self) -> torch.Tensor:
        """The matrix [N, K] that the format's registered compressor unpacks, as float32.

        The library's own dtype of it may be narrower: NVFP4 is unpacked to bfloat16.
        """
        import torch

        return self._unpacked().to(torch.float32)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the library unpacks the matrix to."""
        return self._unpacked().dtype

    def _unpacked(self) -> torch.Tensor:
        import torch
        from compressed_tensors.compressors import BaseCompressor

        compressor = BaseCompressor.get_value_from_registry(self.format)
        with torch.no_grad():
            weight: torch.Tensor = compressor.decompress(dict(self.tensors), self.scheme)["weight"]
        return weight.detach()

    def seen(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., K] as the library's own layer rounds it before its product."""
        from compressed_tensors.quantization.lifecycle.forward import forward_quantize

        rounded: torch.Tensor = forward_quantize(
            self.module, x, "input", self.scheme.input_activations
        )
        return rounded

    def seam(self) -> Seam:
        """The layer as a linear_proj seam; its path is its id."""
        return Seam(
            id=self.path,
            structure="linear_proj@1",
            members={"self": self.path},
            variant={"bias": "none" if self.bias is None else "present", "epilogue": "none"},
            dims={"K": self.shape[1], "N": self.shape[0]},
            weights={name: f"{self.path}.{name}" for name in self.tensors},
            points={"x": Point(self.path, "input")},
        )


@dataclass(frozen=True)
class Form:
    """An impl's form ``{"structure", "backend", "form"}`` and its packed slots."""

    impl: Mapping[str, str]
    slots: Mapping[str, torch.Tensor]


def linear(backend: str, form: str) -> dict[str, str]:
    """The record of a linear_proj form."""
    return {"structure": "linear_proj@1", "backend": backend, "form": form}


def differs(args: Any, wanted: Mapping[str, tuple[Any, ...]]) -> str:
    """The first argument of a library's quantisation that is none of those wanted; else empty."""
    for name, values in wanted.items():
        value = getattr(args, name)
        if value not in values:
            shown = getattr(value, "value", value)
            return f"{name} is {shown}; {' or '.join(map(str, values))} is executed"
    return ""


def refuse(source: Source, what: str) -> Refusal:
    """A FORM refusal of one layer."""
    return Refusal(Reason.FORM, f"{source.format}: {what}", subject=source.path, do=DENSE)


def packed_layers(model: torch.nn.Module) -> tuple[Source, ...]:
    """Every packed layer, in the model's order.

    Raises :class:`Refusal`: STRUCTURE when there is none or the model itself is one, FORM when a
    layer is no projection, is not packed (any more) or rounds its output too, TIED when several
    paths reach one.
    """
    counts: dict[int, int] = {}
    named = list(model.named_modules(remove_duplicate=False))
    for _, module in named:
        counts[id(module)] = counts.get(id(module), 0) + 1
    found = []
    for path, module in named:
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None:
            continue
        shape = _require_projection(path, module, scheme)
        if not path:
            raise Refusal(
                Reason.STRUCTURE,
                "the model is itself one packed layer: nothing holds it, to hold an impl instead",
                subject=type(module).__name__,
                do="give the module that holds it",
            )
        if counts[id(module)] > 1:
            what = f"{counts[id(module)]} paths reach this layer"
            raise Refusal(Reason.TIED, what, subject=path, do=DENSE)
        tensors = {name: tensor.detach() for name, tensor in _own(module)}
        name = str(getattr(scheme.format, "value", scheme.format))
        found.append(Source(path, module, name, scheme, tensors, shape))
    if not found:
        raise Refusal(
            Reason.STRUCTURE,
            f"no layer of it is packed{_method(model)}",
            subject=type(model).__name__,
            do="give a checkpoint whose config.json says quant_method compressed-tensors and "
            "quantization_status compressed; a dense model goes to attach or auto_swaps",
        )
    return tuple(found)


def _own(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(recurse=False)
    yield from module.named_buffers(recurse=False)


def _require_projection(path: str, module: torch.nn.Module, scheme: Any) -> tuple[int, int]:
    import torch

    if not isinstance(module, torch.nn.Linear):
        what = f"a {type(module).__name__} is quantised; only projections have a packed form"
        raise Refusal(Reason.FORM, what, subject=path, do=DENSE)
    status = str(getattr(module.quantization_status, "value", module.quantization_status))
    if status != "compressed":
        raise Refusal(
            Reason.FORM,
            f"the layer is {status}, so its packed tensors are not there",
            subject=path,
            do="load the checkpoint again and adopt it before the first forward, which unpacks it",
        )
    if scheme.output_activations is not None:
        what = "the layer's output is quantised as well, which no form executes"
        raise Refusal(Reason.FORM, what, subject=path, do=DENSE)
    return module.out_features, module.in_features


def _method(model: torch.nn.Module) -> str:
    """Who else quantised it, as its config says."""
    config = getattr(getattr(model, "config", None), "quantization_config", None)
    method = config.get("quant_method") if isinstance(config, dict) else None
    method = method or getattr(config, "quant_method", None)
    return f" (its config says {getattr(method, 'value', method)})" if method else ""
