"""The arch rule, every kind of declaration against every kind of device."""

from __future__ import annotations

import pytest

from flashrt_runtime import arch
from flashrt_runtime.reason import Reason, Refusal

DEVICES = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")
TABLE = {
    "8.0": {"8.0", "8.6", "8.9"},
    "8.6": {"8.6", "8.9"},
    "8.9": {"8.9"},
    "9.0": {"9.0"},
    "10.0": {"10.0", "10.3"},
    "12.0": {"12.0", "12.1"},
    "8.0+PTX": {"8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"},
    "9.0+PTX": {"9.0", "10.0", "10.3", "11.0", "12.0", "12.1"},
    "12.1+PTX": {"12.1"},
    "9.0a": {"9.0"},
    "10.0a": {"10.0"},
    "10.3a": {"10.3"},
    "10.0f": {"10.0", "10.3"},
    "12.0f": {"12.0", "12.1"},
    "12.1f": {"12.1"},
    "gfx942": set(),
}


@pytest.mark.parametrize("declared", TABLE)
@pytest.mark.parametrize("device", DEVICES)
def test_cuda_rule(declared: str, device: str) -> None:
    assert arch.serves(declared, device) is (device in TABLE[declared])


@pytest.mark.parametrize(
    ("declared", "device", "served"),
    [
        ("gfx942", "gfx942", True),
        ("gfx942", "gfx950", False),
        ("gfx90a", "gfx90a:sramecc+:xnack-", True),
        ("gfx90a:xnack-", "gfx90a:sramecc+:xnack-", True),
        ("gfx90a:xnack+", "gfx90a:sramecc+:xnack-", False),
        ("gfx942", "9.0", False),
        ("9.0+PTX", "gfx942", False),
    ],
)
def test_rocm_is_exact(declared: str, device: str, served: bool) -> None:
    assert arch.serves(declared, device) is served


@pytest.mark.parametrize("spelling", ["sm90", "sm_90", "9.0", "90", "SM90", "sm_90a"])
def test_spellings_of_one_device(spelling: str) -> None:
    assert arch.serves("9.0a", spelling)
    assert not arch.serves("9.0a", "sm100")


def test_two_digit_majors_are_read_whole() -> None:
    parsed = arch.parse("sm120a")
    assert (parsed.major, parsed.minor, parsed.reach) == (12, 0, arch.Reach.EXACT)
    assert parsed.target == 120
    assert str(parsed) == "12.0a"


def test_undeclared_loads_anywhere() -> None:
    assert arch.any_serves((), "9.0")
    assert not arch.any_serves(("8.9",), "9.0")


@pytest.mark.parametrize(
    "text", ["", "sm", "foo", "9.0b", "9.0a+PTX", "9.00", "gfx", "sm9", "1000"]
)
def test_not_an_architecture(text: str) -> None:
    with pytest.raises(Refusal, match="not an architecture") as caught:
        arch.parse(text)
    assert caught.value.reason is Reason.ARCH


def test_require_names_both_sides() -> None:
    with pytest.raises(Refusal, match=r"8\.9, 9\.0.*8\.0") as caught:
        arch.require(("8.9", "9.0"), "sm80", "decoder_ffn@1/triton_fp8")
    assert caught.value.reason is Reason.ARCH
    assert caught.value.subject == "decoder_ffn@1/triton_fp8"
    arch.require((), "sm80", "anything")


@pytest.mark.parametrize("name", ["sm91x", "foo", "sm91", "SM90", "9.0"])
def test_unknown_device_lists_the_known(name: str) -> None:
    with pytest.raises(Refusal, match=r"sm90, sm100") as caught:
        arch.device(name)
    assert caught.value.reason is Reason.DEVICE


@pytest.mark.parametrize("name", arch.DEVICES)
def test_every_known_device_is_an_architecture(name: str) -> None:
    found = arch.device(name)
    assert name in (found.gfx, f"sm{found.target}")
