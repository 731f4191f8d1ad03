"""Version ranges."""

from __future__ import annotations

import pytest

from flashrt.binding import load_binding
from flashrt.binding.packages import admits, installed, outside


@pytest.mark.parametrize(
    ("text", "version", "holds"),
    [
        (">=5.17,<6", "5.24.0", True),
        (">=5.17,<6", "5.17", True),
        (">=5.17,<6", "5.16.9", False),
        (">=5.17,<6", "6.0.0", False),
        ("==2.13", "2.13.0+cpu", True),
        ("!=2.13", "2.13.0", False),
        ("<=1.10", "1.9", True),
        (">1.9", "1.10", True),
    ],
)
def test_ranges_compare_releases_as_numbers(text: str, version: str, holds: bool) -> None:
    assert admits(text, version) is holds


@pytest.mark.parametrize(("text", "version"), [("~=1.0", "1"), ("", "1"), (">=1", "dev")])
def test_what_is_not_a_range_or_a_version_is_an_error(text: str, version: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        admits(text, version)


def test_only_installed_packages_are_found() -> None:
    assert set(installed(["torch", "no-such-package-at-all"])) == {"torch"}


def test_what_is_outside_is_named_with_its_line() -> None:
    found = outside(load_binding("smollm2"), {"torch": "2.0"})
    said = {p.path: p.what for p in found}
    assert said["$.host.packages.torch"] == "torch 2.0 is outside >=2.11"
    assert said["$.host.packages.transformers"] == "transformers is not installed"
    assert all(p.line > 1 for p in found)
