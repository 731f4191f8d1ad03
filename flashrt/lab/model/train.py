"""Training: AdamW on windows of exchanges, seeded, on one thread."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from flashrt.lab.model.batched import forward
from flashrt.lab.model.exchanges import Exchanges
from flashrt.lab.model.initial import initial_weights
from flashrt.lab.model.threads import at_most
from flashrt.lab.records import ModelArchitecture
from flashrt_runtime.reason import Reason, Refusal

Progress = Callable[[int, int, float], None]
_WARM_UP = 0.05
_JUDGED = 8  # windows a forward pass


@dataclass(frozen=True)
class Schedule:
    """``learning_rate`` is the highest; it rises over the first twentieth and falls to zero."""

    steps: int
    batch: int = 16
    learning_rate: float = 4e-3
    weight_decay: float = 0.05

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        warm = max(1, int(self.steps * _WARM_UP))
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


def loss_of(
    shape: ModelArchitecture, weights: dict[str, torch.Tensor], windows: torch.Tensor
) -> torch.Tensor:
    """Mean nats a token of predicting each window's tokens from those before them."""
    hidden, _ = forward(shape, weights, windows[:, :-1])
    logits = F.linear(hidden, weights["output.weight"])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def _batches(data: Exchanges, batch: int, seed: int) -> Iterator[torch.Tensor]:
    order = list(data.starts)
    drawn = random.Random(seed)
    waiting: list[int] = []
    while True:
        while len(waiting) < batch:
            drawn.shuffle(order)
            waiting += order
        yield data.windows(waiting[:batch])
        del waiting[:batch]


def train(
    shape: ModelArchitecture,
    data: Exchanges,
    schedule: Schedule,
    seed: int,
    progress: Progress | None = None,
) -> dict[str, torch.Tensor]:
    """Trained stacked weights: the same bits for the same arguments, machine and torch.

    ``progress`` is called with the steps done, all steps, and the step's loss in nats a token.
    Raises :class:`Refusal` (NONFINITE) when the loss is no number any more.
    """
    weights = initial_weights(shape, seed)
    for tensor in weights.values():
        tensor.requires_grad_(True)
    # Gains and biases are not pulled to zero; in a stacked tensor they have one axis less.
    decayed = [t for n, t in weights.items() if n.endswith(".weight") and "norm" not in n]
    kept = [t for n, t in weights.items() if n.endswith(".bias") or "norm" in n]
    groups = [
        {"params": decayed, "weight_decay": schedule.weight_decay},
        {"params": kept, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=(0.9, 0.98))
    batches = _batches(data, schedule.batch, seed)
    with at_most(1):
        for step in range(schedule.steps):
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(step)
            loss = loss_of(shape, weights, next(batches))
            if not math.isfinite(loss.item()):
                raise Refusal(
                    Reason.NONFINITE, f"the loss is {loss.item()}", subject=f"step {step}"
                )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_([*decayed, *kept], 1.0)
            optimizer.step()
            if progress is not None:
                progress(step + 1, schedule.steps, loss.item())
    return {name: tensor.detach() for name, tensor in weights.items()}


def held_out_loss(
    shape: ModelArchitecture, weights: dict[str, torch.Tensor], data: Exchanges, most: int
) -> float:
    """Mean nats a token over at most ``most`` windows that do not overlap."""
    starts: list[int] = []
    for start in data.starts:
        if not starts or start >= starts[-1] + data.window:
            starts.append(start)
    starts = starts[:most]
    total = 0.0
    with at_most(1), torch.inference_mode():
        for first in range(0, len(starts), _JUDGED):
            part = starts[first : first + _JUDGED]
            total += loss_of(shape, weights, data.windows(part)).item() * len(part)
    return total / len(starts)
