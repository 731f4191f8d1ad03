"""The lab's committed artifact as a host like any other: module tree, tokenizer and identity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flashrt.host.load import Host
from flashrt_runtime.identity import architecture_digest, checkpoint_digest

if TYPE_CHECKING:
    from flashrt.host.tiny_gpt import TinyGpt
    from flashrt.lab.model import LoadedArtifact
    from flashrt.lab.tokenizer import Tokenizer

NAME = "tiny_gpt"


@dataclass(frozen=True)
class HostTokenizer:
    """The lab's tokenizer, called as transformers' tokenizers are."""

    tokenizer: Tokenizer

    def __call__(
        self, text: str, add_special_tokens: bool = True, **_: object
    ) -> dict[str, list[int]]:
        """``{"input_ids"}`` of a text: one user turn, without its tags on demand."""
        from flashrt.lab.tokenizer import Turn

        ids = list(self.tokenizer.encode((Turn("user", text),)).ids)
        return {"input_ids": ids if add_special_tokens else ids[1:-1]}


def module_of(loaded: LoadedArtifact, dtype: str = "float32") -> TinyGpt:
    """The artifact's numbers in a module tree, in evaluation mode and without gradients."""
    import torch

    from flashrt.host.tiny_gpt import TinyGpt, TinyGptConfig

    shape = loaded.architecture
    config = TinyGptConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward_width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_position_embeddings=shape.context,
        layer_norm_eps=shape.epsilon,
        hidden_act=shape.activation,
    )
    with torch.device("meta"):
        model = TinyGpt(config)
    model.load_state_dict(loaded.weights.state_dict(shape), strict=True, assign=True)
    return model.to(getattr(torch, dtype)).eval().requires_grad_(False)


def load_lab(dtype: str = "float32", loaded: LoadedArtifact | None = None) -> Host:
    """The packaged artifact as a host; ``loaded`` is another one.

    ``dtype`` is one of :data:`flashrt.host.load.DTYPES`. Raises what
    :meth:`flashrt.lab.model.LoadedArtifact.load` raises.
    """
    from flashrt.lab.model import LoadedArtifact, packaged

    held = LoadedArtifact.load() if loaded is None else loaded
    model = module_of(held, dtype)
    artifact = replace(
        held.identity,
        checkpoint_digest=checkpoint_digest(model.state_dict().items()),
        architecture_digest=architecture_digest(model),
        dtype=dtype,
    )
    tokenizer: Any = HostTokenizer(held.tokenizer)
    said = (artifact.provenance,)
    return Host(artifact.name, model, tokenizer, artifact, NAME, packaged(), said)
