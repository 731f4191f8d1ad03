"""What an artefact was made for: checkpoint, architecture, binding, specs, frames; its check."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from flashrt_runtime.reason import Reason, Refusal

_PACKAGES = ("flashrt", "numpy", "safetensors", "torch", "transformers")
# What an artefact computes with. A record without an architecture is older than that field and
# says nothing about it, so that it fits no host that has one.
_IDENTITY = (
    ("checkpoint_digest", "the weights are others", Reason.CHECKPOINT),
    ("architecture_digest", "the config or a module's class is another", Reason.CHECKPOINT),
    ("dtype", "the dtype is another", Reason.DTYPE),
    ("tokenizer_digest", "the tokenizer is another one", Reason.CHECKPOINT),
    ("family", "the model family is another", Reason.CHECKPOINT),
    ("parameters", "the number of parameters is another", Reason.CHECKPOINT),
)


def structure_records(specs: Mapping[str, str]) -> list[dict[str, Any]]:
    """``{"decoder_ffn@1": digest}`` as ``[{"name", "version", "spec_digest"}]``."""
    records = []
    for name, digest in sorted(specs.items()):
        bare, _, version = name.partition("@")
        records.append({"name": bare, "version": int(version), "spec_digest": digest})
    return records


def software() -> dict[str, str]:
    """Versions of the packages that take part in a calibration, those that are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def require_origin(
    body: Mapping[str, Any],
    *,
    model_artifact: Mapping[str, Any],
    binding: Mapping[str, str] | None,
    specs: Mapping[str, str],
) -> None:
    """Refuse an artefact whose ``model_artifact``, ``binding`` or ``structures`` are not these.

    Raises :class:`Refusal`: CHECKPOINT (one weight, the config or a module's class is enough),
    DTYPE, BINDING, STALE_SPEC.
    """

    def refuse(reason: Reason, what: str, subject: str) -> Refusal:
        return Refusal(reason, what, subject=subject, do="run `flashrt calibrate` for this host")

    made_for = body["model_artifact"]
    for field, what, reason in _IDENTITY:
        then, now = made_for.get(field), model_artifact.get(field)
        if then != now:
            detail = f"{what}: calibrated on {_short(then)}, this is {_short(now)}"
            raise refuse(reason, detail, str(model_artifact.get("name", "host")))
    if body["binding"] != (dict(binding) if binding else None):
        named = (binding or {}).get("name", "discovered seams")
        raise refuse(Reason.BINDING, "calibrated under another binding", str(named))
    known = {f"{s['name']}@{s['version']}": s["spec_digest"] for s in body["structures"]}
    for structure in sorted(known.keys() | specs.keys()):
        if known.get(structure) != specs.get(structure):
            raise refuse(Reason.STALE_SPEC, "the spec is not the calibrated one", structure)


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:19]}…" if text.startswith("sha256:") else text


def require_disjoint(workload: Mapping[str, Any]) -> None:
    """Refuse (CONFLICT) frames that are named twice, or shared with the held-out set.

    A frame is shared by its id, by its content, or by what it was cut from: ids read
    ``<document or episode>#<position>``, and windows of one document are not independent.
    """
    frames, held_out = workload["frames"], workload["held_out"]
    for part in (frames, held_out):
        ids = [frame["id"] for frame in part]
        if len(set(ids)) != len(ids):
            twice = next(i for i in ids if ids.count(i) > 1)
            raise Refusal(Reason.CONFLICT, "two frames have this id", subject=twice)
    seen = {frame["id"]: frame["id"] for frame in frames}
    content = {frame["digest"]: frame["id"] for frame in frames}
    origin = {_origin(frame["id"]): frame["id"] for frame in frames}
    for frame in held_out:
        name = frame["id"]
        for known, key, what in (
            (seen, name, "in the calibration and in the held-out set"),
            (content, frame["digest"], "held out, and its content was calibrated on"),
            (origin, _origin(name), "held out, and what it was cut from was calibrated on"),
        ):
            if key in known:
                raise Refusal(
                    Reason.CONFLICT,
                    f"a frame is {what} as {known[key]}",
                    subject=name,
                    do="exclude one of the two, and calibrate again",
                )


def _origin(name: str) -> str:
    return name.rpartition("#")[0] or name
