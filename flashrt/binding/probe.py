"""Runs each bound region once against its reference: a wrong variant or point shows as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.binding.model import BindingSpec, RegionBinding
from flashrt.binding.tree import Tree
from flashrt.document.problem import Problem
from flashrt.spec.harness import Agreement, agreement
from flashrt.spec.model import Presence
from flashrt.spec.reference import Reference, load_reference
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

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

    A region whose variant needs more than ``x``, or whose weights are on the meta device, is not
    run. The host's random state and modules are left as they were.
    """
    references: dict[str, Reference] = {}
    for region, seam in seams:
        weights = {slot: tree.tensors[key] for slot, key in seam.weights.items()}
        if _needed(region) != {"x"} or any(w.device.type == "meta" for w in weights.values()):
            continue
        if region.spec.id not in references:
            references[region.spec.id] = load_reference(region.spec, trust)
        yield from _run(binding, tree, region, seam, references[region.spec.id])


def _needed(region: RegionBinding) -> set[str]:
    return {
        name
        for name, tensor in region.spec.inputs.items()
        if tensor.applies(region.variant) and tensor.presence is Presence.REQUIRED
    }


def _run(
    binding: BindingSpec, tree: Tree, region: RegionBinding, seam: Seam, reference: Reference
) -> Iterator[Problem]:
    import torch

    weights = {slot: tree.tensors[key] for slot, key in seam.weights.items()}
    some = next(iter(weights.values()))
    width = seam.dims[str(region.spec.inputs["x"].dims[-1])]
    source = torch.Generator().manual_seed(0)
    # Wide enough that two activations differ by far more than rounding.
    x = (4.0 * torch.randn((1, ROWS, width), generator=source)).to(some.device, some.dtype)
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

    if not isinstance(got, torch.Tensor) or got.shape != expected.shape:
        return False
    found: Agreement = agreement("", expected, got)
    return found.within(COSINE, RELATIVE[dtype])


def _problem(binding: BindingSpec, path: str, what: str, do: str) -> Problem:
    document: Any = binding.document
    return Problem(document.file, document.line(path), path, what, do, Reason.BINDING)
