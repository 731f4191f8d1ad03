"""The one rule for which device architectures a declared one serves. Nothing else keeps a table.

A kernel package declares what it was built for in its maker's notation; a device has exactly one
architecture. CUDA: ``9.0`` (a plain cubin), ``9.0+PTX`` (with code that later drivers compile),
``9.0a`` (architecture-specific), ``10.0f`` (family-specific); the spellings ``sm90``, ``sm_90a``
and ``90`` are read as the same. ROCm: ``gfx942``, with features where they matter
(``gfx90a:sramecc+``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from flashrt_runtime.reason import Reason, Refusal

_DOTTED = re.compile(r"(?:sm_?)?(\d{1,2})\.(\d)([af]?)(\+ptx)?")
_PACKED = re.compile(r"(?:sm_?)?(\d{1,2})(\d)([af]?)(\+ptx)?")
_GFX = re.compile(r"gfx[0-9a-f]{3,5}(?::[a-z]+[+-])*")


DEVICES = (
    *("sm75", "sm80", "sm86", "sm87", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120", "sm121"),
    *("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"),
)
"""Devices that exist, by the name a command takes. It says nothing about what runs on them."""


class Reach(Enum):
    """How far beyond its own architecture a declared one reaches."""

    MAJOR = "same major, minor at or above"
    PTX = "any capability at or above, and all that MAJOR reaches"
    FAMILY = "same family: same major, minor at or above"
    EXACT = "exactly this one"


@dataclass(frozen=True)
class Arch:
    """One architecture: CUDA when ``gfx`` is empty, else ROCm."""

    major: int
    minor: int
    reach: Reach
    gfx: str = ""

    def __str__(self) -> str:
        if self.gfx:
            return self.gfx
        suffix = {Reach.MAJOR: "", Reach.PTX: "+PTX", Reach.FAMILY: "f", Reach.EXACT: "a"}
        return f"{self.major}.{self.minor}{suffix[self.reach]}"

    @property
    def target(self) -> int:
        """The number that compilers use: 90 for 9.0, 120 for 12.0."""
        return self.major * 10 + self.minor


def parse(text: str) -> Arch:
    """An architecture from its notation. Raises :class:`Refusal` (ARCH) for anything else."""
    lowered = text.strip().lower()
    if _GFX.fullmatch(lowered):
        return Arch(0, 0, Reach.EXACT, lowered)
    found = _DOTTED.fullmatch(lowered) or _PACKED.fullmatch(lowered)
    if found is None or (found[3] and found[4]):
        raise Refusal(
            Reason.ARCH,
            f"{text!r} is not an architecture",
            do="write 9.0, 9.0+PTX, 9.0a, 10.0f or gfx942",
        )
    if found[4]:
        reach = Reach.PTX
    else:
        reach = {"": Reach.MAJOR, "a": Reach.EXACT, "f": Reach.FAMILY}[found[3]]
    return Arch(int(found[1]), int(found[2]), reach)


def serves(declared: str, device: str) -> bool:
    """Whether code built for ``declared`` runs on ``device`` (``"9.0"``, ``"sm90"``, ``"gfx942"``).

    Raises :class:`Refusal` (ARCH) when either is not an architecture. A device's own suffix is
    ignored: a device is one architecture, whichever target it was named by.
    """
    code, machine = parse(declared), parse(device)
    if code.gfx or machine.gfx:
        return _same_gfx(code.gfx, machine.gfx)
    if code.reach is Reach.EXACT:
        return (code.major, code.minor) == (machine.major, machine.minor)
    if code.reach is Reach.PTX and (machine.major, machine.minor) >= (code.major, code.minor):
        return True
    return code.major == machine.major and machine.minor >= code.minor


def _same_gfx(code: str, machine: str) -> bool:
    """The same processor, and every feature that the code was built with is the device's."""
    base, *features = code.split(":")
    there, *has = machine.split(":")
    return base == there and set(features) <= set(has)


def device(name: str) -> Arch:
    """The architecture of an existing device. Raises :class:`Refusal` (DEVICE) with the known."""
    if name not in DEVICES:
        raise Refusal(
            Reason.DEVICE,
            "there is no such device",
            subject=name,
            do=f"known devices are cpu, {', '.join(DEVICES)}",
        )
    return parse(name)


def any_serves(declared: Iterable[str], device: str) -> bool:
    """Whether one of the declared architectures serves; an empty declaration loads anywhere."""
    every = tuple(declared)
    return not every or any(serves(one, device) for one in every)


def require(declared: Iterable[str], device: str, subject: str) -> None:
    """Raise :class:`Refusal` (ARCH) that names ``subject`` and both sides when none serves."""
    every = tuple(declared)
    if not any_serves(every, device):
        raise Refusal(
            Reason.ARCH,
            f"it is built for {', '.join(every)}; the device is {parse(device)}",
            subject=subject,
            do="use an impl that declares this device, or a device that it declares",
        )
