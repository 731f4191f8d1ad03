"""The nodes of one step with their FLOPs and bytes, counted from the sizes.

FLOPs: an addition, multiplication, division, comparison, root, exponential or error function is
one. Bytes: a node reads its inputs and its weights and writes its outputs, four bytes a number
(eight for a token ID); what it makes and uses up within itself is not counted. A row-serial
executor reads its weights once for each position and each position reads the keys and values of
its own prefix; a batched one reads each once a step. The final norm and the output projection are
done for the last position only.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashrt.lab.model.layout import stages
from flashrt.lab.records import ModelArchitecture, Node, StageTemplate

NUMBER = 4
TOKEN = 8


@dataclass(frozen=True)
class Span:
    """``new`` positions computed after ``past`` ones. ``serial``: one at a time."""

    past: int
    new: int
    serial: bool

    @property
    def weight_reads(self) -> int:
        """How often a layer's weights are read."""
        return self.new if self.serial else 1

    @property
    def seen(self) -> int:
        """Positions attended to, summed over the new ones: each sees its prefix and itself."""
        return self.new * self.past + self.new * (self.new + 1) // 2

    @property
    def prefix_reads(self) -> int:
        """Positions whose keys and values are read."""
        return self.seen if self.serial else self.past + self.new


def nodes(shape: ModelArchitecture, span: Span) -> tuple[Node, ...]:
    """The operations of a step in order; every input is a token, a state or an earlier output."""
    return tuple(_node(shape, span, stage) for stage in shape.stages or stages(shape.layers))


def _node(shape: ModelArchitecture, span: Span, stage: StageTemplate) -> Node:
    inputs: tuple[str, ...] = stage.after
    outputs: tuple[str, ...] = (stage.name,)
    if stage.operation == "PositionEncoding":
        inputs = ("positions",)
    elif stage.operation == "Embedding":
        inputs = ("token_ids", *inputs)
    elif stage.operation == "Attention":
        inputs = (*inputs, f"state_before.{stage.layer}")
        outputs = (*outputs, f"state_after.{stage.layer}")
    flops, size = _COUNT[stage.operation](shape, span, stage)
    return Node(stage.name, stage.operation, stage.layer, inputs, outputs, flops, size)


def _linear(inner: int, outer: int) -> int:
    """FLOPs of one row through a map with a bias."""
    return 2 * inner * outer + outer


def _position(shape: ModelArchitecture, span: Span, _: StageTemplate) -> tuple[int, int]:
    return 0, span.new * (TOKEN + 2 * shape.width * NUMBER)


def _embedding(shape: ModelArchitecture, span: Span, _: StageTemplate) -> tuple[int, int]:
    return span.new * shape.width, span.new * (TOKEN + 3 * shape.width * NUMBER)


def _norm(shape: ModelArchitecture, span: Span, stage: StageTemplate) -> tuple[int, int]:
    rows = span.new if stage.layer is not None else 1
    reads = span.weight_reads if stage.layer is not None else 1
    # mean d + 1, centre d, square d, sum d + 1 (mean of squares), epsilon, root, scale d, gain d,
    # bias d
    return rows * (7 * shape.width + 4), (2 * rows + 2 * reads) * shape.width * NUMBER


def _attention(shape: ModelArchitecture, span: Span, _: StageTemplate) -> tuple[int, int]:
    d = shape.width
    # for each position seen: scores 2d, softmax 6 a head (scale, maximum, difference,
    # exponential, sum, division), mix 2d
    flops = span.new * 4 * _linear(d, d) + span.seen * (4 * d + 6 * shape.heads)
    numbers = 2 * span.new * d + span.weight_reads * 4 * (d * d + d)
    numbers += 2 * d * (span.new + span.prefix_reads)
    return flops, numbers * NUMBER


def _residual(shape: ModelArchitecture, span: Span, _: StageTemplate) -> tuple[int, int]:
    return span.new * shape.width, 3 * span.new * shape.width * NUMBER


def _ffn(shape: ModelArchitecture, span: Span, _: StageTemplate) -> tuple[int, int]:
    d, f = shape.width, shape.feed_forward_width
    # gelu: x / sqrt(2), erf, + 1, * x, / 2
    flops = span.new * (_linear(d, f) + 5 * f + _linear(f, d))
    return flops, (2 * span.new * d + span.weight_reads * (2 * d * f + f + d)) * NUMBER


def _output(shape: ModelArchitecture, _: Span, __: StageTemplate) -> tuple[int, int]:
    d, v = shape.width, shape.vocabulary
    return 2 * d * v, (d + v * d + v) * NUMBER


_COUNT = {
    "PositionEncoding": _position,
    "Embedding": _embedding,
    "Normalization": _norm,
    "Attention": _attention,
    "ResidualAddition": _residual,
    "FeedForward": _ffn,
    "OutputProjection": _output,
}
