"""What a packed layer does beyond its packed product: adopting it would drop that silently."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.doors.packed.source import DENSE, Form, Source, refuse
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

# What runs around a module's forward or its backward; torch keeps each kind in its own table.
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def refuse_transforms(config: Any, subject: str) -> None:
    """Refuse (FORM) a ``quantization_config`` that asks for more than packed layers.

    Online transforms rotate activations in the call, and transformers drops them when it loads;
    sparse storage is another packing, which the library does not read any more.
    """
    transforms = _get(config, "transform_config")
    if _get(transforms, "config_groups"):
        what = "its quantization_config has a transform_config, which no form executes"
        raise Refusal(Reason.FORM, what, subject=subject, do="use a checkpoint without transforms")
    sparse = _get(_get(config, "sparsity_config"), "format")
    if sparse not in (None, "dense"):
        what = f"its weights are stored sparse ({sparse}), which no form executes"
        raise Refusal(Reason.FORM, what, subject=subject, do="use a checkpoint that is not sparse")


def refuse_model(model: torch.nn.Module) -> None:
    """:func:`refuse_transforms` of a loaded model: what it carries, and the folder it is from."""
    from compressed_tensors import TRANSFORM_CONFIG_NAME

    from flashrt.host.folder import check_folder

    kind = type(model).__name__
    refuse_transforms({"transform_config": getattr(model, TRANSFORM_CONFIG_NAME, None)}, kind)
    config = getattr(model, "config", None)
    refuse_transforms(getattr(config, "quantization_config", None), kind)
    folder = getattr(config, "_name_or_path", None)
    if isinstance(folder, str) and folder and (Path(folder) / "config.json").is_file():
        # transformers' own object keeps no transform_config: only the file says that one is asked.
        refuse_transforms(check_folder(Path(folder)).get("quantization_config"), kind)


def refuse_foreign(source: Source) -> None:
    """Refuse (FORM) a layer that is not exactly the library's: class, forward, hooks, children."""
    import torch

    module = source.module
    if type(module) is not torch.nn.Linear:
        raise _lost(source, f"its class is {type(module).__qualname__}, not torch's Linear")
    for name in _HOOKS:
        if getattr(module, name, None):
            raise _lost(source, f"it has {name.strip('_').replace('_', ' ')}")
    child = next((name for name, _ in module.named_children()), None)
    if child is not None:
        raise _lost(source, f"it holds a submodule, {child!r}")
    for name, value in vars(module).items():
        over = callable(getattr(torch.nn.Linear, name, None)) or name == "_compiled_call_impl"
        if over and value is not None and name != "forward":
            raise _lost(source, f"its {name} is its own")
    if not _is_the_librarys(module):
        raise _lost(source, "its forward is not the one that the library gave it")
    if not getattr(module, "quantization_enabled", True):
        raise _lost(source, "its quantization_enabled is False")


def require_all_taken(source: Source, form: Form) -> None:
    """Refuse (FORM) a layer with a tensor that its form leaves out. A zero point of 0 may be."""
    for name, tensor in source.tensors.items():
        void = name.endswith("zero_point") and not bool((tensor != 0).any())
        if name not in form.slots and not void:
            raise refuse(source, f"it holds {name}, which the form would drop")


def _lost(source: Source, what: str) -> Refusal:
    told = f"{what}; adopting would drop that"
    return Refusal(Reason.FORM, told, subject=source.path, do=f"remove it, or {DENSE}")


def _is_the_librarys(module: torch.nn.Module) -> bool:
    import torch
    from compressed_tensors.quantization.lifecycle.forward import set_forward_quantized

    probe = torch.nn.Linear(1, 1, device="meta")
    set_forward_quantized(probe)
    right, given = vars(probe)["forward"], vars(module).get("forward")
    function = getattr(given, "__func__", None)
    return (
        getattr(function, "__code__", None) is right.__func__.__code__
        and getattr(given, "__self__", None) is module
    )


def _get(config: Mapping[str, Any] | Any, name: str) -> Any:
    return config.get(name) if isinstance(config, dict) else getattr(config, name, None)
