"""The tensors of a GPT: names, shapes, which operation reads each, and the stages of one step.

Tensors inside the layers are stacked along axis 0, one file tensor for all layers. ``by_module``
gives the names that a module tree has: ``blocks.attention.q.weight`` at layer 2 is
``blocks.2.attention.q.weight``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flashrt.lab.records import ModelArchitecture, OperationName, StageTemplate
from flashrt_runtime.reason import Reason, Refusal

STACKED = "blocks."


@dataclass(frozen=True)
class TensorPlan:
    """One tensor of the weights file; its shape includes the layer axis where it has one."""

    name: str
    operation: OperationName
    shape: tuple[int, ...]

    @property
    def layer_axis(self) -> int | None:
        """0 for a tensor of the layers, else ``None``."""
        return 0 if self.name.startswith(STACKED) else None


def architecture(
    *, layers: int, width: int, heads: int, context: int, vocabulary: int
) -> ModelArchitecture:
    """A GPT with a feed-forward width of four times the width, and its declared stages.

    Raises :class:`Refusal` (SHAPE) when the heads do not share the width evenly, and CONFLICT for
    a size below one.
    """
    made = ModelArchitecture(
        layers=layers,
        width=width,
        heads=heads,
        feed_forward_width=4 * width,
        context=context,
        vocabulary=vocabulary,
    )
    if width % heads:
        raise Refusal(Reason.SHAPE, f"{heads} heads do not share a width of {width}")
    return replace(made, stages=stages(layers))


def tensors(shape: ModelArchitecture) -> tuple[TensorPlan, ...]:
    """Every tensor of the weights file, in the order of the computation."""
    d, f, n = shape.width, shape.feed_forward_width, shape.layers
    found = [
        TensorPlan("embedding.weight", "Embedding", (shape.vocabulary, d)),
        TensorPlan("position.weight", "PositionEncoding", (shape.context, d)),
    ]

    def pair(name: str, operation: OperationName, rows: int, columns: int | None) -> None:
        weight = (n, rows) if columns is None else (n, rows, columns)
        found.append(TensorPlan(f"{STACKED}{name}.weight", operation, weight))
        found.append(TensorPlan(f"{STACKED}{name}.bias", operation, (n, rows)))

    pair("attention_norm", "Normalization", d, None)
    for projection in ("q", "k", "v", "o"):
        pair(f"attention.{projection}", "Attention", d, d)
    pair("ffn_norm", "Normalization", d, None)
    pair("ffn.fc1", "FeedForward", f, d)
    pair("ffn.fc2", "FeedForward", d, f)
    found.append(TensorPlan("final_norm.weight", "Normalization", (d,)))
    found.append(TensorPlan("final_norm.bias", "Normalization", (d,)))
    found.append(TensorPlan("output.weight", "OutputProjection", (shape.vocabulary, d)))
    return tuple(found)


def by_module(name: str, layer: int) -> str:
    """The name in a module tree of one layer's part of a stacked tensor."""
    return f"{STACKED}{layer}.{name.removeprefix(STACKED)}"


def stages(layers: int) -> tuple[StageTemplate, ...]:
    """The operations of one step in order, each with the stages whose results it reads."""
    found = [
        StageTemplate("position", "PositionEncoding", None, ()),
        StageTemplate("embedding", "Embedding", None, ("position",)),
    ]
    hidden = "embedding"
    for layer in range(layers):
        at = f"{STACKED}{layer}"
        plan: tuple[tuple[str, OperationName, tuple[str, ...]], ...] = (
            ("attention_norm", "Normalization", (hidden,)),
            ("attention", "Attention", (f"{at}.attention_norm",)),
            ("attention_residual", "ResidualAddition", (hidden, f"{at}.attention")),
            ("ffn_norm", "Normalization", (f"{at}.attention_residual",)),
            ("ffn", "FeedForward", (f"{at}.ffn_norm",)),
            ("ffn_residual", "ResidualAddition", (f"{at}.attention_residual", f"{at}.ffn")),
        )
        found += [StageTemplate(f"{at}.{name}", op, layer, after) for name, op, after in plan]
        hidden = f"{at}.ffn_residual"
    found.append(StageTemplate("final_norm", "Normalization", None, (hidden,)))
    found.append(StageTemplate("output", "OutputProjection", None, ("final_norm",)))
    return tuple(found)
