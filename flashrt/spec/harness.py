"""Compares any callable with a structure's reference, and gates it on drawn cases.

An impl's test needs no knowledge of the structure: ``for case in draw(spec, …)`` gives sizes,
variant, inputs and weights; ``compare`` runs reference and candidate on them, state carried over
several calls included; ``gate`` does both, once for each way to give the optional tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flashrt.spec.draw import Case, Slots, draw
from flashrt.spec.reference import Reference
from flashrt.spec.repeat import base, element
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

__all__ = [
    "Agreement",
    "Candidate",
    "Case",
    "Failure",
    "Gated",
    "Slots",
    "agreement",
    "amax",
    "compare",
    "draw",
    "gate",
]

Tensors = Mapping[str, "torch.Tensor"]
Candidate = Callable[[Tensors, Tensors, Mapping[str, str]], Tensors]


@dataclass(frozen=True)
class Agreement:
    """One output against the reference's.

    ``cosine`` and ``norm_ratio`` (candidate over reference) are over all elements in float64;
    ``max_abs`` is the largest absolute difference, ``scale`` the reference's largest magnitude;
    ``nonfinite`` counts the candidate's NaN and infinite elements. ``call`` is 0 for the call that
    was drawn, then 1, 2, … for those that got the state which the call before returned.
    """

    output: str
    elements: int
    cosine: float
    max_abs: float
    scale: float
    norm_ratio: float
    nonfinite: int
    call: int = 0

    def within(self, cosine: float, relative: float = math.inf) -> bool:
        """Whether cosine reaches the floor and max_abs / scale stays under ``relative``.

        A NaN anywhere, or one non-finite element, is not within.
        """
        if self.nonfinite or not (self.cosine >= cosine):
            return False
        return self.max_abs <= relative * self.scale


def compare(reference: Reference, candidate: Candidate, case: Case) -> list[Agreement]:
    """Every output of the candidate against the reference's, state included.

    Where the structure carries state, the calls of ``case.later`` follow: each side gets the state
    that it returned itself, so a state that is right once and drifts is seen. The candidate gets
    copies, so that one that writes its inputs cannot agree with itself; one that keeps a tensor it
    returned and writes it later cannot either. Raises :class:`Refusal`: STRUCTURE when an output is
    missing, SHAPE or DTYPE when it is not the reference's.
    """
    found: list[Agreement] = []
    mine: Tensors = case.inputs
    theirs: Tensors = case.inputs
    for call in range(1 + len(case.later)):
        expected = reference.run(mine, case.weights, case.variant)
        got = candidate(_copies(theirs), _copies(case.weights), dict(case.variant))
        _fits(expected, got, case)
        held = _copies({name: got[name] for name in expected})
        found += [replace(agreement(n, v, held[n]), call=call) for n, v in expected.items()]
        if call < len(case.later):
            mine = {**case.later[call], **_carried(case, expected)}
            theirs = {**case.later[call], **_carried(case, held)}
    return found


def _copies(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _carried(case: Case, outputs: Tensors) -> dict[str, torch.Tensor]:
    """The next call's state inputs, from the outputs that they carry."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in case.spec.state_inputs(case.variant).items():
        for output, value in outputs.items():
            if output == tensor.carries:
                found[name] = value
            elif tensor.repeat and base(output) == tensor.carries:
                found[element(name, int(output.rpartition(".")[2]))] = value
    return found


def _fits(expected: Tensors, got: Tensors, case: Case) -> None:
    for name, value in expected.items():
        if name not in got:
            raise Refusal(Reason.STRUCTURE, f"the candidate returned no {name}", subject=str(case))
        if got[name].shape != value.shape:
            raise Refusal(
                Reason.SHAPE,
                f"{name} has shape {list(got[name].shape)}, the reference {list(value.shape)}",
                subject=str(case),
            )
        if got[name].dtype != value.dtype:
            raise Refusal(
                Reason.DTYPE,
                f"{name} is {got[name].dtype}, the reference {value.dtype}",
                subject=str(case),
            )


@dataclass(frozen=True)
class Failure:
    """A case and what stands against the candidate there: an agreement or a refusal."""

    case: Case
    agreement: Agreement | None
    refusal: Refusal | None = None


@dataclass(frozen=True)
class Gated:
    """What the gate found over all its cases; ``outputs`` counts the comparisons made."""

    cases: int
    outputs: int
    failures: tuple[Failure, ...]

    @property
    def passed(self) -> bool:
        """Whether something was compared and nothing failed."""
        return self.outputs > 0 and not self.failures


def gate(
    reference: Reference,
    candidate: Candidate,
    count: int = 8,
    seed: int = 0,
    *,
    variants: Mapping[str, Sequence[str]] | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    dtype: torch.dtype | None = None,
    relative: float = 0.05,
) -> Gated:
    """Judge a candidate on ``count`` cases with all optional tensors, none, and some of them.

    Each output of each call must reach the ``pass`` band of the spec's cosine and stay within
    ``relative`` of the reference's largest magnitude. A candidate that refuses a case or answers
    in another shape fails there; it is never passed over. Raises :class:`Refusal` where no case
    can be drawn, or the reference itself fails.
    """
    floor = reference.spec.gates.bands["pass"]
    failures: list[Failure] = []
    cases = outputs = 0
    for slots in Slots:
        for case in draw(
            reference.spec, count, seed, variants=variants, sizes=sizes, slots=slots, dtype=dtype
        ):
            cases += 1
            reference.run(case.inputs, case.weights, case.variant)
            try:
                found = compare(reference, candidate, case)
            except Refusal as error:
                failures.append(Failure(case, None, error))
                continue
            except Exception as error:  # somebody else's code: whatever it raises stands against it
                what = f"the candidate failed: {type(error).__name__}: {error}".splitlines()[0][
                    :300
                ]
                failures.append(Failure(case, None, Refusal(Reason.STRUCTURE, what)))
                continue
            outputs += len(found)
            failures += [Failure(case, a) for a in found if not a.within(floor, relative)]
    return Gated(cases, outputs, tuple(failures))


def agreement(name: str, expected: torch.Tensor, got: torch.Tensor) -> Agreement:
    """Compare two tensors of one shape."""
    import torch

    a, b = expected.double().flatten(), got.double().flatten()
    across = float(a.norm() * b.norm())
    both_zero = float(a.norm()) == 0.0 and float(b.norm()) == 0.0
    return Agreement(
        output=name,
        elements=a.numel(),
        cosine=1.0 if both_zero else (float(a @ b) / across if across else math.nan),
        max_abs=float((a - b).abs().max()),
        scale=float(a.abs().max()),
        norm_ratio=float(b.norm()) / float(a.norm()) if float(a.norm()) else math.nan,
        nonfinite=int((~torch.isfinite(b)).sum()),
    )


def amax(reference: Reference, case: Case) -> dict[str, float]:
    """The largest magnitude at each calibration point of this case."""
    found: dict[str, Any] = reference.points(case.inputs, case.weights, case.variant)
    return {name: float(tensor.abs().max()) for name, tensor in found.items()}
