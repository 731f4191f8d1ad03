"""Runs each bound region once against its reference: a wrong variant or point shows as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.binding.address import Capture
from flashrt.binding.boundary import needed
from flashrt.binding.model import Adapter, BindingSpec, RegionBinding
from flashrt.binding.shaping import slots
from flashrt.binding.tree import Tree
from flashrt.document.problem import Problem
from flashrt.spec import dims
from flashrt.spec.harness import Agreement, agreement
from flashrt.spec.reference import Reference, load_reference
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

ROWS = 3
COSINE = 0.99
# Largest difference over the largest magnitude that rounding explains, by boundary dtype.
RELATIVE = {"float64": 1e-4, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}


def probe(
    binding: BindingSpec,
    tree: Tree,
    seams: Sequence[tuple[RegionBinding, Seam]],
    trust: Iterable[Path] = (),
) -> Iterator[Problem]:
    """What the numbers contradict, at the variant's or the point's own line.

    A region that needs more than ``x``, lies inside its member, sees it in another shape or has no
    weight to say its width (:func:`flashrt.binding.proof.prove` runs those on a real forward), or
    whose weights are on the meta device, is not run. The host's random state and modules are left
    as they were.
    """
    references: dict[str, Reference] = {}
    for region, seam in seams:
        weights = slots(region, seam, tree)
        if (
            not weights
            or not _plain(region)
            or any(w.device.type == "meta" for w in weights.values())
        ):
            continue
        if region.spec.id not in references:
            references[region.spec.id] = load_reference(region.spec, trust)
        try:
            yield from _run(binding, tree, region, seam, references[region.spec.id])
        except Refusal as error:
            if error.reason is not Reason.DTYPE:
                raise
            path = f"$.regions.{region.name}.boundary.dtype"
            what = f"{region.spec.id} does not take {region.dtype}: {error.what}"
            do = "leave the region out for a host of this dtype"
            yield _problem(binding, path, what, do, Reason.DTYPE)


def _plain(region: RegionBinding) -> bool:
    """Whether calling the members with ``x`` is calling the region."""
    only = needed(region.spec, region.variant) == {"x"} and region.adapter is Adapter.NONE
    held = {**region.inputs, **region.outputs}.values()
    return only and not any(a.then or a.capture in (Capture.SDPA, Capture.CALL) for a in held)


def _run(
    binding: BindingSpec, tree: Tree, region: RegionBinding, seam: Seam, reference: Reference
) -> Iterator[Problem]:
    import torch

    weights = slots(region, seam, tree)
    some = next(iter(weights.values()))
    width = dims.evaluate(region.spec.inputs["x"].dims[-1], seam.dims)
    source = torch.Generator().manual_seed(0)
    # Wide enough that two activations differ by far more than rounding.
    x = 4.0 * torch.randn((1, ROWS, width), generator=source)
    if (eps := float(seam.variant.get("eps", 0.0))) > 0.0:
        # One row so quiet that eps decides its norm: beside the others any eps looks right.
        x = torch.cat([x, eps**0.5 * torch.randn((1, 1, width), generator=source)], dim=1)
    x = x.to(some.device, some.dtype)
    seen, outputs = _call(tree, seam, x)
    expected = reference.run({"x": x}, weights, seam.variant)
    roles = list(expected) if set(seam.members) == {"self"} else list(seam.members)
    for role, got in zip(roles, outputs, strict=False):
        if role in expected and not _agrees(expected[role], got, region.dtype):
            at = next(iter(seam.members.values()))
            what = f"{at} does not compute {region.spec.id} with this variant ({role} differs)"
            do = "check the variant, and which tensor each slot holds"
            yield _problem(binding, f"$.regions.{region.name}.variant", what, do)
            return
    for name, tensor in reference.points({"x": x}, weights, seam.variant).items():
        if name in seen and not _agrees(tensor, seen[name], region.dtype):
            point = seam.points[name]
            what = f"the {point.capture} of {point.module} is not {name} of {region.spec.id}"
            do = "name the module and the side where it sits"
            yield _problem(binding, f"$.regions.{region.name}.points.{name}", what, do)


def _call(tree: Tree, seam: Seam, x: torch.Tensor) -> tuple[dict[str, Any], list[Any]]:
    """What each point saw and what each member returned."""
    import torch

    seen: dict[str, Any] = {}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for name, point in seam.points.items():
            handle = tree.modules[point.module].register_forward_hook(
                _watch(seen, name, point.capture)
            )
            stack.callback(handle.remove)
        outputs = [tree.modules[path](x) for path in seam.members.values()]
    if set(seam.members) == {"self"} and isinstance(outputs[0], tuple):
        outputs = list(outputs[0])
    return seen, outputs


def _watch(seen: dict[str, Any], name: str, capture: str) -> Any:
    def hook(module: Any, args: tuple[Any, ...], output: Any) -> None:
        value = (args[0] if args else None) if capture == "input" else output
        seen.setdefault(name, value)

    return hook


def _agrees(expected: torch.Tensor, got: Any, dtype: str) -> bool:
    import torch

    # A member may hand back rows, without the leading dim of 1 that it was given.
    if not isinstance(got, torch.Tensor) or got.shape not in (expected.shape, expected.shape[1:]):
        return False
    got = got.reshape(expected.shape)
    found: Agreement = agreement("", expected, got)
    return found.within(COSINE, RELATIVE[dtype])


def _problem(
    binding: BindingSpec, path: str, what: str, do: str, reason: Reason = Reason.BINDING
) -> Problem:
    document: Any = binding.document
    return Problem(document.file, document.line(path), path, what, do, reason)
