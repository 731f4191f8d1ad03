"""Finds seams in a real module tree by what one real forward showed, never by a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt.host.discovery import (
    adaln,
    attention,
    block,
    cadence,
    gated,
    linear,
    modnorm,
    norm_seams,
    patch,
    siblings,
    vision,
)
from flashrt.host.discovery.attention.window import unseen
from flashrt.host.discovery.near_miss import (
    ADALN_PRODUCER,
    ATTENTION_CORE,
    CADENCE_STATIC,
    DECODER_BLOCK,
    DECODER_FFN,
    LINEAR_PROJ,
    MODNORM_QKV_CHAIN,
    NORM_FUSED,
    PATCH_PROJECTION,
    QKV_PACK,
    VISION_FFN,
    Found,
    NearMiss,
    raised,
)
from flashrt.host.discovery.norms import find_norms
from flashrt.host.discovery.projection import find_projections, leaves
from flashrt.host.discovery.remade import remade
from flashrt.host.discovery.trace import Forward, Paths, Trace, paths_of, trace
from flashrt.host.discovery.view import View
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason, Refusal

if TYPE_CHECKING:
    import torch

__all__ = ["Discovery", "NearMiss", "discover"]

_ABSENT = {
    DECODER_FFN: "no two projections read one tensor and feed act(gate) * up to a third",
    LINEAR_PROJ: "no module multiplies its input by a matrix of its own",
    QKV_PACK: "no three sibling projections read one tensor",
    VISION_FFN: "no module is two biased projections with a GELU between them",
    NORM_FUSED: "no module was seen to normalise rows",
    PATCH_PROJECTION: "no kernel over volumes was called",
    ADALN_PRODUCER: "no projection's parts scale and shift a norm",
    MODNORM_QKV_CHAIN: "no q, or q, k and v, read a scaled and shifted norm",
    DECODER_BLOCK: "no module holds a q, k and v pack and a gated feed-forward after it",
    CADENCE_STATIC: "no projection was called twice on one unchanged tensor",
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
    """Observe one run of ``forward`` (a closure that calls the model on one short real frame).

    The order of sibling calls is seen in that one run; calibration looks again on its own frames.
    The model is left as it was. Raises :class:`Refusal`: TRAINING when the model is in training
    mode, HOST when a parameter has no storage, NEVER_CALLED when the forward ran no module of the
    model.
    """
    import torch

    paths = paths_of(model)
    _check(model, paths)
    tap = attention.AttentionTap(model)
    seen = trace(model, forward, modes=(tap,), paths=paths)
    if not seen.sequence:
        raise Refusal(Reason.NEVER_CALLED, "the forward given did not call the model")
    with torch.no_grad():
        return _compose(model, paths, seen, tap)


def _compose(
    model: torch.nn.Module, paths: Paths, seen: Trace, tap: attention.AttentionTap
) -> Discovery:
    ends = leaves(paths, seen)
    projections, unlike = find_projections(ends, seen)
    norms, abnormal = find_norms(ends, seen)
    attend = _safe(ATTENTION_CORE, lambda: Found(*attention.find(model, seen, tap)))
    attending = attend.seams
    view = View(model, seen, projections, norms, abnormal, attending, ends, paths, tap.sites)

    gates = _safe(DECODER_FFN, lambda: gated.find(view))
    used = {key for seam in gates.seams for key in seam.weights.values()}
    taken = {path for path, p in projections.items() if p.weight_key in used}
    packs = _safe(QKV_PACK, lambda: siblings.find(view, taken))
    views = _safe(VISION_FFN, lambda: vision.find(view))
    others = [s.id for s in views.seams] + [s.members["self"] for s in attending]
    others += [s.members["q"].rpartition(".")[0] for s in packs.seams]
    gates.misses += gated.near_misses(view, gates, others)
    # the same module refused as a feed-forward says it better
    refused = {miss.path for miss in gates.misses}
    packs.misses = [miss for miss in packs.misses if miss.path not in refused]
    found = [
        gates,
        packs,
        linear.find(view, taken),
        views,
        norm_seams.find(view),
        patch.find(view),
        _safe(ADALN_PRODUCER, lambda: adaln.find(view)),
        modnorm.find(view, taken),
        _safe(DECODER_BLOCK, lambda: block.find(view, packs.seams, gates.seams)),
        cadence.find(view),
    ]
    seams = [seam for one in found for seam in one.seams] + attending
    missed = unlike + [miss for one in found for miss in one.misses] + attend.misses
    missed += remade(paths, seen)
    kept, irreplaceable = _replaceable(paths, seams)
    missed += irreplaceable
    missed += _absences(kept, missed)
    order = {path: i for i, path in reversed(list(enumerate(seen.sequence)))}
    kept.sort(key=lambda s: (min(order.get(m, 0) for m in s.members.values()), s.structure))
    return Discovery(tuple(kept), tuple(missed), _tied(paths, kept) + unseen(tap.sites, attending))


def _safe(structure: str, find: Callable[[], Found]) -> Found:
    """What a finder found; where it raised, one refusal: the other finders go on."""
    try:
        return find()
    except Exception as error:  # a host's tensors and modules may raise anything
        return Found(misses=[raised("", structure, error)])


def _check(model: torch.nn.Module, paths: Paths) -> None:
    import torch

    if model.training:
        raise Refusal(
            Reason.TRAINING, "the model is in training mode", subject="host", do="call model.eval()"
        )
    hooks = torch.nn.modules.module
    if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:
        raise Refusal(
            Reason.HOST,
            "global forward hooks are registered, so no module shows what it computes itself",
            subject="host",
            do="remove them",
        )
    scripted = next(
        (names[0] for m, names in paths.items() if isinstance(m, torch.jit.ScriptModule)), None
    )
    if scripted is not None:
        raise Refusal(
            Reason.HOST,
            "it is a TorchScript module, which shows nothing of what it does",
            subject=scripted or "host",
            do="give the module that was scripted or traced",
        )
    for held in ("_parameters", "_buffers"):
        for module, names in paths.items():
            for key, tensor in getattr(module, held).items():
                if tensor is not None and tensor.is_meta:
                    raise Refusal(
                        Reason.HOST,
                        "it is on the meta device and holds no values",
                        subject=_key(names[0], key),
                        do="load the weights first",
                    )


def _key(path: str, name: str) -> str:
    """The state-dict key of one parameter of the module at ``path``."""
    return f"{path}.{name}" if path else name


def _replaceable(paths: Paths, seams: list[Seam]) -> tuple[list[Seam], list[NearMiss]]:
    """Seams whose modules can be replaced at one path, in evaluation mode; the rest refused."""
    at = {path: module for module, names in paths.items() for path in names}
    several = any(len(names) > 1 for names in paths.values())
    hooked = {module for module in paths if _has_hooks(module)}
    training = {module for module in paths if module.training}
    kept, refused = [], []
    for seam in seams:
        members = seam.members.values()
        modules = [at[member] for member in members]
        inside = [c for m in modules for c in m.modules()] if hooked or training else []
        aliases = [p for m in modules for p in paths[m] if p not in members] if several else []
        if "" in members:
            detail, reason = "the model itself is the seam, so nothing holds it", Reason.LAYOUT
        elif (child := next((c for c in inside if c in hooked), None)) is not None:
            what = f"{paths[child][0]} has forward hooks, which a replacement would not run"
            detail, reason = what, Reason.HOST
        elif aliases:
            detail, reason = f"the same module is also {aliases[0]}", Reason.TIED
        elif not training.isdisjoint(inside):
            detail, reason = "a part of it is in training mode", Reason.TRAINING
        else:
            kept.append(seam)
            continue
        refused.append(NearMiss.of(seam.id, seam.structure, reason, detail))
    return kept, refused


def _has_hooks(module: torch.nn.Module) -> bool:
    """Whether somebody else's code runs before or after the module's own forward."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _absences(seams: list[Seam], missed: list[NearMiss]) -> list[NearMiss]:
    known = {s.structure for s in seams} | {m.structure for m in missed}
    return [
        NearMiss.of("", structure, Reason.STRUCTURE, detail)
        for structure, detail in _ABSENT.items()
        if structure not in known
    ]


def _tied(paths: Paths, seams: list[Seam]) -> tuple[Because, ...]:
    """Notes on seams whose weight another module holds too: packing it makes a copy."""
    holders: dict[int, list[str]] = {}
    for module, names in paths.items():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                holders.setdefault(id(parameter), []).extend(_key(path, name) for path in names)
    by_key = {key: keys for keys in holders.values() if len(keys) > 1 for key in keys}
    notes = []
    for seam in seams if by_key else ():
        own = set(seam.weights.values())
        shared = [k for key in seam.weights.values() for k in by_key.get(key, ()) if k not in own]
        if shared:
            what = f"its weight is also {shared[0]}; a packed form is a copy, that one stays as is"
            notes.append(Because(Reason.TIED, what, seam.id))
    return tuple(notes)
