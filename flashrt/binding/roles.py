"""Query, key and value are told apart by what the host's attention takes, not by a binding's words.

A region whose k and v are exchanged in members, weights and boundary alike is consistent in itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashrt.binding.address import Address, Capture
from flashrt.binding.model import BindingSpec
from flashrt.binding.resolver import Placed
from flashrt.binding.seen import Seen, sides
from flashrt.binding.tree import expand
from flashrt.document.problem import Problem
from flashrt.spec.model import TensorSpec
from flashrt_runtime.reason import Reason

if TYPE_CHECKING:
    import torch

ROLES = {"q": "query", "k": "key", "v": "value"}
ATTENTIONS = 4  # of one run of a region's module, looked at
SAME = 1e-4  # largest relative difference of two tokens' norms that are one tensor's
_RESHAPES = ("unflatten", "flatten", "axes", "unsqueeze", "squeeze")


@dataclass(frozen=True)
class Clash:
    """A seam's tensor that is another role's; ``why`` says whose."""

    region: str
    seam_id: str
    name: str
    why: str


@dataclass(frozen=True)
class _Held:
    """One seam's tensor in one role: its bytes' digest and its norm per token."""

    one: Placed
    role: str
    digest: bytes
    norms: torch.Tensor


def clashes(binding: BindingSpec) -> Iterator[Problem]:
    """Two regions that give one place of the host two roles, at the second's line. Runs nothing."""
    first: dict[tuple[object, ...], tuple[str, str]] = {}
    for region in binding.regions.values():
        own: dict[tuple[object, ...], set[str]] = {}
        for side, held in zip(("inputs", "outputs"), sides(region), strict=True):
            for role, address in held.items():
                if role not in ROLES:
                    continue
                key = _place(address)
                own.setdefault(key, set()).add(role)
                there, by = first.setdefault(key, (role, region.name))
                if there == role or len(own[key]) > 1:
                    continue
                path = f"$.regions.{region.name}"
                if side in binding.document.value["regions"][region.name]["boundary"]:
                    path += f".boundary.{side}.{role}"
                what = f"{address.module} is {role} here and {there} in the region {by}"
                do = "exchange what is exchanged: what attention takes decides"
                line = binding.document.line(path)
                yield Problem(binding.document.file, line, path, what, do, Reason.BINDING)


def _place(address: Address) -> tuple[object, ...]:
    steps = [repr(step) for step in address.then if step.op not in _RESHAPES]
    return (address.module, address.capture, address.name, address.slot, address.nth, *steps)


def authorities(placed: Sequence[Placed]) -> Iterator[tuple[Address, str]]:
    """What to tap beside the addresses: what each seam's own module attends with."""
    for one in placed:
        if any(set(side) & set(ROLES) for side in sides(one.region)):
            path = expand(one.region.module, one.index)
            for address in _attentions(one):
                yield address, path


def _attentions(one: Placed) -> Iterator[Address]:
    for nth in range(ATTENTIONS):
        for name in ROLES.values():
            yield Address(one.region.module, Capture.SDPA, name, nth=nth)


def contradicted(placed: Sequence[Placed], seen: Seen) -> list[Clash]:
    """Every tensor whose role the host's attention, or a region proven by it, contradicts.

    A tensor is what attention takes as query, key or value when its norms per token are: a rotation
    and a layout leave them. One that attention takes in no role is held against the other regions'
    tensors of the same bytes. What one region itself gives two roles (one projection for keys and
    values) is no contradiction.
    """
    held = [h for one in placed for h in _held(one, seen)]
    taken = {one.key: _taken(one, seen) for one in placed}
    sure: set[tuple[str, str, str]] = set()
    found: list[Clash] = []
    for h in held:
        fits = {r for r, norms in taken[h.one.key] if _same(h.norms, norms)}
        key = (*h.one.key, h.role)
        if h.role in fits:
            sure.add(key)
        elif fits:
            what = f"the host attends with it as {ROLES[min(fits)]}"
            found.append(Clash(*key, f"it is not {h.role}: {what}"))
    wrong = {(clash.region, clash.seam_id) for clash in found}
    groups: dict[bytes, list[_Held]] = {}
    for h in held:
        if h.one.key not in wrong:
            groups.setdefault(h.digest, []).append(h)
    for group in groups.values():
        found += _disagree(group, sure)
    return list({(c.region, c.seam_id, c.name): c for c in reversed(found)}.values())[::-1]


def _disagree(group: list[_Held], sure: set[tuple[str, str, str]]) -> Iterator[Clash]:
    own: dict[tuple[str, str], set[str]] = {}
    for h in group:
        own.setdefault(h.one.key, set()).add(h.role)
    single = [h for h in group if len(own[h.one.key]) == 1]
    known = {h.role for h in single if (*h.one.key, h.role) in sure}
    for h in single:
        others = [o for o in single if o.role != h.role]
        if others and not (known and h.role in known):
            by = f"{others[0].role} of the region {others[0].one.region.name}"
            yield Clash(*h.one.key, h.role, f"{h.role} is the same tensor as {by}")


def _held(one: Placed, seen: Seen) -> Iterator[_Held]:
    spec = one.region.spec
    for known, side in zip((spec.inputs, spec.outputs), sides(one.region), strict=True):
        for role in sorted(set(ROLES) & set(side)):
            try:
                tensor = seen.tensor(one, side[role])
            except (ValueError, LookupError):
                continue  # said where the region is proven
            if tensor.dim() >= len(known[role].dims) and bool(tensor.any()):
                yield _Held(one, role, _digest(tensor), _norms(tensor, known[role], spec.rows))


def _digest(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().float().contiguous().flatten().cpu()
    return hashlib.sha256(flat.numpy().tobytes()).digest()


def _norms(tensor: torch.Tensor, spec: TensorSpec, rows: str) -> torch.Tensor:
    """One norm a token: over the dims after the rows, or after a batch's tokens."""
    features = len(spec.dims) - (1 if rows == "M" else 2)
    return tensor.double().flatten(tensor.dim() - features).norm(dim=-1).flatten()


def _taken(one: Placed, seen: Seen) -> list[tuple[str, torch.Tensor]]:
    found = []
    for address in _attentions(one):
        try:
            tensor = seen.tensor(one, address).double()  # [..., heads, tokens, width]
        except (ValueError, LookupError):
            continue
        role = next(r for r, name in ROLES.items() if name == address.name)
        if tensor.dim() >= 3:
            found.append((role, tensor.square().sum(dim=(-1, -3)).sqrt().flatten()))
    return found


def _same(norms: torch.Tensor, taken: torch.Tensor) -> bool:
    """Whether two norms per token are one tensor's, or one its first or last part, but for a scale.

    Too few tokens, or norms that hardly differ (normed heads), tell nothing.
    """
    import torch

    n = norms.numel()
    if n < 3 or n > taken.numel() or not float(norms.std() / norms.mean()) > 10 * SAME:
        return False
    mine = norms / norms.norm()
    for part in (taken[:n], taken[-n:]):
        whole = float(part.norm())
        if whole > 0.0 and bool(torch.allclose(mine, part / whole, rtol=SAME, atol=1e-9)):
            return True
    return False
