"""Binds any CPU form to a case that the harness drew for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch

from flashrt.spec import load
from flashrt.spec.harness import Case, amax
from flashrt.spec.reference import load_reference
from flashrt_runtime import impl_loader as loader
from flashrt_runtime.contract import BoundSeam

LARGEST = {"int8": 127.0, "fp8_e4m3": 448.0}
ROLES = {"qkv_pack": ("q", "k", "v")}
Bind = Callable[..., BoundSeam]
Call = Callable[[BoundSeam, torch.Tensor], dict[str, torch.Tensor]]


@pytest.fixture
def bind_case() -> Bind:
    """``(impl, case, scales=None) -> BoundSeam``: static scales just hold the case's own values."""

    def bind(
        impl: loader.ImplForm, case: Case, scales: Mapping[str, float] | None = None
    ) -> BoundSeam:
        if scales is None and "static" in impl.spec.points.values():
            largest = LARGEST[impl.spec.activations]
            seen = amax(load_reference(load(impl.structure)), case)
            scales = {point: value / largest for point, value in seen.items()}
        roles = ROLES.get(case.spec.name, ("self",))
        return loader.bind(impl, case.request(impl.form, scales or {}, roles))

    return bind


@pytest.fixture
def call_seam() -> Call:
    """``(seam, x) -> outputs`` by the spec's names, bodies called in the seam's order."""

    def call(seam: BoundSeam, x: torch.Tensor) -> dict[str, torch.Tensor]:
        if "self" in seam.bodies:
            y = seam.bodies["self"](x)
            if y.dtype == torch.float8_e4m3fn:  # emitted for readers: real value = scale x value
                y = y.float() * float(seam.notes["scale"])
            return {"y": y}
        return {role: body(x) for role, body in seam.bodies.items()}

    return call
