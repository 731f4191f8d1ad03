"""GR00T N1.6's module tree from its published keys and configuration.

Names: NVIDIA/Isaac-GR00T, gr00t/model/gr00t_n1d6/gr00t_n1d6.py at 040fccf8, modules/dit.py at
2ea60d6d, modules/nvidia/Eagle-Block2A-2B-v2/modeling_eagle3_vl.py at 77988d1a. Sizes:
gr00t/configs/model/gr00t_n1d6.py at 9b37aa1c, and the shapes and counts that a public key dump of
the checkpoint nvidia/GR00T-N1.6-3B lists. The width of the text's key heads is that of Qwen3-1.7B,
whose other sizes these are; with it the numbers held are those that the dump counts.
"""

from __future__ import annotations

from typing import Any

DIT, HIDDEN, TEXT, VISION = 1536, 1024, 2048, 1152
EMBODIMENTS, STATE, ACTION, POSITIONS, VOCABULARY = 32, 128, 128, 1024, 151680
BLOCKS, TEXT_LAYERS, VISION_LAYERS = 32, 16, 27


def keys(parts: Any) -> dict[str, tuple[int, ...]]:
    """Every key of the checkpoint that a binding may name, with its shape."""
    return {
        **parts.under("action_head", _head(parts)),
        **parts.under("backbone.model", _backbone(parts)),
    }


def _head(p: Any) -> dict[str, tuple[int, ...]]:
    blocks: dict[str, tuple[int, ...]] = {}
    for index in range(BLOCKS):
        blocks |= p.under(f"transformer_blocks.{index}", _block(p, TEXT if index % 2 == 0 else DIT))
    model = {
        **p.linear("timestep_encoder.timestep_embedder.linear_1", DIT, 256),
        **p.linear("timestep_encoder.timestep_embedder.linear_2", DIT, DIT),
        **blocks,
        **p.linear("proj_out_1", 2 * DIT, DIT),
        **p.linear("proj_out_2", HIDDEN, DIT),
    }
    return {
        **p.under("model", model),
        **p.affine("vlln", TEXT),
        "position_embedding.weight": (POSITIONS, DIT),
        **_by_embodiment("state_encoder.layer1", STATE, HIDDEN),
        **_by_embodiment("state_encoder.layer2", HIDDEN, DIT),
        **_by_embodiment("action_encoder.W1", ACTION, DIT),
        **_by_embodiment("action_encoder.W2", 2 * DIT, DIT),
        **_by_embodiment("action_encoder.W3", DIT, DIT),
        **_by_embodiment("action_decoder.layer1", HIDDEN, HIDDEN),
        **_by_embodiment("action_decoder.layer2", HIDDEN, ACTION),
    }


def _by_embodiment(name: str, into: int, out: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.W": (EMBODIMENTS, into, out), f"{name}.b": (EMBODIMENTS, out)}


def _block(p: Any, condition: int) -> dict[str, tuple[int, ...]]:
    return {
        **p.linear("norm1.linear", 2 * DIT, DIT),
        **p.linear("attn1.to_q", DIT, DIT),
        **p.linear("attn1.to_k", DIT, condition),
        **p.linear("attn1.to_v", DIT, condition),
        **p.linear("attn1.to_out.0", DIT, DIT),
        **p.linear("ff.net.0.proj", 4 * DIT, DIT),
        **p.linear("ff.net.2", DIT, 4 * DIT),
    }


def _backbone(p: Any) -> dict[str, tuple[int, ...]]:
    layer = p.decoder(TEXT, 6144, 2048, 1024)
    layer |= {"self_attn.q_norm.weight": (128,), "self_attn.k_norm.weight": (128,)}
    return {
        **p.repeated("vision_model.vision_model.encoder.layers", VISION_LAYERS, _vision(p)),
        **p.affine("vision_model.vision_model.post_layernorm", VISION),
        **p.affine("mlp1.0", 4 * VISION),
        **p.linear("mlp1.1", TEXT, 4 * VISION),
        **p.linear("mlp1.3", TEXT, TEXT),
        **p.repeated("language_model.model.layers", TEXT_LAYERS, layer),
        "language_model.model.embed_tokens.weight": (VOCABULARY, TEXT),
        "language_model.model.norm.weight": (TEXT,),
        "language_model.lm_head.weight": (VOCABULARY, TEXT),
    }


def _vision(p: Any) -> dict[str, tuple[int, ...]]:
    return dict(p.siglip(VISION, 4304))
