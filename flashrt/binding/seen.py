"""What the seams of a binding saw in one forward of their host, as the spec's own tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from flashrt.binding.address import Address, Capture
from flashrt.binding.boundary import base, live, needed
from flashrt.binding.model import Adapter, RegionBinding
from flashrt.binding.resolver import Placed
from flashrt.binding.shaping import shaped
from flashrt.binding.tap import Taps
from flashrt.binding.tree import Tree, expand
from flashrt.spec.model import Presence

if TYPE_CHECKING:
    import torch


class Seen:
    """The tensors of one forward, by seam and address. Made by :func:`watch`."""

    def __init__(self, tree: Tree, taps: Taps) -> None:
        self.tree = tree
        self._taps = taps

    def tensor(self, one: Placed, address: Address) -> torch.Tensor:
        """The tensor at an address, its steps done.

        Raises ``LookupError`` for what did not happen, ``ValueError`` for a step that does not fit.
        """
        path = expand(address.module, one.index)
        value = self._taps.get(address, path)
        owner = self.tree.modules[path]

        def look(other: Address) -> torch.Tensor:
            return self.tensor(one, other)

        tensors = self.tree.tensors
        return shaped(value, address.then, tensors, owner, one.index, look=look)

    def inputs(self, one: Placed) -> dict[str, torch.Tensor]:
        """What the region was given; an optional input for which the host passed None is left out.

        Raises ``ValueError`` naming the input that is not there.
        """
        spec = one.region.spec
        given: dict[str, torch.Tensor] = {}
        for name, address in sides(one.region)[0].items():
            optional = spec.inputs[base(name, spec.inputs)].presence is Presence.OPTIONAL
            try:
                if optional and self._taps.get(address, expand(address.module, one.index)) is None:
                    continue
                given[name] = self.tensor(one, address)
            except (ValueError, LookupError) as error:
                raise ValueError(f"the input {name}: {said(error)}") from error
        return given


def watch(
    placed: Iterable[Placed],
    tree: Tree,
    forward: Callable[[], object],
    *,
    also: Iterable[tuple[Address, str]] = (),
    inside: AbstractContextManager[object] | None = None,
) -> Seen:
    """Run ``forward`` once with a tap at every address of these seams and at ``also``.

    ``inside`` is entered first, so that what it does to a tensor is what the taps see.
    """
    import torch

    taps = Taps(tree.modules)
    for one in placed:
        for address in _addresses(one.region):
            taps.want(address, expand(address.module, one.index))
    for address, path in also:
        taps.want(address, path)
    with torch.no_grad(), inside or nullcontext(), taps.watching():
        forward()
    return Seen(tree, taps)


def _addresses(region: RegionBinding) -> Iterator[Address]:
    inputs, outputs = sides(region)
    for address in (*inputs.values(), *outputs.values(), *points(region).values()):
        yield address
        for step in address.then:
            yield from step.other()


def sides(region: RegionBinding) -> tuple[Mapping[str, Address], Mapping[str, Address]]:
    """The addresses of inputs and outputs, those that go without saying included.

    A region whose only input is ``x``, and which is its members, reads the first member's argument
    and returns what the members return, by role or, of one member, by the spec's order.
    """
    if region.outputs or region.inputs:
        return region.inputs, region.outputs
    if needed(region.spec, region.variant) != {"x"} or region.adapter is not Adapter.NONE:
        return {}, {}
    members = dict(region.members)
    first = next(iter(members.values()))
    outputs = list(live(region.spec.outputs, region.variant))
    if set(members) == {"self"} and len(outputs) == 1:
        members = {outputs[0]: first}
    plain = {n: Address(m, Capture.OUTPUT) for n, m in members.items() if n in outputs}
    return {"x": Address(first, Capture.INPUT)}, plain


def points(region: RegionBinding) -> dict[str, Address]:
    """The addresses of the calibration points."""
    return {n: Address(p.module, Capture(p.capture)) for n, p in region.points.items()}


def said(error: Exception) -> str:
    """What an error says, without the quotes of a LookupError."""
    return str(error.args[0]) if error.args else str(error)
