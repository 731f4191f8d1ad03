"""Whether installed packages are the versions a binding holds for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import metadata

from flashrt.binding.model import BindingSpec
from flashrt.document.problem import Problem
from flashrt_runtime.reason import Reason

_COMPARISON = re.compile(r"(>=|<=|==|!=|<|>)([0-9]+(?:\.[0-9]+)*)")
_RELEASE = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def _release(version: str) -> tuple[int, ...]:
    """The numeric release, trailing zeros dropped: ``2.13.0+cpu`` is (2, 13)."""
    found = _RELEASE.match(version)
    if found is None:
        raise ValueError(f"{version!r} is not a version")
    parts = [int(p) for p in found.group().split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def admits(text: str, version: str) -> bool:
    """Whether a range such as ``>=5.17,<6`` holds this version; pre-release tags are ignored.

    Raises ``ValueError`` for a range or a version that is not one.
    """
    have = _release(version)
    for part in text.split(","):
        found = _COMPARISON.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"{part!r} is not a comparison")
        want = _release(found[2])
        holds = {
            ">=": have >= want,
            "<=": have <= want,
            "==": have == want,
            "!=": have != want,
            "<": have < want,
            ">": have > want,
        }
        if not holds[found[1]]:
            return False
    return True


def installed(names: Iterable[str]) -> dict[str, str]:
    """Versions of the packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def outside(binding: BindingSpec, versions: Mapping[str, str]) -> list[Problem]:
    """Packages that are missing, or of a version the binding does not hold for."""
    found = []
    for name, text in binding.host.packages.items():
        path = f"$.host.packages.{name}"
        have = versions.get(name)
        if have is not None and admits(text, have):
            continue
        what = f"{name} {have} is outside {text}" if have else f"{name} is not installed"
        do = f"install {name}{text}, or qualify a binding for this version"
        line = binding.document.line(path)
        found.append(Problem(binding.document.file, line, path, what, do, Reason.SOFTWARE))
    return found
