"""A forward that collects every calibration point, beside the host's plain forward.

On the real host and real text. Bar: 1.10. The third arm is the obvious way to do it, a hook that
takes ``x.abs().max()`` and reads it back at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from interleave import interleave, show

from flashrt.calibration.collect import addresses_of, collect
from flashrt.host import load
from flashrt.host.corpus import load_corpus
from flashrt.host.frames import text_frames
from flashrt.host.load import CACHE
from flashrt.host.seams import seams_of
from flashrt_runtime.contract import Seam

WINDOW = 128
FRAMES = 2


def obvious(model: torch.nn.Module, seams: list[Seam], forward: Callable[[Any], object]) -> Any:
    """A forward with one plain hook a point."""
    modules = dict(model.named_modules())
    places = {(a.module, a.capture) for a in addresses_of(seams)}

    def run(frame: Any) -> None:
        seen: dict[tuple[str, str], float] = {}
        handles = []
        for module, side in places:

            def hook(_: Any, given: Any, out: Any, key: tuple[str, str] = (module, side)) -> None:
                tensor = given[0] if key[1] == "input" else out
                seen[key] = max(seen.get(key, 0.0), float(tensor.abs().max()))

            handles.append(modules[module].register_forward_hook(hook))
        try:
            forward(frame)
        finally:
            for handle in handles:
                handle.remove()

    return run


def main(rounds: int = 15) -> None:
    """Print the table."""
    host = load("smollm2")
    seams = list(seams_of(host).seams)
    split = text_frames(
        host.tokenizer,
        load_corpus("brown", CACHE),
        window=WINDOW,
        samples=FRAMES,
        held_out=0,
        seed=0,
    )
    frames = split.calibration

    def forward(frame: Any) -> object:
        return host.model(frame.token_ids[None])

    by_hooks = obvious(host.model, seams, forward)
    with torch.no_grad():
        samples = interleave(
            {
                "plain forward": lambda: [forward(frame) for frame in frames],
                "calibration forward": lambda: collect(host.model, seams, frames, forward),
                "one abs().max() a hook": lambda: [by_hooks(frame) for frame in frames],
            },
            rounds,
            scale=1 / FRAMES,
        )
    points = len(addresses_of(seams))
    show(
        "Calibration (bar: 1.10 of a plain forward)",
        samples,
        "ms",
        "plain forward",
        note=f"{points} points of {len(seams)} seams, frames of {WINDOW} tokens",
    )


if __name__ == "__main__":
    main()
