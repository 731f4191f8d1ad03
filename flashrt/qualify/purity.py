"""Is an operator a function of its inputs' values, and of nothing else? Probes of one call."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flashrt.gate.integrity import Attack, Finding
from flashrt.qualify.operator_calls import Call
from flashrt.qualify.witness import HeldClock

Tensors = Sequence[torch.Tensor]
TURNS = 8
LOOKS = 3  # a busy machine may make one look wrong; not three


def _copied(values: Tensors) -> list[torch.Tensor]:
    return [value.clone() for value in values]


def _bytes(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8)


def _same(one: Tensors, other: Tensors) -> bool:
    """Equal bit for bit, NaN with NaN too."""
    return all(
        a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(_bytes(a), _bytes(b)))
        for a, b in zip(one, other, strict=True)
    )


def _other(value: torch.Tensor) -> torch.Tensor:
    """Another activation of the same kind: moved along its last dim, and half as large."""
    moved = value.roll(1, -1)
    if not value.is_floating_point():
        return moved
    # eight-bit floats can be moved and cast; torch computes with wider ones
    return (moved.float() * 0.5).to(value.dtype) if value.itemsize == 1 else moved * 0.5


def _halves(values: Tensors) -> dict[str, list[torch.Tensor]]:
    """Inputs that differ from ``values`` in a part only: in the second half, in the first half."""
    parts: dict[str, list[torch.Tensor]] = {"second half": [], "first half": []}
    for value in values:
        half = max(1, value.numel() // 2)
        before, after = value.reshape(-1), _other(value).reshape(-1)
        for name, pieces in (
            ("second half", (before[:half], after[half:])),
            ("first half", (after[:half], before[half:])),
        ):
            parts[name].append(torch.cat(pieces).reshape(value.shape))
    return parts


def probe(call: Call) -> list[Finding]:
    """What one seam's operator does that a function of its inputs would not do.

    The operator is called about thirty times on copies of its real inputs. Never raises for an
    answer, whatever it is; an operator that raises is the caller's to see.
    """
    with torch.no_grad():
        found = [_mutation(call), _pointer(call), *_part(call), _kept_output(call)]
        found.append(_remembered(call))
    return [finding for finding in found if finding is not None]


def _finding(call: Call, attack: Attack, detail: str) -> Finding:
    return Finding(attack, call.seam, f"{call.operator} {detail}")


def _mutation(call: Call) -> Finding | None:
    given, weights = _copied(call.activations), call.weights
    before = _copied(weights)
    call.answer(given)
    if not _same(given, call.activations):
        return _finding(call, Attack.INPUT_MUTATION, "wrote into its input")
    if not _same(weights, before):
        return _finding(call, Attack.INPUT_MUTATION, "wrote into its weights")
    return None


def _pointer(call: Call) -> Finding | None:
    """The same buffer with other contents must be answered as those contents elsewhere are."""
    place = _copied(call.activations)
    first = _copied(call.answer(place))
    changed = [_other(value) for value in place]
    if _same(changed, place):
        return None
    for value, other in zip(place, changed, strict=True):
        value.copy_(other)
    here, elsewhere = _copied(call.answer(place)), _copied(call.answer(_copied(changed)))
    if _same(here, elsewhere):
        return None
    detail = "answered with what had lain at its input's address before"
    if not _same(here, first):
        detail = "answered the same values differently at another address"
    return _finding(call, Attack.POINTER_MEMO, detail)


def _part(call: Call) -> list[Finding]:
    """Inputs that differ in a part only must not be answered alike."""
    found = []
    for part, changed in _halves(call.activations).items():
        if _same(changed, call.activations):
            continue
        first = _copied(call.answer(_copied(call.activations)))
        if _same(call.answer(_copied(changed)), first):
            detail = f"gave one answer to inputs that differ in their {part}"
            found.append(_finding(call, Attack.PART_MEMO, detail))
    return found


def _kept_output(call: Call) -> Finding | None:
    """What a call returned is its caller's: nobody writes there, and nobody answers from there."""
    returned = call.answer(_copied(call.activations))
    kept = _copied(returned)
    call.answer([_other(value) for value in call.activations])
    if not _same(returned, kept):
        return _finding(call, Attack.KEPT_OUTPUT, "overwrote what an earlier call had returned")
    for value in returned:
        _ = value.fill_(-1) if value.is_floating_point() else value.zero_().sub_(1)
    if not _same(call.answer(_copied(call.activations)), kept):
        return _finding(call, Attack.NO_OP_REPLAY, "answered from an output that was overwritten")
    return None


def _remembered(call: Call) -> Finding | None:
    """Inputs that were given before must not be answered in less than half the time of new ones.

    Equal answers to equal inputs are what a function gives; that it *kept* them shows in time only.
    Least times are compared, not reported: they show what the operator can do, not what it costs.
    """
    for look in range(LOOKS):
        ratio = _again_over_new(call, look)
        if not (ratio < 0.5):
            return None
    detail = f"answered inputs that it had been given before in {ratio:.2f} of the time of new ones"
    return _finding(call, Attack.STALE_ANSWER, detail)


def _again_over_new(call: Call, look: int) -> float:
    """Least time over inputs given before, by the least over inputs that nobody gave yet."""
    clock = HeldClock()
    devices = {value.device for value in call.activations if value.is_cuda}

    def took(values: list[torch.Tensor]) -> int:
        for device in devices:
            torch.cuda.synchronize(device)
        started = clock.now_ns()
        call.answer(values)
        for device in devices:
            torch.cuda.synchronize(device)
        return clock.now_ns() - started

    new, again = [], []
    for turn in range(TURNS):
        shift = 2 + look * TURNS + turn
        given = [value.roll(shift, -1) for value in call.activations]
        new.append(took(_copied(given)))
        again.append(took(_copied(given)))
    return min(again) / max(1, min(new))
