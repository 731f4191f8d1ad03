"""What both arms run under in one process, and how an arm is seen that changes it for the other."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping

import torch
from torch.nn.modules import module as modules

_TINY = sys.float_info.min


def settings() -> dict[str, object]:
    """Settings of this process and thread that make code slower or another, as they are now."""
    return {
        "threads": torch.get_num_threads(),
        "threads between operators": torch.get_num_interop_threads(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "oneDNN": torch.backends.mkldnn.enabled,
        "cuDNN": torch.backends.cudnn.enabled,
        "cuDNN benchmark": torch.backends.cudnn.benchmark,
        "cuDNN deterministic": torch.backends.cudnn.deterministic,
        "torch modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "hooks of every module": (
            len(modules._global_forward_hooks),
            len(modules._global_forward_pre_hooks),
        ),
        "denormals": _TINY / 2 > 0,
        "cores": tuple(sorted(os.sched_getaffinity(0))),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduler": os.sched_getscheduler(0),
        "profiler": sys.getprofile(),
        "tracer": sys.gettrace(),
        "switch interval": sys.getswitchinterval(),
        "garbage collector": (gc.isenabled(), gc.get_threshold()),
    }


def altered(held: Mapping[str, object], now: Mapping[str, object] | None = None) -> list[str]:
    """Sentences on every setting that is not as it was ``held``; ``now`` is read when not given."""
    found = settings() if now is None else now
    return [
        f"{name} were {was!r}, then {found[name]!r}"
        for name, was in held.items()
        if name in found and found[name] != was
    ]
