"""decoder_ffn in e4m3 for CUDA: norm and quantise, gated product, down product, by Triton."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from flashrt_runtime.impls.shared import fp8
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.body import FFN, SeamBody, size, smoke
from flashrt_runtime.impls.shared.launch import Launch
from flashrt_runtime.impls.shared.operator import activated

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal

OPERATOR = "flashrt::decoder_ffn_triton_fp8"
KERNELS = "flashrt_runtime.impls.decoder_ffn.triton_fp8_kernels"
NORMS = {"host": 0, "rms_direct": 1, "rms_offset": 2}
ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}
TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
E4M3 = "*fp8e4nv"


def launches(
    form: str, dims: Mapping[str, int], variant: Mapping[str, str], dtype: torch.dtype
) -> tuple[Launch, Launch, Launch]:
    """The three launches of one call, in order.

    ``dims`` has D and F, multiples of 32; ``dtype`` is the boundary's.
    """
    width, hidden = dims["D"], dims["F"]
    rows = 16 if form == "decode" else 64
    columns = 64 if form == "decode" else 128
    boundary = TYPES[dtype]
    block = 1 << (width - 1).bit_length()
    norm = Launch(
        kernel="norm_quantise",
        types={"x": boundary, "norm": "*fp32", "reciprocal": "*fp32", "out": E4M3},
        constants={
            "WIDTH": width,
            "NORM": NORMS[variant["norm"]],
            "EPS": float(variant.get("eps", "1e-06")),
            "BLOCK": block,
        },
        warps=4,
        stages=1,
    )
    gated = Launch(
        kernel="gated_product",
        types={
            "x": E4M3,
            "gate": E4M3,
            "up": E4M3,
            "gate_scale": "*fp32",
            "up_scale": "*fp32",
            "reciprocal": "*fp32",
            "out": E4M3,
            "rows": "i32",
        },
        constants={
            "N": hidden,
            "K": width,
            "ACTIVATION": ACTIVATIONS[variant["activation"]],
            "BLOCK_M": rows,
            "BLOCK_N": 64,
            "BLOCK_K": _inner(width),
        },
        warps=4,
        stages=3,
        row_block=rows,
        column_blocks=(hidden + 63) // 64,
    )
    down = Launch(
        kernel="product",
        types={"x": E4M3, "weight": E4M3, "scale": "*fp32", "out": boundary, "rows": "i32"},
        constants={
            "N": width,
            "K": hidden,
            "BLOCK_M": rows,
            "BLOCK_N": columns,
            "BLOCK_K": _inner(hidden),
        },
        warps=4,
        stages=3,
        row_block=rows,
        column_blocks=(width + columns - 1) // columns,
    )
    return norm, gated, down


def _inner(width: int) -> int:
    """The largest block of the inner dim that divides it: no load along it needs a mask."""
    return next(block for block in (128, 64, 32) if width % block == 0)


def run(
    calls: tuple[Launch, Launch, Launch], x: torch.Tensor, packed: list[torch.Tensor]
) -> torch.Tensor:
    """Launch the three kernels over ``x`` [rows, D]; returns [rows, D] in the dtype of ``x``.

    ``packed`` is ``[norm, gate, gate_scale, up, up_scale, down, down_scale, x_reciprocal,
    hidden_reciprocal]``. Runs on the device of ``x``, and on a CPU under Triton's interpreter.
    """
    kernels = importlib.import_module(KERNELS)
    norm, gate, gate_scale, up, up_scale, down, down_scale, opening, closing = packed
    rows, width = x.shape
    steps = torch.empty((rows, width), dtype=torch.float8_e4m3fn, device=x.device)
    hidden = torch.empty((rows, gate.shape[0]), dtype=torch.float8_e4m3fn, device=x.device)
    y = torch.empty_like(x)
    _launch(kernels, calls[0], rows, x, norm, opening, steps)
    _launch(kernels, calls[1], rows, steps, gate, up, gate_scale, up_scale, closing, hidden, rows)
    _launch(kernels, calls[2], rows, hidden, down, down_scale, y, rows)
    return y


def _launch(kernels: Any, call: Launch, rows: int, *arguments: Any) -> None:
    kernel = getattr(kernels, call.kernel)
    named = dict(zip(call.types, arguments, strict=True))
    kernel[call.grid(rows)](**named, **call.constants, **call.options())


def _operator(x: torch.Tensor, packed: list[torch.Tensor], recipe: str, seam: str) -> torch.Tensor:
    form, norm, eps, activation = recipe.split(":")
    variant = {"norm": norm, "eps": eps, "activation": activation}
    calls = launches(form, {"D": x.shape[-1], "F": packed[1].shape[0]}, variant, x.dtype)
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    return run(calls, rows, packed).reshape(x.shape)


torch.library.define(
    OPERATOR,
    "(Tensor x, Tensor[] packed, str recipe, str seam) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.impl(OPERATOR, "CUDA")(_operator)


@torch.library.register_fake(OPERATOR)
def _fake(x: torch.Tensor, packed: list[torch.Tensor], recipe: str, seam: str) -> torch.Tensor:
    return x.new_empty(x.shape)


class TritonFfnBody(SeamBody):
    """``forward(x [..., D]) -> [..., D]`` by one operator call."""

    def __init__(self, packed: list[torch.Tensor], recipe: str, seam: str) -> None:
        super().__init__(OPERATOR, recipe, seam)
        self.hold("weight", packed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., D] on a CUDA device, of at most the form's rows; same shape and dtype out."""
        return self.operator(x, self.held("weight"), self.kernel, self.seam)


def pack(request: BindRequest) -> list[torch.Tensor]:
    """The seam's tensors in the order that :func:`run` takes, on the device of the weights.

    Raises :class:`Refusal`: FORM for a bias, LAYOUT for widths that are not multiples of 32, and
    whatever is wrong with weights and scales.
    """
    for slot in FFN:
        if f"{slot}_bias" in request.weights:
            raise Refusal(
                Reason.FORM, f"it does not execute the slot {slot}_bias", subject=request.seam.id
            )
    matrices = {slot: asked.weight(request, slot) for slot in FFN}
    asked.shapes(request, **matrices)
    hidden, width = matrices["gate"].shape
    if width % 32 or hidden % 32:
        raise Refusal(
            Reason.LAYOUT,
            f"the widths are {width} and {hidden}; both must be multiples of 32",
            subject=request.seam.id,
        )
    norm = torch.ones(width, device=matrices["gate"].device)
    if request.seam.variant["norm"] != "host":
        given = asked.bias(request, "norm", width)
        if given is None:
            raise Refusal(
                Reason.BINDING, "the weight slot 'norm' was not given", subject=request.seam.id
            )
        norm = given
    before = asked.scale(request, "x_after_norm")
    after = asked.scale(request, "act_after_mul")
    gate, gate_scale, opening = fp8.pack(matrices["gate"], before)
    up, up_scale, _ = fp8.pack(matrices["up"], before)
    down, down_scale, closing = fp8.pack(matrices["down"], after)
    return [norm, gate, gate_scale, up, up_scale, down, down_scale, opening, closing]


def bind(request: BindRequest) -> BoundSeam:
    """Pack the weights and launch once. Raises :class:`Refusal`; DEVICE when not on CUDA."""
    device = request.weights["gate"].device
    if device.type != "cuda":
        raise Refusal(
            Reason.DEVICE,
            f"the weights are on {device}; it runs on CUDA",
            subject=request.seam.id,
            do="move the host to the device before it is bound",
        )
    packed = pack(request)
    variant = request.seam.variant
    eps = variant.get("eps", "1e-06")
    recipe = f"{request.form}:{variant['norm']}:{eps}:{variant['activation']}"
    body = TritonFfnBody(packed, recipe, request.seam.id)
    width = packed[5].shape[0]
    smoke(body, width, width, request.seam.id, like=request.weights["gate"])
    return BoundSeam({"self": body}, OPERATOR, size(packed), {"kernel": "triton"})


def interpret(request: BindRequest, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same kernels on a CPU under Triton's interpreter, and torch's arithmetic beside them.

    ``x`` [..., D]. Returns ``y`` and ``steps`` (what the first kernel quantised, as float32) and,
    computed by torch from the same packed tensors, ``torch_y`` and ``torch_steps``.
    """
    packed = pack(request)
    norm, gate, gate_scale, up, up_scale, down, down_scale, opening, closing = packed
    variant = request.seam.variant
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    dims = {"D": x.shape[-1], "F": gate.shape[0]}
    calls = launches(request.form, dims, variant, x.dtype)
    kernels = importlib.import_module(KERNELS)
    steps = torch.empty_like(rows, dtype=torch.float8_e4m3fn)
    _launch(kernels, calls[0], rows.shape[0], rows, norm, opening, steps)
    wide = rows.float()
    if variant["norm"] != "host":
        eps = float(variant["eps"])
        gain = norm + (1.0 if variant["norm"] == "rms_offset" else 0.0)
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * gain
    unit = torch.ones_like(opening)
    expected = (wide * opening).clamp(-fp8.LARGEST, fp8.LARGEST).to(torch.float8_e4m3fn)
    held = expected.float()
    opened = fp8.product(held, [gate, gate_scale, unit], "widen")
    raised = fp8.product(held, [up, up_scale, unit], "widen")
    hidden = activated(opened, variant["activation"]) * raised
    y = fp8.product(hidden, [down, down_scale, closing], "widen")
    return {
        "y": run(calls, rows, packed).reshape(x.shape),
        "steps": steps.float(),
        "torch_y": y.to(x.dtype).reshape(x.shape),
        "torch_steps": held,
    }
