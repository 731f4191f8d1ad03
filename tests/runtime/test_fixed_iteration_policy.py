"""A flow-matching policy host: PI0 under a tensor-controlled sampler, and under its own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import flashrt
from flashrt_runtime.reason import Reason, Refusal

NAME = "flow_policy"
spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name(f"{NAME}.py"))
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
sys.modules[NAME] = module  # the compiler looks a function's globals up by its module
spec.loader.exec_module(module)


@pytest.fixture(scope="module")
def policy() -> Any:
    return module.flow_policy()


def test_the_sampler_becomes_a_schedule_whose_windows_name_themselves(policy: Any) -> None:
    host, given = policy
    stage = flashrt.capture(
        lambda: host.sample_actions(**given), model=host, form=("eager",), name="sampler"
    )
    assert stage.options["schedule"] == "init, 3 times step, readout"
    assert stage.options["noise"] == "noise"
    assert set(stage.options["observation"].split()) == set(given) - {"noise"}
    source = torch.Generator().manual_seed(9)
    for key in ("noise", "state", "pixel_values"):
        other = torch.randn(given[key].shape, generator=source)
        with torch.no_grad():
            expected = host.sample_actions(**{**given, key: other})
        assert torch.equal(stage.replay(**{**given, key: other}), expected)


def test_a_sampler_without_explicit_noise_is_refused(policy: Any) -> None:
    host, given = policy
    silent = {key: value for key, value in given.items() if key != "noise"}
    with pytest.raises(Refusal) as caught:
        flashrt.capture(lambda: host.sample_actions(**silent), model=host)
    assert caught.value.reason is Reason.UNCAPTURABLE
    assert "noise" in caught.value.what
    assert caught.value.do == "give the noise explicitly"


@pytest.mark.slow
@pytest.mark.parametrize("form", [("segmented", "compile"), ("compile",)])
def test_the_captured_sampler_follows_every_window(policy: Any, form: Any) -> None:
    host, given = policy
    stage = flashrt.capture(lambda: host.sample_actions(**given), model=host, form=form)
    assert set(stage.options["windows_followed"].split()) >= {"noise", "state", "pixel_values"}
    other = {**given, "noise": given["noise"] * 0.5}
    with torch.no_grad():
        expected = host.sample_actions(**other)
    assert torch.allclose(stage.replay(**other), expected, atol=1e-4)
