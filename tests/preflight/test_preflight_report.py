"""What a qualification without its device finds, says and refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from flashrt.document.canonical import canonical_bytes
from flashrt.qualify import preflight as room
from flashrt.qualify.preflight import PreflightReport, preflight
from flashrt_runtime.reason import Reason, Refusal

KERNELS = {"norm_quantise", "gated_product", "product"}


@pytest.fixture(scope="module")
def report() -> PreflightReport:
    """The preflight of decoder_ffn for sm90 at small widths."""
    return preflight("sm90", ["decoder_ffn@1"], {"decoder_ffn@1": {"D": 256, "F": 512}})


def entry(report: PreflightReport) -> Mapping[str, Any]:
    (found,) = report.record["impls"]
    return found


def test_state_is_unknown_because_the_device_is_absent(report: PreflightReport) -> None:
    assert report.record["state"] == "unknown"
    assert report.reasons[0].reason is Reason.ARCH_ABSENT
    assert report.record["reasons"][0]["name"] == "ARCH_ABSENT"
    assert report.sound
    assert canonical_bytes(report.record)


def test_every_kernel_compiles_for_sm90(report: PreflightReport) -> None:
    kernels = entry(report)["kernels"]
    assert {k["kernel"] for k in kernels} == KERNELS
    assert not [k for k in kernels if "error" in k]
    for kernel in kernels:
        assert kernel["cubin_bytes"] > 1000
        assert kernel["cubin_sha256"].startswith("sha256:")
        assert kernel.get("stack_bytes", 0) == 0


def test_many_rows_use_the_device_s_own_matrix_instruction(report: PreflightReport) -> None:
    found = {(form, k["kernel"]): k["mma"] for k in entry(report)["kernels"] for form in k["forms"]}
    assert found["general", "product"] == "wgmma"
    assert found["decode", "product"] == "mma.sync"
    assert found["decode", "norm_quantise"] is None
    products = [k for k in entry(report)["kernels"] if k["kernel"] != "norm_quantise"]
    assert all(k["pipelined"] for k in products)


def test_numerics_of_every_form_and_variant(report: PreflightReport) -> None:
    cases = entry(report)["numerics"]
    seen = {(c["form"], c["variant"]["norm"], c["variant"]["activation"]) for c in cases}
    assert len(seen) == 12
    for case in cases:
        assert case["nonfinite"] == 0
        assert case["bit_exact"], case
        assert case["format_cosine"] >= room.FORMAT_FLOOR
        assert case["cosine"] >= 0.99


def test_the_arch_rule_is_recorded(report: PreflightReport) -> None:
    rule = entry(report)["arch_rule"]
    assert rule == {"declared": ["8.9", "9.0", "10.0", "12.0"], "device": "9.0", "serves": True}


@pytest.mark.parametrize("device", ["sm80", "gfx942"])
def test_a_device_without_e4m3_is_refused_by_the_rule(device: str) -> None:
    found = preflight(device, ["decoder_ffn@1"])
    assert entry(found)["kernels"] == []
    assert entry(found)["arch_rule"]["serves"] is False
    assert [b.reason for b in found.reasons] == [Reason.ARCH_ABSENT, Reason.ARCH]
    assert found.sound


def test_a_structure_with_no_impl_there_is_said() -> None:
    found = preflight("sm90", ["qkv_pack@1"])
    assert found.record["impls"] == []
    assert "the host keeps it" in str(found.reasons[1])


@pytest.mark.parametrize("device", ["sm91x", "foo", "cpu", "sm90a"])
def test_a_device_that_does_not_exist(device: str) -> None:
    with pytest.raises(Refusal, match="known devices are cpu, sm75") as caught:
        preflight(device)
    assert caught.value.reason is Reason.DEVICE


def test_a_structure_that_nothing_executes() -> None:
    with pytest.raises(Refusal, match="decoder_ffn@1, linear_proj@1") as caught:
        preflight("sm90", ["vision_ffn@1"])
    assert caught.value.reason is Reason.STRUCTURE


def test_without_triton_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match="Triton is not installed") as caught:
        preflight("sm90")
    assert caught.value.reason is Reason.SOFTWARE


BAD_CASE = {
    "form": "decode",
    "variant": {"norm": "host"},
    "cosine": 0.5,
    "format_cosine": 0.5,
    "nonfinite": 0,
    "bit_exact": False,
}


@pytest.mark.parametrize(
    ("kernels", "cases", "name"),
    [
        ([{"kernel": "product", "forms": ["decode"], "error": "ptxas died"}], [], "compile"),
        ([], [BAD_CASE], "numerics"),
        ([], [{**BAD_CASE, "format_cosine": 1.0, "nonfinite": 3}], "numerics"),
        ([], [{**BAD_CASE, "format_cosine": None, "cosine": None}], "numerics"),
    ],
)
def test_what_fails_makes_the_report_unsound(
    kernels: list[Any], cases: list[Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(request: Mapping[str, Any], interpreted: bool) -> list[Any]:
        return cases if interpreted else kernels

    monkeypatch.setattr(room, "_ask", ask)
    found = preflight("sm90", ["decoder_ffn@1"])
    assert not found.sound
    assert [c["name"] for c in found.checks if c["outcome"] == "failed"] == [name]
    assert found.record["state"] == "unknown"


@pytest.mark.parametrize("request_body", [{"command": "no-such"}, {"command": "compile"}])
def test_a_worker_that_dies_is_incomplete(request_body: dict[str, str]) -> None:
    with pytest.raises(Refusal, match="died: KeyError") as caught:
        room._ask(request_body, interpreted=False)
    assert caught.value.reason is Reason.INCOMPLETE


def test_a_worker_that_hangs_is_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(command: list[str], **rest: Any) -> None:
        raise room.subprocess.TimeoutExpired(command, rest["timeout"])

    monkeypatch.setattr(room.subprocess, "run", late)
    with pytest.raises(Refusal, match="took over") as caught:
        room._ask({"command": "compile"}, interpreted=False)
    assert caught.value.reason is Reason.INCOMPLETE


def test_a_manifest_that_breaks_its_schema_is_a_failed_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "_raw", lambda manifest: json.loads('{"schema": "flashrt.impl/1"}'))
    found = preflight("sm90", ["qkv_pack@1"])
    outcomes = [c["outcome"] for c in found.checks if c["name"] == "manifest"]
    assert outcomes == ["failed"] * sum(m.structure == "qkv_pack@1" for m in room.manifests())
    assert not found.sound
