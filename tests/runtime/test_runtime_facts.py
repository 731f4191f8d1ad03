"""Facts are read, sorted, and None when they cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from flashrt_runtime import facts


def test_the_cpu_has_a_name_flags_and_threads() -> None:
    found = facts.device_facts("cpu")
    assert set(found) == {"class", "arch", "name", "isa", "threads"}
    assert found["threads"] == torch.get_num_threads()
    assert found["isa"] == sorted(set(found["isa"]))


def test_only_flags_that_decide_arithmetic_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"model name": "A", "flags": "sse2 avx2 amx_int8 fma avx512f rdseed avx2"}
    monkeypatch.setattr(facts, "_cpuinfo", lambda: info)
    found = facts.device_facts(torch.device("cpu"))
    assert found["isa"] == ["amx_int8", "avx2", "avx512f", "fma"]
    assert found["name"] == "A"


def test_what_cannot_be_read_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert facts._cpuinfo(tmp_path / "absent") == {}
    monkeypatch.setattr(facts, "_cpuinfo", dict)
    assert facts.device_facts("cpu")["isa"] is None
    assert facts.package_version("no-such-package-at-all") is None
    assert facts.device_facts("meta")["name"] is None


def test_software_is_read_without_importing_it() -> None:
    found = facts.software_facts()
    assert found["torch"] == torch.__version__
    assert set(found) == {"torch", "transformers", "flashrt"}


def test_a_model_of_two_dtypes_has_no_dtype(net: Any) -> None:
    assert facts.model_facts(net, ("compile",)).dtype == "float32"
    net.second = net.second.to(torch.bfloat16)
    found = facts.model_facts(net, ("compile",))
    assert found.dtype is None
    assert found.form == ("compile",)
