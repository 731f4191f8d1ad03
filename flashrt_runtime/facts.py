"""What this machine and this software are, as a cell records them. Nothing here reads a clock.

A fact that cannot be read is ``None``, and ``None`` never matches, not even ``None``.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt_runtime.identity import architecture_digest, checkpoint_digest, dtype_name

if TYPE_CHECKING:
    import torch

RELEVANT_FLAGS = ("avx", "avx2", "avx_vnni", "f16c", "fma", "asimd", "asimddp", "bf16", "i8mm")
RELEVANT_PREFIXES = ("avx512", "amx_", "sve")
DISPATCHING_PACKAGES = ("torch", "transformers", "flashrt")


@dataclass(frozen=True)
class Facts:
    """Everything that a route's cell is matched against, exactly."""

    device: dict[str, Any]
    software: dict[str, str | None]
    checkpoint_digest: str | None
    architecture_digest: str | None
    dtype: str | None
    form: tuple[str, ...]


def _cpuinfo(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() not in found:
            found[name.strip()] = value.strip()
    return found


def _isa(flags: str) -> list[str]:
    relevant = {
        flag
        for flag in flags.split()
        if flag in RELEVANT_FLAGS or flag.startswith(RELEVANT_PREFIXES)
    }
    return sorted(relevant)


def _cpu_facts() -> dict[str, Any]:
    import torch

    info = _cpuinfo()
    flags = info.get("flags", info.get("Features"))
    return {
        "class": "cpu",
        "arch": platform.machine() or None,
        "name": info.get("model name") or info.get("CPU part") or platform.processor() or None,
        "isa": None if flags is None else _isa(flags),
        "threads": torch.get_num_threads(),
    }


def _cuda_facts(device: torch.device) -> dict[str, Any]:
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return {
        "class": "cuda",
        "arch": f"{major}.{minor}",
        "name": torch.cuda.get_device_name(device),
        "isa": [],
        "threads": 0,
    }


def device_facts(device: torch.device | str) -> dict[str, Any]:
    """A cell's ``device`` record: class, arch, name, isa flags (sorted) and threads."""
    import torch

    chosen = torch.device(device)
    if chosen.type == "cpu":
        return _cpu_facts()
    if chosen.type == "cuda":
        return _cuda_facts(chosen)
    return {"class": chosen.type, "arch": None, "name": None, "isa": None, "threads": None}


def package_version(name: str) -> str | None:
    """The installed version, without importing the package; ``None`` when it is absent."""
    # Imported here: the standard library's reader of metadata loads its e-mail and socket modules.
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def software_facts() -> dict[str, str | None]:
    """A cell's ``software`` record: the packages whose version decides what is dispatched."""
    return {name: package_version(name) for name in DISPATCHING_PACKAGES}


def floating_dtype(model: torch.nn.Module) -> str | None:
    """The one dtype of the model's floating parameters, or ``None`` when there are several."""
    names = {dtype_name(p.dtype) for p in model.parameters() if p.dtype.is_floating_point}
    return names.pop() if len(names) == 1 else None


def model_device(model: torch.nn.Module) -> torch.device | None:
    """The one device of the model's parameters, or ``None`` when there are several or none."""
    devices = {p.device for p in model.parameters()}
    return devices.pop() if len(devices) == 1 else None


def model_facts(model: torch.nn.Module, form: tuple[str, ...]) -> Facts:
    """Facts of a model as it is loaded here. Hashes every byte of its state dict."""
    device = model_device(model)
    return Facts(
        device=device_facts(device) if device is not None else device_facts("meta"),
        software=software_facts(),
        checkpoint_digest=checkpoint_digest(model.state_dict().items()),
        architecture_digest=architecture_digest(model),
        dtype=floating_dtype(model),
        form=form,
    )
