"""A module tree from state-dict keys and shapes: what a host is before any of its code runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn

Keys = Mapping[str, tuple[int, ...]]


def grow(keys: Keys) -> nn.Module:
    """Plain modules with one float32 parameter per key, on the meta device: full sizes, no bytes.

    A tree has no forward, so that nothing can be proven on it; paths, slots and shapes can.
    """
    root = nn.Module()
    for key, shape in keys.items():
        *path, leaf = key.split(".")
        module = root
        for name in path:
            if name not in module._modules:
                module.add_module(name, nn.Module())
            module = module.get_submodule(name)
        module.register_parameter(
            leaf, nn.Parameter(torch.empty(shape, device="meta"), requires_grad=False)
        )
    return root.eval()


def under(prefix: str, keys: Keys) -> dict[str, tuple[int, ...]]:
    """The keys with a prefix."""
    return {f"{prefix}.{key}": shape for key, shape in keys.items()}


def repeated(prefix: str, count: int, keys: Keys) -> dict[str, tuple[int, ...]]:
    """The keys of one layer, under each index of a list."""
    return {k: s for i in range(count) for k, s in under(f"{prefix}.{i}", keys).items()}


def linear(name: str, out: int, into: int, bias: bool = True) -> dict[str, tuple[int, ...]]:
    """The keys of a linear layer."""
    held: dict[str, tuple[int, ...]] = {f"{name}.weight": (out, into)}
    return held | ({f"{name}.bias": (out,)} if bias else {})


def affine(name: str, width: int) -> dict[str, tuple[int, ...]]:
    """The keys of a LayerNorm with a gain and a bias."""
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def gated(width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The keys of a gated feed-forward named ``mlp``."""
    return {
        **linear("mlp.gate_proj", hidden, width, bias=False),
        **linear("mlp.up_proj", hidden, width, bias=False),
        **linear("mlp.down_proj", width, hidden, bias=False),
    }


def siglip(width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The keys of one SigLIP encoder layer."""
    keys = affine("layer_norm1", width) | affine("layer_norm2", width)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        keys |= linear(f"self_attn.{name}", width, width)
    return keys | linear("mlp.fc1", hidden, width) | linear("mlp.fc2", width, hidden)


def decoder(width: int, hidden: int, queries: int, keys_values: int) -> dict[str, tuple[int, ...]]:
    """The keys of one Llama layer without biases; widths of all query and all key heads."""
    return {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        **linear("self_attn.q_proj", queries, width, bias=False),
        **linear("self_attn.k_proj", keys_values, width, bias=False),
        **linear("self_attn.v_proj", keys_values, width, bias=False),
        **linear("self_attn.o_proj", width, queries, bias=False),
        **gated(width, hidden),
    }


def sizes(keys: Keys, prefix: str) -> tuple[int, int]:
    """How many keys a prefix has, and how many numbers they hold."""
    held = [shape for key, shape in keys.items() if key.startswith(prefix + ".")]
    return len(held), sum(_numbers(shape) for shape in held)


def _numbers(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def without(keys: Keys, part: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The keys that do not hold a piece of text."""
    yield from ((key, shape) for key, shape in keys.items() if part not in key)
