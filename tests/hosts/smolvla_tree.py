"""SmolVLA's module tree from its published keys and configuration.

Names: huggingface/lerobot, src/lerobot/policies/smolvla/modeling_smolvla.py at 00f4c869 and
smolvlm_with_expert.py at 0371e991. Sizes: configuration_smolvla.py at 0371e991, and the safetensors
header of lerobot/smolvla_base at c83c3163, as lostbean/smolVLA-mlx docs/ARCHITECTURE.md lists it:
500 tensors, 450,046,176 parameters.
"""

from __future__ import annotations

from typing import Any

EXPERT, TEXT, VISION, LAYERS, VISION_LAYERS = 720, 960, 768, 16, 12
QUERIES, KEYS, STATE, ACTION, VOCABULARY = 960, 320, 32, 32, 49280


def keys(parts: Any) -> dict[str, tuple[int, ...]]:
    """Every key of the checkpoint with its shape."""
    expert: dict[str, tuple[int, ...]] = {"norm.weight": (EXPERT,)}
    for index in range(LAYERS):
        layer = parts.decoder(EXPERT, 2048, QUERIES, KEYS)
        if index % 2:  # cross-attention: keys and values come from the prefix's own
            layer |= parts.linear("self_attn.k_proj", KEYS, KEYS, bias=False)
            layer |= parts.linear("self_attn.v_proj", KEYS, KEYS, bias=False)
        expert |= parts.under(f"layers.{index}", layer)
    model = {
        **parts.under("vlm_with_expert.lm_expert", expert),
        **parts.under("vlm_with_expert.vlm", _vlm(parts)),
        **parts.linear("state_proj", TEXT, STATE),
        **parts.linear("action_in_proj", EXPERT, ACTION),
        **parts.linear("action_out_proj", ACTION, EXPERT),
        **parts.linear("action_time_mlp_in", EXPERT, 2 * EXPERT),
        **parts.linear("action_time_mlp_out", EXPERT, EXPERT),
    }
    return dict(parts.under("model", model))


def _vlm(p: Any) -> dict[str, tuple[int, ...]]:
    vision = {
        "embeddings.patch_embedding.weight": (VISION, 3, 16, 16),
        "embeddings.patch_embedding.bias": (VISION,),
        "embeddings.position_embedding.weight": (1024, VISION),
        **p.repeated("encoder.layers", VISION_LAYERS, p.siglip(VISION, 3072)),
        **p.affine("post_layernorm", VISION),
    }
    text = {
        "embed_tokens.weight": (VOCABULARY, TEXT),
        **p.repeated("layers", LAYERS, p.decoder(TEXT, 2560, QUERIES, KEYS)),
        "norm.weight": (TEXT,),
    }
    return {
        **p.under("model.vision_model", vision),
        **p.linear("model.connector.modality_projection.proj", TEXT, 16 * VISION, bias=False),
        **p.under("model.text_model", text),
        "lm_head.weight": (VOCABULARY, TEXT),
    }
