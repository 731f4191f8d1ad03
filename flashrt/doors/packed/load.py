"""The packed model itself: the one that was given, or a folder's, loaded without unpacking it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

LIBRARY = "compressed-tensors"


def require_library() -> None:
    """Refuse (HOST) where the library that unpacks the checkpoint is not installed."""
    if find_spec("compressed_tensors") is None:
        raise Refusal(
            Reason.HOST,
            "compressed-tensors is not installed, and only its compressors read such a checkpoint",
            do="install the `prequantized` extra",
        )


def load_packed(model_or_folder: torch.nn.Module | str | Path) -> torch.nn.Module:
    """The model as it was given; a folder's in float32, evaluation mode, its layers packed.

    Raises :class:`Refusal` and :class:`InputError` as :func:`flashrt.host.load.load` does, and
    STRUCTURE or FORM when its config says that it is not packed, by another library, or that it
    is transformed or sparse as well.
    """
    import torch

    from flashrt.doors.packed.foreign import refuse_model

    if isinstance(model_or_folder, torch.nn.Module):
        refuse_model(model_or_folder)
        return model_or_folder
    from flashrt.host.folder import check_folder
    from flashrt.host.load import load

    folder = Path(model_or_folder)
    if not folder.is_dir():
        raise Refusal(
            Reason.HOST, "no such folder", subject=str(folder), do="give the checkpoint's folder"
        )
    _require_packed(check_folder(folder), folder.name)
    return load(f"transformers:{folder}").model


def _require_packed(config: Any, name: str) -> None:
    from flashrt.doors.packed.foreign import refuse_transforms

    given = config.get("quantization_config")
    if not isinstance(given, dict):
        raise Refusal(
            Reason.STRUCTURE,
            "config.json has no quantization_config: its layers are dense",
            subject=name,
            do="a dense model goes to attach or auto_swaps",
        )
    method = given.get("quant_method")
    if method != LIBRARY:
        raise Refusal(
            Reason.FORM,
            f"it was quantised by {method!r}",
            subject=name,
            do=f"adopted are checkpoints whose quant_method is {LIBRARY}",
        )
    refuse_transforms(given, name)
