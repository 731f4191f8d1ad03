"""What a door knows of the model and the data it was given: identities for the precision spec."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flashrt.calibration.precision_spec import DataIdentity
from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.record import ModelArtifact

if TYPE_CHECKING:
    import torch

    from flashrt.calibration.reduce import Reduction
    from flashrt.doors.observe import Observation
    from flashrt_runtime.contract import Seam


def artifact_of(model: torch.nn.Module) -> dict[str, Any]:
    """The ModelArtifact record of a model that the caller loaded: its weights are hashed whole."""
    from flashrt_runtime.facts import floating_dtype
    from flashrt_runtime.identity import architecture_digest, checkpoint_digest

    kind = type(model).__name__
    config = getattr(model, "config", None)
    return ModelArtifact(
        name=kind,
        family=str(getattr(config, "model_type", None) or kind),
        checkpoint_digest=checkpoint_digest(model.state_dict().items()),
        architecture_digest=architecture_digest(model),
        dtype=floating_dtype(model) or "mixed",
        tokenizer_digest=None,
        parameters=max(1, sum(p.numel() for p in model.parameters())),
        provenance="loaded by the caller",
    ).record()


def device_name(device: torch.device) -> str:
    """``cpu``, or the architecture that impls are chosen by (``sm90``); else the device's type."""
    import torch

    if device.type != "cuda" or torch.version.hip is not None:
        return device.type
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm{major}{minor}"


def dtypes(tensors: Mapping[str, torch.Tensor]) -> Callable[[Seam], str]:
    """The dtype of a seam's first weight: a host may keep its norms wider than its projections."""
    from flashrt_runtime.identity import dtype_name

    def of(seam: Seam) -> str:
        found = [tensors[key] for key in seam.weights.values() if key in tensors]
        return dtype_name(found[0].dtype) if found else "float32"

    return of


def data_of(observations: Sequence[Observation], reduction: Reduction) -> DataIdentity:
    """The observations that were measured. Without a digest where one cannot be identified."""
    ordered = sorted(observations, key=lambda o: o.id)
    contents = [content_digest(o.value) for o in ordered]
    digest = None
    if None not in contents:
        frames = [{"id": o.id, "digest": c} for o, c in zip(ordered, contents, strict=True)]
        digest = sha256(canonical_bytes(frames))
    return DataIdentity(
        "observations", digest, reduction.samples, reduction.asked, reduction.effective
    )


def content_digest(value: Any) -> str | None:
    """``sha256:<hex>`` of a frame, a tensor, or a nest of them; ``None`` for anything else.

    A closure has none: what it feeds cannot be seen.
    """
    known = getattr(value, "digest", None)
    if isinstance(known, str):
        return known
    state = hashlib.sha256()
    return f"sha256:{state.hexdigest()}" if _feed(state, value) else None


def _feed(state: Any, value: Any) -> bool:
    import torch

    from flashrt_runtime.identity import checkpoint_digest

    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_meta:
            return False
        state.update(checkpoint_digest([("", value)]).encode())
        return True
    if isinstance(value, Mapping):
        keys = sorted(map(str, value))
        state.update(f"{{{len(keys)}".encode())
        by_name = {str(key): item for key, item in value.items()}
        return all(_feed(state, key) and _feed(state, by_name[key]) for key in keys)
    if isinstance(value, (list, tuple)):
        state.update(f"[{len(value)}".encode())
        return all(_feed(state, item) for item in value)
    if isinstance(value, (str, int, float, bool)):
        state.update(f"{type(value).__name__} {value!r}\0".encode())
        return True
    return False
