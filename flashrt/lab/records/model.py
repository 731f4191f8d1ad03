"""What a model is: dimensions, weights by identity, and its seven operations as nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from flashrt.lab.records.base import Checked, Record, Says

OperationName = Literal[
    "Embedding",
    "PositionEncoding",
    "Normalization",
    "Attention",
    "ResidualAddition",
    "FeedForward",
    "OutputProjection",
]


@dataclass(frozen=True)
class StageTemplate(Record):
    """One stage of a runtime in order, for explanation only: nothing was observed."""

    name: Annotated[str, Says("The stage's name, unique in its architecture.")]
    operation: Annotated[OperationName, Says("The operation that the stage does.")]
    layer: Annotated[int | None, Says("The layer it is in; none outside the layers.", "layer")]
    after: Annotated[tuple[str, ...], Says("Names of the stages whose results it reads.")]


@dataclass(frozen=True)
class ModelArchitecture(Checked):
    """Dimensions and numerical conventions of a GPT that this lab can execute."""

    layers: Annotated[int, Says("Transformer layers.", "layers", least=1)]
    width: Annotated[int, Says("Numbers in one position's hidden vector.", "numbers", least=1)]
    heads: Annotated[int, Says("Attention heads; they share the width.", "heads", least=1)]
    feed_forward_width: Annotated[int, Says("Numbers between the two maps.", "numbers", least=1)]
    context: Annotated[int, Says("Positions that a sequence may have.", "positions", least=1)]
    vocabulary: Annotated[int, Says("Tokens that can be read and predicted.", "tokens", least=1)]
    epsilon: Annotated[float, Says("Added to the variance before its root is taken.", "1")] = 1e-5
    activation: Annotated[Literal["gelu", "gelu_tanh"], Says("Between the two maps.")] = "gelu"
    attention: Annotated[Literal["causal_softmax"], Says("How positions are mixed.")] = (
        "causal_softmax"
    )
    position_encoding: Annotated[
        Literal["learned_absolute"], Says("How positions are represented.")
    ] = "learned_absolute"
    stages: Annotated[
        tuple[StageTemplate, ...], Says("The stages of one step, for explanation.")
    ] = ()


@dataclass(frozen=True)
class WeightTensor(Record):
    """One tensor of the weights: which operation reads it, and what it is by content."""

    name: Annotated[str, Says("The tensor's name in the weights file.")]
    operation: Annotated[OperationName, Says("The operation that reads it.")]
    layer_axis: Annotated[
        int | None, Says("The axis that counts layers; none for a tensor outside them.", "axis")
    ]
    dtype: Annotated[str, Says("Type of its numbers, such as float32.")]
    shape: Annotated[tuple[int, ...], Says("Its sizes.", "numbers")]
    sha256: Annotated[str, Says("Digest of its bytes, little-endian and row-major.")]


@dataclass(frozen=True)
class ModelWeights(Record):
    """Every tensor that the model consumes, by identity; the numbers lie in the weights file."""

    tensors: Annotated[tuple[WeightTensor, ...], Says("The tensors in the order of their names.")]


@dataclass(frozen=True)
class EmbeddingOperation(Record):
    """Looks up token vectors and combines them with the other input representations."""

    name: Annotated[Literal["Embedding"], Says("The operation's name.")] = "Embedding"


@dataclass(frozen=True)
class PositionEncodingOperation(Record):
    """Gives the vector of a position: learned and absolute here."""

    name: Annotated[Literal["PositionEncoding"], Says("The operation's name.")] = "PositionEncoding"


@dataclass(frozen=True)
class NormalizationOperation(Record):
    """Normalises channels by their statistics, epsilon, scale and bias."""

    name: Annotated[Literal["Normalization"], Says("The operation's name.")] = "Normalization"


@dataclass(frozen=True)
class AttentionOperation(Record):
    """Mixes positions: causal softmax attention here."""

    name: Annotated[Literal["Attention"], Says("The operation's name.")] = "Attention"


@dataclass(frozen=True)
class ResidualAdditionOperation(Record):
    """Adds a branch's output to the input that was kept."""

    name: Annotated[Literal["ResidualAddition"], Says("The operation's name.")] = "ResidualAddition"


@dataclass(frozen=True)
class FeedForwardOperation(Record):
    """Maps each position's channels up, through the activation, and down."""

    name: Annotated[Literal["FeedForward"], Says("The operation's name.")] = "FeedForward"


@dataclass(frozen=True)
class OutputProjectionOperation(Record):
    """Maps a final hidden vector to a score for each token."""

    name: Annotated[Literal["OutputProjection"], Says("The operation's name.")] = "OutputProjection"


OPERATIONS = (
    EmbeddingOperation(),
    PositionEncodingOperation(),
    NormalizationOperation(),
    AttentionOperation(),
    ResidualAdditionOperation(),
    FeedForwardOperation(),
    OutputProjectionOperation(),
)
