"""Discovery of a 30-layer host, beside the host's plain forward on the same frame.

Bar: one forward pass and 10 %, so that a ratio of 1.10 is the most. The third arm is discovery's
forward alone, observed; the fourth the obvious way to observe: two hooks a module that keep every
tensor. As with timeit, the cyclic garbage collector is off while arms run: what it costs depends
on everything else that the process holds.
"""

from __future__ import annotations

import argparse
import gc
import time
from typing import Any

import torch
from interleave import interleave, show

from flashrt.host import load
from flashrt.host.discovery import discover
from flashrt.host.discovery.attention import AttentionTap
from flashrt.host.discovery.trace import trace
from flashrt.host.load import CACHE
from flashrt.host.seams import probe_tokens


def random_llama() -> torch.nn.Module:
    """A llama of SmolLM2's size with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


def obvious(model: torch.nn.Module, tokens: torch.Tensor) -> list[Any]:
    """A forward with two plain hooks a module, each of which keeps what it sees."""
    kept: list[Any] = []
    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(lambda _m, args: kept.append(args)))
        handles.append(module.register_forward_hook(lambda _m, _args, out: kept.append(out)))
    try:
        model(tokens)
    finally:
        for handle in handles:
            handle.remove()
    return kept


def main(rounds: int, *, random: bool, length: int, cpu: bool) -> None:
    """Print the table."""
    if cpu:
        torch.set_num_threads(1)  # threads that wait for each other would count as work
    if random:
        model, name = random_llama(), "a random llama of 30 layers"
        tokens = torch.arange(length)[None]
    else:
        host = load("smollm2", cache=CACHE)
        model, name = host.model, "SmolLM2, 30 layers"
        tokens = probe_tokens(host)[:, :length]

    def forward() -> object:
        return model(tokens)

    gc.collect()
    gc.disable()
    with torch.no_grad():
        samples = interleave(
            {
                "plain forward": forward,
                "discover": lambda: discover(model, forward),
                "observed forward": lambda: trace(model, forward, modes=(AttentionTap(model),)),
                "two hooks a module": lambda: obvious(model, tokens),
            },
            rounds,
            now=time.process_time if cpu else time.perf_counter,
        )
    gc.enable()
    found = discover(model, forward)
    show(
        "Discovery (bar: 1.10 of a plain forward)",
        samples,
        "ms",
        "plain forward",
        note=f"{name}, {tokens.shape[1]} tokens: {len(found.seams)} seams, "
        f"{len(found.refusals)} refusals",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--random", action="store_true", help="random weights, nothing to load")
    parser.add_argument("--length", type=int, default=256, help="tokens of the frame, at most")
    parser.add_argument("--cpu", action="store_true", help="CPU time of one thread, not the clock")
    given = parser.parse_args()
    main(given.rounds, random=given.random, length=given.length, cpu=given.cpu)
