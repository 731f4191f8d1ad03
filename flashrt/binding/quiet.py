"""Makes what a region's norm reads so quiet that its eps decides the result.

Real rows are far larger than any eps, so one forward of a host says nothing about it. Here the
host's own modules run again on rows whose mean square is about eps.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from flashrt.binding.address import Address, Capture
from flashrt.binding.resolver import Placed
from flashrt.binding.seen import sides
from flashrt.binding.tree import Tree, expand
from flashrt.spec.harness import agreement
from flashrt.spec.reference import Reference

if TYPE_CHECKING:
    import torch

OTHER = 1.1  # an eps so much larger must show
LEVELS = (1.0, 1 / 8, 8.0)  # root mean square of a quiet tensor, in roots of eps
_LINEAR = ("item", "chunk", "narrow", "unflatten", "flatten", "axes", "unsqueeze", "squeeze")

Tensors = Mapping[str, "torch.Tensor"]


def eps_of(one: Placed) -> float | None:
    """The eps that the region's variant says, None where it says none or 0."""
    said = one.region.variant.get("eps")
    return (float(said) or None) if said is not None else None


def shows(
    reference: Reference, given: Tensors, weights: Tensors, variant: Mapping[str, str]
) -> bool:
    """Whether these inputs tell the variant's eps from one ten percent larger."""
    from flashrt.binding.proof import COSINE, RELATIVE

    other = {**variant, "eps": repr(OTHER * float(variant["eps"]))}
    one = reference.run(given, weights, variant)
    two = reference.run(given, weights, other)
    return any(not agreement(n, one[n], two[n]).within(COSINE, RELATIVE) for n in one)


def chosen(
    one: Placed, reference: Reference, given: Tensors, weights: Tensors
) -> tuple[frozenset[str], float] | None:
    """Which inputs to quieten, and to which of :data:`LEVELS`; None where nothing shows the eps.

    Runs the reference only. Every input counts whose quiet alone shows it; where none does (a norm
    of a sum), all of them together.
    """
    eps = eps_of(one)
    if eps is None:
        return None
    free = [
        name
        for name, tensor in given.items()
        if tensor.is_floating_point()
        and one.region.spec.inputs[name.partition(".")[0]].domain.kind.value == "normal"
    ]
    for level in LEVELS:
        softer = {name: given[name] * _factor(given[name], eps, level) for name in free}

        def shown(*names: str, softer: Tensors = softer) -> bool:
            some = {**given, **{name: softer[name] for name in names}}
            return shows(reference, some, weights, one.region.variant)

        alone = [name for name in free if shown(name)]
        if alone or (free and shown(*free)):
            return frozenset(alone or free), level
    return None


def rounds(one: Placed, level: float) -> tuple[float, ...]:
    """The levels of one seam's forwards.

    A region made of others has norms behind its first one: rows so much quieter that even normed
    ones have a mean square of about eps reach those.
    """
    eps = eps_of(one)
    return (level, level * eps**0.5) if eps and one.region.spec.composes else (level,)


def _factor(tensor: torch.Tensor, eps: float, level: float) -> float:
    square = float(tensor.double().square().mean())
    return level * (eps / square) ** 0.5 if square > 0.0 else 1.0


def beyond(one: Placed, names: frozenset[str]) -> str:
    """Why these inputs cannot be quietened in the host, empty where they can."""
    for name in sorted(names):
        address = sides(one.region)[0][name]
        if address.capture not in (Capture.INPUT, Capture.OUTPUT):
            return f"{name} is seen in a call, where it cannot be made quiet"
        if any(step.op not in _LINEAR for step in address.then):
            return f"{name} is a sum that the host makes, and cannot be made quiet"
    return ""


@contextmanager
def quietened(tree: Tree, asked: list[tuple[Placed, frozenset[str], float]]) -> Iterator[None]:
    """While it is entered, the named inputs of these seams are scaled where the host has them.

    A tensor that a seam reads as two inputs (a residual and what its norm reads) is scaled where it
    lies, so that the host too sees one tensor; it is put back afterwards.
    """
    with ExitStack() as stack:
        for one, names, level in asked:
            addresses = sides(one.region)[0]
            sources = [_source(a) for a in addresses.values()]
            for source in {_source(addresses[name]): None for name in names}:
                scale = _Scale(float(one.region.variant["eps"]), level, sources.count(source) > 1)
                stack.callback(scale.restore)
                module = tree.modules[expand(source[0], one.index)]
                handle = (
                    module.register_forward_hook(scale.after(source))
                    if source[1] is Capture.OUTPUT
                    else module.register_forward_pre_hook(scale.before(source), with_kwargs=True)
                )
                stack.callback(handle.remove)
        yield


Source = tuple[str, Capture, str, tuple[int, ...]]


def _source(address: Address) -> Source:
    """Module, side, parameter, and the items that lead to a tensor in what is seen there."""
    items: list[int] = []
    for step in address.then:
        if step.op != "item":
            break
        items.append(step.operand)
    return address.module, address.capture, address.name, tuple(items)


class _Scale:
    """Scales a tensor to a mean square of level² · eps, in place where it has other readers."""

    def __init__(self, eps: float, level: float, shared: bool) -> None:
        self.eps = eps
        self.level = level
        self.shared = shared
        self.changed: list[tuple[torch.Tensor, torch.Tensor]] = []

    def restore(self) -> None:
        import torch

        with torch.no_grad():
            for tensor, before in reversed(self.changed):
                tensor.copy_(before)
        self.changed.clear()

    def scaled(self, value: Any, items: tuple[int, ...]) -> Any:
        import torch

        if items and isinstance(value, (tuple, list)):
            at = items[0] % len(value)
            held = [self.scaled(v, items[1:]) if i == at else v for i, v in enumerate(value)]
            return type(value)(held)
        if not isinstance(value, torch.Tensor):
            return value
        factor = _factor(value, self.eps, self.level)
        if not self.shared:
            return value * factor
        self.changed.append((value, value.detach().clone()))
        return value.mul_(factor)

    def after(self, source: Source) -> Any:
        return lambda _module, _args, output: self.scaled(output, source[3])

    def before(self, source: Source) -> Any:
        import torch

        _, _, name, items = source

        def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            where: Any
            if name:
                names = [] if name in kwargs else list(inspect.signature(module.forward).parameters)
                where = names.index(name) if name in names else name
            else:
                pairs = [*enumerate(args), *kwargs.items()]
                where = next((n for n, v in pairs if isinstance(v, torch.Tensor)), None)
            if isinstance(where, int) and where < len(args):
                args = (*args[:where], self.scaled(args[where], items), *args[where + 1 :])
            elif isinstance(where, str) and where in kwargs:
                kwargs = {**kwargs, where: self.scaled(kwargs[where], items)}
            return args, kwargs

        return hook
