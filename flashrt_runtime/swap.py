"""The only mutator of a model: puts implementations in the place of host modules, whole or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.chain import Link, check_chains
from flashrt_runtime.contract import BoundSeam, Seam
from flashrt_runtime.guard import FormContract, GuardFail
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.handle import Handle

__all__ = ["Handle", "Link", "Swap", "attach"]


def __getattr__(name: str) -> Any:
    # Handle is offered here, and imports torch only when it is asked for.
    if name == "Handle":
        from flashrt_runtime.handle import Handle

        return Handle
    raise AttributeError(name)


@dataclass(frozen=True)
class Swap:
    """One seam with its bound implementation and the contract that guards it.

    ``link`` is its part in a negotiated chain, whose swaps are attached and detached as one.
    """

    seam: Seam
    bound: BoundSeam
    contract: FormContract
    backend: str
    form: str
    link: Link | None = None

    @property
    def unit(self) -> str:
        """What it is attached and detached with: its chain, or itself alone."""
        return self.seam.id if self.link is None else self.link.unit


def _refuse_training(model: torch.nn.Module) -> None:
    for path, module in model.named_modules():
        if module.training:
            raise Refusal(
                Reason.TRAINING,
                "the module is in training mode",
                subject=path or type(model).__name__,
                do="call model.eval() before attaching",
            )


def _refuse_attached(model: torch.nn.Module) -> None:
    from flashrt_runtime.roots import MARK
    from flashrt_runtime.seat import Seat

    for path, module in model.named_modules():
        if isinstance(module, Seat) or MARK in module.__dict__:
            raise Refusal(
                Reason.CONFLICT,
                "implementations are attached already",
                subject=path or type(model).__name__,
                do="detach() the first handle",
            )


def _paths(model: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, int]]:
    """Every path's module and how many paths reach it."""
    counts: dict[int, int] = {}
    found = list(model.named_modules(remove_duplicate=False))
    for _, module in found:
        counts[id(module)] = counts.get(id(module), 0) + 1
    return {path: (module, counts[id(module)]) for path, module in found}


def _check_members(
    swap: Swap,
    paths: dict[str, tuple[torch.nn.Module, int]],
    taken: dict[str, tuple[str, torch.nn.Module]],
) -> None:
    import torch

    seam = swap.seam
    if set(swap.bound.bodies) != set(seam.members):
        raise Refusal(
            Reason.BINDING,
            f"bodies for {sorted(swap.bound.bodies)}, members {sorted(seam.members)}",
            subject=seam.id,
        )
    for role, path in seam.members.items():
        if not path or path not in paths:
            raise Refusal(Reason.BINDING, f"the host has no module {path!r}", subject=seam.id)
        if paths[path][1] > 1:
            what = f"the module {path!r} is reached by {paths[path][1]} paths"
            raise Refusal(Reason.TIED, what, subject=seam.id, do="leave it to the host")
        if not isinstance(swap.bound.bodies[role], torch.nn.Module):
            raise Refusal(Reason.BINDING, f"the body of {role!r} is no module", subject=seam.id)
        body = swap.bound.bodies[role]
        for other, (owner, there) in taken.items():
            if _overlap(path, body, other, there):
                what = f"{path!r} and {other!r} (seam {owner}) overlap"
                raise Refusal(Reason.CONFLICT, what, subject=seam.id)
        taken[path] = (seam.id, body)


def _overlap(path: str, body: torch.nn.Module, other: str, there: torch.nn.Module) -> bool:
    """Whether two members share a module. One may lie in another whose body still calls it as a
    module: such a body names what it calls, relative to its member, in ``inner``."""
    if f"{other}.".startswith(f"{path}.") and path != other:
        return other[len(path) + 1 :] not in getattr(body, "inner", ())
    if f"{path}.".startswith(f"{other}.") and path != other:
        return path[len(other) + 1 :] not in getattr(there, "inner", ())
    return path == other


def _check(model: torch.nn.Module, swaps: Sequence[Swap]) -> None:
    _refuse_attached(model)
    _refuse_training(model)
    seen: set[str] = set()
    taken: dict[str, tuple[str, torch.nn.Module]] = {}
    paths = _paths(model)
    for swap in swaps:
        if swap.seam.id in seen:
            raise Refusal(Reason.CONFLICT, "two swaps name this seam", subject=swap.seam.id)
        seen.add(swap.seam.id)
        _check_members(swap, paths, taken)
    check_chains([(s.seam.id, s.link, len(s.seam.members)) for s in swaps if s.link is not None])


def attach(
    model: torch.nn.Module,
    swaps: Sequence[Swap],
    on_guard_fail: GuardFail | str = GuardFail.HOST,
) -> Handle:
    """Put every swap's bodies in place, or change nothing at all.

    The host's modules are retained; :meth:`Handle.detach` puts the same objects back. Raises
    :class:`Refusal`: TRAINING, CONFLICT (attached already, overlapping or repeated seams),
    BINDING (a path or a body that is not there, a chain that is not whole), TIED (a module with
    several paths).
    """
    from flashrt_runtime.handle import Handle

    _check(model, swaps)
    return Handle(model, swaps, _guard_fail(on_guard_fail))


def _guard_fail(given: GuardFail | str) -> GuardFail:
    try:
        return GuardFail(given)
    except ValueError:
        known = ", ".join(repr(choice.value) for choice in GuardFail)
        what = f"on_guard_fail={given!r} is none of {known}"
        raise Refusal(Reason.CONFLICT, what) from None
