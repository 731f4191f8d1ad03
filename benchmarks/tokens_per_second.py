"""Tokens a second, end to end, of every arm: the host in two dtypes, the schemes, and torchao's
nearest equivalents. All arms are captured in the same form and take turns in one process.

Decode is a greedy loop of whole steps (logits, argmax, next token) over a static cache. Prefill
runs a prompt through the captured step, 16 tokens at a time. Run in the environment that ``make
bench`` sets up; without torchao its arms are left out, and said to be.

    python benchmarks/tokens_per_second.py [--phase decode|prefill|both] [--arm NAME …]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from interleave import Samples, Spread, interleave

from flashrt.calibration import Calibration, calibrate
from flashrt.host import Host, load
from flashrt.host.corpus import load_corpus
from flashrt.host.frames import Split, text_frames
from flashrt.host.load import CACHE
from flashrt.host.seams import seams_of
from flashrt.qualify.arm import build_treated
from flashrt.scheme import plan
from flashrt_runtime.capture import Stage, capture
from flashrt_runtime.contract import Seam
from flashrt_runtime.decode.step import DecodeStep
from flashrt_runtime.reason import Refusal

CONTEXT = 256
PROMPT = 128
NEW_TOKENS = 16
CHUNK = 16
HOST = "host float32"
SCHEMES = ("fp16_weight", "w8a16_decode", "int8_static")
TORCHAO = {
    "torchao int8 weight-only": "Int8WeightOnlyConfig",
    "torchao int8 dynamic": "Int8DynamicActivationInt8WeightConfig",
}


@dataclass(frozen=True)
class Bench:
    """What arms are built from: the host, its text, and a calibration."""

    host: Host
    split: Split
    seams: Sequence[Seam]
    calibration: Calibration

    @property
    def prompt(self) -> torch.Tensor:
        """Real tokens ``[1, PROMPT]`` that no scale was fitted to."""
        return self.split.held_out[0].token_ids[None, :PROMPT]


def prepare() -> Bench:
    """Load the host and calibrate it on real text."""
    host = load("smollm2")
    corpus = load_corpus("brown", CACHE)
    split = text_frames(host.tokenizer, corpus, window=PROMPT, samples=32, held_out=1, seed=0)
    found = seams_of(host)
    calibration = calibrate(
        host.model,
        found.seams,
        split.calibration,
        model_artifact=host.model_artifact,
        workload=split.workload(),
        specs=found.specs,
        binding=found.binding,
    )
    return Bench(host, split, found.seams, calibration)


def treated(bench: Bench, scheme: str, rows: int) -> torch.nn.Module:
    """The host with a scheme's seams attached."""
    made = plan(scheme, bench.seams, bench.calibration, device="cpu", rows=rows)
    return build_treated(bench.host.model, [seam.record() for seam in made.seams], rows).model


def by_torchao(config: str) -> torch.nn.Module:
    """A fresh host quantised by torchao, its layers' projections only (the head is tied)."""
    from torchao import quantization

    model = load("smollm2").model
    quantization.quantize_(
        model,
        getattr(quantization, config)(),
        filter_fn=lambda module, name: (
            isinstance(module, torch.nn.Linear) and name.startswith("model.layers.")
        ),
    )
    return model


def models(bench: Bench, rows: int) -> dict[str, Callable[[], torch.nn.Module]]:
    """How each arm's model is made."""
    made: dict[str, Callable[[], torch.nn.Module]] = {
        HOST: lambda: bench.host.model,
        "host bfloat16": lambda: load("smollm2", dtype="bfloat16").model,
    }
    for scheme in SCHEMES:
        made[scheme] = partial(treated, bench, scheme, rows)
    if find_spec("torchao"):
        for name, config in TORCHAO.items():
            made[name] = partial(by_torchao, config)
    else:
        print("torchao is not installed here: its arms are left out (`make bench` has them)")
    return made


def captured(model: torch.nn.Module, rows: int, name: str) -> tuple[DecodeStep, Stage]:
    """The whole step over a static cache, in the form that a deployment captures."""
    step = DecodeStep(model, batch=1, rows=rows, context=CONTEXT)
    stage = capture(step, step.windows(), form=("compile",), name=name)
    step.reset()
    return step, stage


def decoding(step: DecodeStep, stage: Stage, prompt: torch.Tensor) -> Callable[[], object]:
    """Greedy decoding of NEW_TOKENS after the prompt, from the same state every time."""
    first = step.prefill(prompt).argmax(-1)[None]

    def run() -> torch.Tensor:
        token = first
        for position in range(PROMPT, PROMPT + NEW_TOKENS):
            logits = stage.replay(token_ids=token, positions=torch.tensor([position]))
            token = logits[:, -1].argmax(-1)[None]
        return token

    return run


def prefilling(stage: Stage, prompt: torch.Tensor) -> Callable[[], object]:
    """The prompt through the step, CHUNK tokens at a time."""

    def run() -> Any:
        logits = None
        for start in range(0, PROMPT, CHUNK):
            logits = stage.replay(
                token_ids=prompt[:, start : start + CHUNK],
                positions=torch.arange(start, start + CHUNK),
            )
        return logits

    return run


def show(title: str, samples: Samples, tokens: int) -> None:
    """Tokens a second and the speed-up over the host, round by round."""
    print(f"\n{title}")
    width = max(len(name) for name in samples.seconds)
    print(f"{'arm':<{width}}  {'tokens/s, median [quartiles]':<28}  times the speed of {HOST}")
    for name, seconds in samples.seconds.items():
        rate = Spread.of([tokens / s for s in seconds])
        print(f"{name:<{width}}  {rate!s:<28}  {samples.ratio(HOST, name)}")
    rounds = len(samples.seconds[HOST])
    threads = torch.get_num_threads()
    print(f"{rounds} rounds, new order each; {threads} threads; load {os.getloadavg()[0]:.2f}")


def measure(bench: Bench, phase: str, only: list[str], rounds: int) -> None:
    """Capture every arm of a phase, then let them take turns."""
    rows, tokens = (1, NEW_TOKENS) if phase == "decode" else (CHUNK, PROMPT)
    arms: dict[str, Callable[[], object]] = {}
    for name, make in models(bench, rows).items():
        if only and name not in only and name != HOST:
            continue
        print(f"capturing {phase}, {name}", flush=True)
        try:
            step, stage = captured(make(), rows, f"{phase} {name}")
        except Refusal as refusal:
            print(f"  {refusal}")
            continue
        decodes = phase == "decode"
        arms[name] = (
            decoding(step, stage, bench.prompt) if decodes else prefilling(stage, bench.prompt)
        )
    with torch.no_grad():
        samples = interleave(arms, rounds, warmup=2)
    what = f"{NEW_TOKENS} tokens" if phase == "decode" else f"{PROMPT} tokens, {CHUNK} a step"
    show(f"{phase}: {what}, SmolLM2-135M, captured as compile", samples, tokens)


def main() -> None:
    """Print a table for each phase."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--phase", choices=("decode", "prefill", "both"), default="both")
    parser.add_argument("--arm", action="append", default=[], help="only these (and the host)")
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    phases = ("decode", "prefill") if asked.phase == "both" else (asked.phase,)
    bench = prepare()
    for phase in phases:
        measure(bench, phase, asked.arm, asked.rounds)


if __name__ == "__main__":
    main()
