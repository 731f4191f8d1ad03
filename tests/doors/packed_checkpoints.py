"""Real compressed-tensors checkpoints of a tiny causal LM, written by the library itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    apply_quantization_config,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from transformers import Qwen2Config, Qwen2ForCausalLM

WIDTH, HIDDEN, VOCABULARY = 64, 112, 61


def tokens(rows: int = 8) -> torch.Tensor:
    """``[1, rows]`` of the tiny vocabulary."""
    return (torch.arange(rows)[None] * 7) % VOCABULARY


def dense_model() -> Any:
    """Two layers, q, k and v with a bias, every projection but the head to be quantised."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    model = Qwen2ForCausalLM(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(std=0.1)
    return model


def _limits(weight: torch.Tensor, args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if args.strategy == "tensor":
        return weight.min(), weight.max()
    if args.strategy == "channel":
        return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    if args.strategy == "block":
        whole = torch.ones(1, 1)
        return weight.min() * whole, weight.max() * whole
    blocks = weight.unflatten(-1, (-1, args.group_size))
    return blocks.amin(-1), blocks.amax(-1)


def write(preset: str, folder: Path) -> Path:
    """Every projection but the head, by one of the library's presets."""
    scheme = preset_name_to_scheme(preset, ["Linear"])
    if scheme.weights.group_size == 128:  # wider than the tiny layers
        scheme.weights = QuantizationArgs(num_bits=4, type="int", strategy="channel")
    return write_groups({"group_0": scheme}, folder)


def write_mixed(folder: Path) -> Path:
    """Feed-forwards in NVFP4, attention in FP8, each a group of its own."""
    groups = {
        "group_0": preset_name_to_scheme("NVFP4", ["re:.*mlp.*_proj"]),
        "group_1": preset_name_to_scheme("FP8_DYNAMIC", ["re:.*self_attn.*_proj"]),
    }
    return write_groups(groups, folder)


def write_groups(groups: dict[str, Any], folder: Path) -> Path:
    """Calibrate with one forward, quantise by the library's schemes, compress, save."""
    model = dense_model()
    seen: dict[str, torch.Tensor] = {}

    def watch(name: str) -> Any:
        return lambda _, given: seen.update({name: given[0].abs().max()})

    linears = [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    handles = [module.register_forward_pre_hook(watch(name)) for name, module in linears]
    model(tokens(16))
    for handle in handles:
        handle.remove()
    config = QuantizationConfig(config_groups=groups, ignore=["lm_head"])
    apply_quantization_config(model, config, show_progress=False)
    for name, module in linears:
        if getattr(module, "quantization_scheme", None) is not None:
            _measure(module, seen[name])
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(str(folder))
    return folder


def _measure(module: Any, largest: torch.Tensor) -> None:
    scheme, whole = module.quantization_scheme, None
    if scheme.weights.strategy == "tensor_group":
        whole = generate_gparam(module.weight.min(), module.weight.max())
        module.weight_global_scale.copy_(whole)
        if scheme.input_activations:
            module.input_global_scale.copy_(generate_gparam(-largest, largest))
    low, high = _limits(module.weight, scheme.weights)
    scale, _ = calculate_qparams(low, high, scheme.weights, global_scale=whole)
    module.weight_scale.copy_(scale)
    if hasattr(module, "input_scale"):
        scale, _ = calculate_qparams(-largest, largest, scheme.input_activations)
        module.input_scale.copy_(scale)
