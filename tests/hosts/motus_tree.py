"""Motus' module tree from its published code and configuration.

Names: thu-ml/Motus, models/motus.py at 0473ccba, models/action_expert.py at 88f6fe30,
models/und_expert.py at 76ff0369, bak/wan/modules/model.py at 63a42146. Sizes: configs/robotwin.yaml
at 15d5e536 and the code's defaults for Wan2.2-TI2V-5B (width 3072, 24 heads, 30 layers). The Wan
feed-forward's width, 14336, is the released model's. Motus also holds the same modules under
video_module, und_module and action_module; those second names are left out. The understanding
model, Qwen3-VL, is left to its own binding.
"""

from __future__ import annotations

from typing import Any

WAN, ACTION, UND, HEADS, HEAD, LAYERS = 3072, 1024, 512, 24, 128, 30
ROBOT, REGISTERS, FREQUENCIES, LATENT = 14, 4, 256, 48


def keys(parts: Any) -> dict[str, tuple[int, ...]]:
    """Keys of the video model, the action expert and the understanding expert, with shapes."""
    return {
        **parts.under("video_model.wan_model", _wan(parts)),
        **parts.under("action_expert", _action(parts)),
        **parts.under("und_expert", _understanding(parts)),
    }


def _attention(p: Any, name: str) -> dict[str, tuple[int, ...]]:
    held: dict[str, tuple[int, ...]] = {}
    for part in "qkvo":
        held |= p.linear(f"{name}.{part}", WAN, WAN)
    return held | {f"{name}.norm_q.weight": (WAN,), f"{name}.norm_k.weight": (WAN,)}


def _wan(p: Any) -> dict[str, tuple[int, ...]]:
    block = {
        "modulation": (1, 6, WAN),
        **_attention(p, "self_attn"),
        **p.affine("norm3", WAN),
        **_attention(p, "cross_attn"),
        **p.linear("ffn.0", 14336, WAN),
        **p.linear("ffn.2", WAN, 14336),
    }
    return {
        "patch_embedding.weight": (WAN, LATENT, 1, 2, 2),
        "patch_embedding.bias": (WAN,),
        **p.linear("text_embedding.0", WAN, 4096),
        **p.linear("text_embedding.2", WAN, WAN),
        **_time(p, WAN),
        **p.repeated("blocks", LAYERS, block),
        **p.linear("head.head", 4 * LATENT, WAN),
        "head.modulation": (1, 2, WAN),
    }


def _time(p: Any, width: int) -> dict[str, tuple[int, ...]]:
    return {
        **p.linear("time_embedding.0", width, FREQUENCIES),
        **p.linear("time_embedding.2", width, width),
        **p.linear("time_projection.1", 6 * width, width),
    }


def _joint(p: Any, part: str, width: int) -> dict[str, tuple[int, ...]]:
    """One expert's half of a block: its projections into the video model's heads."""
    return {
        f"wan_{part}_qkv": (3, HEADS, width, HEAD),
        **p.linear(f"wan_{part}_o", width, WAN, bias=False),
        f"wan_{part}_norm_q.weight": (WAN,),
        f"wan_{part}_norm_k.weight": (WAN,),
        **p.linear("ffn.0", 4 * width, width),
        **p.linear("ffn.2", width, 4 * width),
    }


def _mlp(p: Any, name: str, into: int, width: int) -> dict[str, tuple[int, ...]]:
    first = p.linear(f"{name}.0", width, into)
    return {
        **first,
        **p.linear(f"{name}.2", width, width),
        **p.linear(f"{name}.4", width, width),
    }


def _action(p: Any) -> dict[str, tuple[int, ...]]:
    block = {**_joint(p, "action", ACTION), "modulation": (1, 6, ACTION)}
    return {
        **_mlp(p, "input_encoder.state_encoder", ROBOT, ACTION),
        **_mlp(p, "input_encoder.action_encoder", ROBOT, ACTION),
        **_time(p, ACTION),
        **p.repeated("blocks", LAYERS, block),
        "registers": (1, REGISTERS, ACTION),
        **p.linear("decoder.action_head.0", ROBOT, ACTION),
        "decoder.modulation": (1, 2, ACTION),
    }


def _understanding(p: Any) -> dict[str, tuple[int, ...]]:
    return {
        **_mlp(p, "vlm_adapter", 2048, UND),
        **p.repeated("blocks", LAYERS, _joint(p, "und", UND)),
    }
