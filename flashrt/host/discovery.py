"""Finds seams in a real module tree by what one real forward showed, never by a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.host import gated, siblings
from flashrt.host.near_miss import DECODER_FFN, LINEAR_PROJ, QKV_PACK, NearMiss
from flashrt.host.projection import Projection, find_projections, leaf_matrices, stacked_matrices
from flashrt.host.trace import Forward, trace
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

__all__ = ["Discovery", "NearMiss", "discover"]

_ABSENT = {
    DECODER_FFN: "no two projections read one tensor and feed act(gate) * up to a third",
    LINEAR_PROJ: "no module multiplies its input by a matrix of its own",
    QKV_PACK: "no three sibling projections read one tensor",
}


@dataclass(frozen=True)
class Discovery:
    """What was found: ``seams`` in call order, ``refusals``, and ``notes`` on seams that stand.

    Seams of different structures may overlap (qkv_pack and the linear_proj of its members); a
    scheme chooses among them.
    """

    seams: tuple[Seam, ...]
    refusals: tuple[NearMiss, ...]
    notes: tuple[Because, ...]

    def of(self, structure: str) -> tuple[Seam, ...]:
        """Seams of one structure, e.g. ``decoder_ffn@1``."""
        return tuple(s for s in self.seams if s.structure == structure)

    def require(self, structure: str = "") -> Discovery:
        """This, or :class:`Refusal` with the first reason when there is no such seam."""
        if any(structure in ("", s.structure) for s in self.seams):
            return self
        missed = [m for m in self.refusals if structure in ("", m.structure)]
        because = missed[0].because if missed else Because(Reason.STRUCTURE, "no such seam")
        raise Refusal(
            Reason.STRUCTURE,
            f"the host has no {structure or 'seam of any structure'}: {because.detail}",
            subject=because.subject or "host",
        )

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "seams": [seam.record() for seam in self.seams],
            "refusals": [miss.record() for miss in self.refusals],
            "notes": [note.record() for note in self.notes],
        }


def discover(model: torch.nn.Module, forward: Forward) -> Discovery:
    """Observe two runs of ``forward`` (a closure that calls the model on one short real frame).

    The second run only confirms the order of calls. The model is left as it was. Raises
    :class:`Refusal`: TRAINING when the model is in training mode, HOST when a parameter has no
    storage, NEVER_CALLED when the forward ran no module of the model.
    """
    _check(model)
    leaves = leaf_matrices(model)
    watched = set(leaves) | _ancestors(leaves)
    first = trace(model, forward, watched)
    if not first.sequence and leaves:
        raise Refusal(Reason.NEVER_CALLED, "the forward given did not call the model")
    second = trace(model, forward, watched).sequence
    projections, missed = find_projections(model, first)

    seams: list[Seam] = []
    taken: set[str] = set()
    for trio in gated.find_trios(projections):
        result = gated.seam_of(trio, model, first)
        if isinstance(result, Seam):
            seams.append(result)
            taken |= set(trio.paths)
        else:
            missed.append(result)
    tried = taken | {m.path for m in missed}
    missed += [m for m in gated.near_misses(projections, taken) if m.path not in tried]
    packs, unpacked = siblings.find_qkv(projections, taken, (first.sequence, second))
    missed += [m for m in unpacked if not _gated_miss(m, missed)]
    seams += packs
    seams += [_linear(p) for p in projections.values() if p.path not in taken]
    missed += _stacked(model)
    kept, refused = _replaceable(model, seams)
    missed += refused
    missed += _absences(kept, missed)
    order = {path: i for i, path in reversed(list(enumerate(first.sequence)))}
    kept.sort(key=lambda s: (min(order.get(m, 0) for m in s.members.values()), s.structure))
    return Discovery(tuple(kept), tuple(missed), _tied(model, kept))


def _check(model: torch.nn.Module) -> None:
    if model.training:
        raise Refusal(
            Reason.TRAINING, "the model is in training mode", subject="host", do="call model.eval()"
        )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise Refusal(
                Reason.HOST,
                "it is on the meta device and holds no values",
                subject=name,
                do="load the weights first",
            )


def _ancestors(paths: dict[str, Any]) -> set[str]:
    out = set()
    for path in paths:
        parts = path.split(".")
        out |= {".".join(parts[:depth]) for depth in range(len(parts))}
    return out


def _gated_miss(miss: NearMiss, missed: list[NearMiss]) -> bool:
    """Whether the same module is already refused as a feed-forward, which says it better."""
    return any(m.path == miss.path and m.structure == DECODER_FFN for m in missed)


def _linear(projection: Projection) -> Seam:
    weights = {"weight": projection.weight_key}
    if projection.bias_key:
        weights["bias"] = projection.bias_key
    return Seam(
        id=projection.path,
        structure=LINEAR_PROJ,
        members={"self": projection.path},
        variant={"bias": "present" if projection.bias_key else "none", "epilogue": "none"},
        dims={"K": projection.k, "N": projection.n},
        weights=weights,
        points={"x": Point(projection.path, "input")},
    )


def _stacked(model: torch.nn.Module) -> list[NearMiss]:
    return [
        NearMiss.of(
            path,
            DECODER_FFN,
            Reason.LAYOUT,
            f"several matrices are stacked in one tensor {tuple(shape)}",
        )
        for path, shape in stacked_matrices(model).items()
    ]


def _replaceable(model: torch.nn.Module, seams: list[Seam]) -> tuple[list[Seam], list[NearMiss]]:
    """Seams whose modules can be replaced at one path, in evaluation mode; the rest refused."""
    paths: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(id(module), []).append(path)
    kept, refused = [], []
    for seam in seams:
        modules = [model.get_submodule(m) for m in seam.members.values()]
        aliases = [p for m in modules for p in paths[id(m)] if p not in seam.members.values()]
        if "" in seam.members.values():
            detail, reason = "the model itself is the seam, so nothing holds it", Reason.LAYOUT
        elif aliases:
            detail, reason = f"the same module is also {aliases[0]}", Reason.TIED
        elif any(child.training for m in modules for child in m.modules()):
            detail, reason = "a part of it is in training mode", Reason.TRAINING
        else:
            kept.append(seam)
            continue
        refused.append(NearMiss.of(seam.id, seam.structure, reason, detail))
    return kept, refused


def _absences(seams: list[Seam], missed: list[NearMiss]) -> list[NearMiss]:
    known = {s.structure for s in seams} | {m.structure for m in missed}
    return [
        NearMiss.of("", structure, Reason.STRUCTURE, detail)
        for structure, detail in _ABSENT.items()
        if structure not in known
    ]


def _tied(model: torch.nn.Module, seams: list[Seam]) -> tuple[Because, ...]:
    """Notes on seams whose weight another module holds too: packing it makes a copy."""
    holders: dict[int, list[str]] = {}
    for key, parameter in model.named_parameters(remove_duplicate=False):
        holders.setdefault(id(parameter), []).append(key)
    by_key = {key: keys for keys in holders.values() for key in keys}
    notes = []
    for seam in seams:
        own = set(seam.weights.values())
        shared = [k for key in own for k in by_key.get(key, ()) if k not in own]
        if shared:
            what = f"its weight is also {shared[0]}; a packed form is a copy, that one stays as is"
            notes.append(Because(Reason.TIED, what, seam.id))
    return tuple(notes)
