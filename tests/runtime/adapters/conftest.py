"""Real tiny hosts observed once, cores made of the catalog's references, and swaps of bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.host.discovery.attention import AttentionTap, find
from flashrt.host.discovery.near_miss import NearMiss
from flashrt.host.discovery.trace import Trace
from flashrt.host.tiny import TinyHost, build
from flashrt.spec import load, load_reference
from flashrt_runtime.contract import BoundSeam, Seam
from flashrt_runtime.guard import FormContract
from flashrt_runtime.swap import Swap


@dataclass(frozen=True)
class Observed:
    """A tiny host and what one forward of it showed."""

    host: TinyHost
    seams: tuple[Seam, ...]
    misses: tuple[NearMiss, ...]
    plans: Mapping[str, Any]

    def of(self, structure: str) -> list[Seam]:
        """Seams of one structure."""
        return [seam for seam in self.seams if seam.structure.startswith(structure)]


def look(model: nn.Module, forward: Callable[[], object]) -> tuple[Any, Any, Any]:
    tap = AttentionTap(model)
    with tap, torch.no_grad():
        forward()
    seams, misses = find(model, Trace(), tap)
    return tuple(seams), tuple(misses), tap.plans


@cache
def _observed(name: str) -> Observed:
    host = build(name)
    return Observed(host, *look(host.model, host.forward))


@pytest.fixture(scope="session")
def observed() -> Callable[[str], Observed]:
    """``observed(name)``: the tiny host of this name, its seams, near misses and plans."""
    return _observed


@pytest.fixture(scope="session")
def looked() -> Callable[..., tuple[Any, Any, Any]]:
    """``looked(model, forward)``: seams, near misses and plans of one forward."""
    return look


def reference_core(structure: str, variant: Mapping[str, str], weights: Mapping[str, Any]) -> Any:
    reference = load_reference(load(structure))
    return lambda inputs: reference.run(inputs, weights, variant)


@pytest.fixture(scope="session")
def core() -> Callable[..., Any]:
    """``core(seam, model)``: the catalog's reference with the seam's weights and variant."""

    def make(seam: Seam, model: nn.Module) -> Any:
        held = dict(model.state_dict(keep_vars=True))
        weights = {slot: held[key].detach() for slot, key in seam.weights.items()}
        return reference_core(seam.structure, seam.variant, weights)

    return make


@pytest.fixture(scope="session")
def swap_body() -> Callable[..., Swap]:
    """``swap_body(path, body, width)``: a swap that puts the body at the path."""

    def make(path: str, body: nn.Module, width: int) -> Swap:
        seam = Seam(f"{path}.test", "test@1", {"self": path}, {}, {}, {})
        contract = FormContract(torch.device("cpu"), torch.float32, width, (1, None))
        return Swap(seam, BoundSeam({"self": body}, "flashrt::test", 0), contract, "fake", "test")

    return make


def values(out: Any) -> Iterator[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        yield out
    elif isinstance(out, Mapping):
        yield from (t for v in out.values() for t in values(v))
    elif isinstance(out, (tuple, list)):
        yield from (t for v in out for t in values(v))


@pytest.fixture(scope="session")
def agree() -> Callable[[Any, Any], bool]:
    """``agree(a, b)``: whether two outputs hold the same tensors, to float32 rounding."""

    def same(a: Any, b: Any) -> bool:
        left, right = list(values(a)), list(values(b))
        assert left
        assert len(left) == len(right)
        return all(
            x.shape == y.shape and torch.allclose(x, y, rtol=1e-4, atol=1e-5)
            for x, y in zip(left, right, strict=True)
        )

    return same
