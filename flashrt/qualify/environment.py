"""The machine and software a measurement ran on: provenance, never identity."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "transformers", "safetensors", "numpy", "scipy", "flashrt")


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpuinfo(key: str) -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def _driver(device: str) -> str | None:
    """What a CUDA device's driver calls itself, in one line; arms on a CPU have none."""
    told = _read("/proc/driver/nvidia/version") if device == "cuda" else None
    return told.splitlines()[0] if told else None


def environment(threads: int, device: str = "cpu") -> dict[str, Any]:
    """Facts of this machine. A fact that cannot be read is ``None``, never guessed.

    ``device`` is the class of device that the arms ran on. ``mhz`` is the clock the kernel reports
    at this moment; ``memory_bytes`` the physical memory.
    """
    mhz = _cpuinfo("cpu MHz")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    packages = {name: _version(name) for name in PACKAGES}
    return {
        "cpu": _cpuinfo("model name"),
        "cores": os.cpu_count(),
        "threads": threads,
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "mhz": float(mhz) if mhz else None,
        "memory_bytes": pages,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version for name, version in packages.items() if version},
        "driver": _driver(device),
    }
