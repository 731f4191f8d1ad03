"""Finds decoder_block: a module that is one pre-norm decoder layer and nothing else.

What it holds is told by the flow of tensors: norm → q, k, v → attention → o, added to what the
module read; then norm → gated feed-forward, added to that, which is what the module returns.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flashrt.host.discovery.attention.flow import Flow, flow
from flashrt.host.discovery.attention.tap import Site
from flashrt.host.discovery.attention.window import Known, declared
from flashrt.host.discovery.near_miss import DECODER_BLOCK, Found, NearMiss
from flashrt.host.discovery.norms import Norm
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.sums import Sum, Told, tell
from flashrt.host.discovery.trace import Call
from flashrt.host.discovery.view import View, common_parent
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason

_CORE = "attention_core@1"

Objection = tuple[Reason, str]


@dataclass(frozen=True)
class _Layer:
    """One module around a trio and a gated feed-forward, and its one call.

    ``norms`` with their calls, and ``projections``, are those called in it, in call order.
    """

    path: str
    call: Call
    pack: Seam
    ffn: Seam
    view: View
    inside: Sequence[Call]
    norms: Sequence[tuple[Norm, Call]]
    projections: Sequence[Projection]

    @classmethod
    def of(cls, path: str, pack: Seam, ffn: Seam, view: View) -> _Layer:
        """The layer that was called at this path."""
        call = view.seen.calls[path][0]
        inside = view.made_by(call)
        norms = [(view.norms[c.module], c) for c in inside if c.module in view.norms]
        paths = dict.fromkeys(c.module for c in inside if c.module in view.projections)
        projections = [view.projections[path] for path in paths]
        return cls(path, call, pack, ffn, view, inside, norms, projections)


@dataclass(frozen=True)
class _Parts:
    """What a layer is made of: both norms, ``o``, and the two sums that it should be."""

    before: Norm
    after: Norm
    output: Projection
    attended: Sum
    returned: Sum


def find(view: View, packs: Sequence[Seam], feeds: Sequence[Seam]) -> Found:
    """decoder_block seams around the qkv_pack and decoder_ffn seams that were found."""
    layers = list(_layers(view, packs, feeds))
    parts = [_parts(layer) for layer in layers]
    whole = [one for one in parts if isinstance(one, _Parts)]
    told = iter(tell([each for one in whole for each in (one.attended, one.returned)]))
    found = Found()
    for layer, one in zip(layers, parts, strict=True):
        if isinstance(one, _Parts):
            found.add(_judge(layer, _seam(layer, one, next(told), next(told))))
        else:
            found.add(_judge(layer, one))
    return found


def _layers(view: View, packs: Sequence[Seam], feeds: Sequence[Seam]) -> Iterator[_Layer]:
    """The innermost module around each pack and the feed-forward called before the next pack."""
    starts = sorted((_order(feed.members["self"], view), feed.id, feed) for feed in feeds)
    packed = sorted(_order(pack.members["q"], view) for pack in packs)
    for pack in packs:
        after = _order(pack.members["q"], view)
        following = packed[bisect(packed, after) :]
        at = bisect(starts, after, key=lambda one: one[0])
        if at == len(starts) or (following and following[0] < starts[at][0]):
            continue
        feed = starts[at][2]
        path = common_parent((pack.members["q"], pack.members["v"], feed.members["self"]))
        if path and view.seen.calls.get(path):
            yield _Layer.of(path, pack, feed, view)


def _order(path: str, view: View) -> int:
    calls = view.seen.calls.get(path)
    return calls[0].order if calls else -1


def _judge(layer: _Layer, found: Seam | Objection) -> Seam | NearMiss:
    if isinstance(found, Seam):
        return found
    return NearMiss.of(layer.path, DECODER_BLOCK, *found)


def _parts(layer: _Layer) -> _Parts | Objection:
    view, call = layer.view, layer.call
    x, y = call.input, call.result()
    if x is None or y is None:
        return Reason.LAYOUT, "the layer does not read and return a tensor"
    feed = view.seen.within(call, layer.ffn.members["self"])
    first = view.seen.within(call, next(iter(layer.pack.members.values())))
    if feed is None or first is None:
        return Reason.STRUCTURE, "its projections are not called once in one call of it"
    norms = _two_norms(layer, x, first, feed)
    if not isinstance(norms, _Norms):
        return norms
    closing = _closing(layer, first, feed)
    if not isinstance(closing, _Closing):
        return closing
    sums = Sum(norms.sum, x, closing.made), Sum(y, norms.sum, feed.output)
    return _Parts(norms.before, norms.after, closing.output, *sums)


def _seam(layer: _Layer, parts: _Parts, attended: Told, returned: Told) -> Seam | Objection:
    objection: Objection | None = None
    if not attended.kept:
        objection = (
            Reason.STRUCTURE,
            "attention's result is not simply added to what the layer read",
        )
    elif any(key.endswith("_bias") for key in layer.ffn.weights) or parts.output.bias_key:
        objection = Reason.STRUCTURE, "its output projection or its feed-forward has a bias"
    elif not returned.kept:
        what = "what it returns is not the feed-forward's result plus a residual"
        objection = Reason.STRUCTURE, what
    elif not (attended.whole and returned.whole):
        what = "what it adds up is not what it read, attention and feed-forward"
        objection = Reason.STRUCTURE, what
    if objection is not None:
        return objection
    heads = _heads(layer, parts)
    return _made(layer, parts, heads) if isinstance(heads, Flow) else heads


@dataclass(frozen=True)
class _Norms:
    before: Norm
    after: Norm
    sum: Observed


def _two_norms(layer: _Layer, x: Observed, first: Call, feed: Call) -> _Norms | Objection:
    """The norm that the trio reads and the one that the feed-forward reads."""
    before = after = None
    total: Observed | None = None
    for norm, call in layer.norms:
        if call.output is not None and call.output.same(first.input) and x.same(call.input):
            before = norm
        if call.output is not None and call.output.same(feed.input):
            after, total = norm, call.input
    if before is None:
        return Reason.STRUCTURE, "q, k and v do not read a norm of what the layer read"
    if after is None or total is None:
        return Reason.STRUCTURE, "the feed-forward does not read a norm of a sum"
    kinds = {before.kind, after.kind}
    if len(kinds) != 1 or not before.kind.startswith("rms"):
        return Reason.STRUCTURE, f"its norms are {' and '.join(sorted(kinds))}, not one RMSNorm"
    if before.eps != after.eps:
        return Reason.STRUCTURE, f"its norms have eps {before.eps:g} and {after.eps:g}"
    return _Norms(before, after, total)


@dataclass(frozen=True)
class _Closing:
    output: Projection
    made: Observed | None


def _closing(layer: _Layer, first: Call, feed: Call) -> _Closing | Objection:
    """The projection that closes attention, and what it put out."""
    own = [layer.ffn.weights[role] for role in ("gate", "up", "down")]
    packed = layer.pack.members.values()
    rest = [p for p in layer.projections if p.weight_key not in own and p.path not in packed]
    if len(rest) != 1:
        names = ", ".join(p.path for p in rest) or "none"
        return Reason.STRUCTURE, f"one projection closes its attention; seen were {names}"
    call = layer.view.seen.within(layer.call, rest[0].path)
    if call is None or not first.order < call.order < feed.order:
        return Reason.STRUCTURE, "its output projection is not called between the norms"
    return _Closing(rest[0], call.output)


def _heads(layer: _Layer, parts: _Parts) -> Flow | Objection:
    """Its one attention call, followed to the projections and the norms of heads around it."""
    found = _attending(layer)
    if not isinstance(found[0], Site):
        return found
    both = {parts.before.path, parts.after.path}
    rest = [norm for norm, _ in layer.norms if norm.path not in both]
    if any(norm.variant != parts.before.variant for norm in rest):
        what = ", ".join(norm.path for norm in rest)
        return Reason.STRUCTURE, f"it has norms that a layer of this kind has not: {what}"
    paths = {**layer.pack.members, "o": parts.output.path}
    at = layer.view.module
    members = {role: at(path) for role, path in paths.items()}
    heads = flow(*found, members, [at(norm.path) for norm in rest])
    if isinstance(heads, Because):
        return heads.reason, heads.detail
    if len(heads.norms) != len(rest) or len(rest) not in (0, 2):
        what = ", ".join(norm.path for norm in rest)
        return Reason.STRUCTURE, f"it has norms that read neither q nor k: {what}"
    if any(norm.d != heads.width for norm in rest):
        return Reason.STRUCTURE, f"the norms of its heads are not {heads.width} wide"
    return heads


def _attending(layer: _Layer) -> tuple[Site, Site] | Objection:
    """The call in it that attends causally to all that came before, and its own call around."""
    view = layer.view
    cores = view.once("cores", lambda: _cores(view.attention))
    inside = {call.module for call in layer.inside} | {layer.path}
    within = [core for path in inside for core in cores.get(path, ())]
    found = view.attending(view.module(layer.path))
    if len(within) != 1 or found is None:
        return Reason.STRUCTURE, "not one attention was seen in it, so its heads are unknown"
    if within[0].variant.get("mask") != "causal" or within[0].variant.get("scaling") == "given":
        return Reason.STRUCTURE, "its attention is not plainly causal with the usual scale"
    known: Known = view.once("windows", dict)
    window = declared(found[0], known)
    if window is not None:
        what = f"it declares a window of {window.size} tokens ({window.name}), this block has none"
        return Reason.STRUCTURE, what
    return found


def _cores(attention: Sequence[Seam]) -> dict[str, list[Seam]]:
    """Seams of attention calls by the path of their module."""
    cores: dict[str, list[Seam]] = {}
    for seam in attention:
        if seam.structure == _CORE:
            cores.setdefault(seam.members["self"], []).append(seam)
    return cores


def _made(layer: _Layer, parts: _Parts, heads: Flow) -> Seam | Objection:
    pack, ffn, output, width = layer.pack, layer.ffn, parts.output, heads.width
    weights = {
        "input_norm": parts.before.weight_key or "",
        "post_norm": parts.after.weight_key or "",
        "o": output.weight_key,
        **pack.weights,
        **ffn.weights,
    }
    variant = {
        "norm": parts.before.kind,
        "eps": f"{parts.before.eps:g}",
        "qk_norm": "none",
        "bias": pack.variant["bias"],
        "activation": ffn.variant["activation"],
    }
    if heads.norms:
        variant["qk_norm"] = "per_head"
        weights |= _of_heads(layer, heads)
    else:
        variant["head_dim"] = str(width)
    queries, keys = pack.dims["Nq"], pack.dims["Nk"]
    if queries % width or keys % width or output.k != queries:
        return Reason.SHAPE, f"widths {queries} and {keys} are not heads of {width}"
    dims = {
        "D": pack.dims["D"],
        "F": ffn.dims["F"],
        "Hq": queries // width,
        "Hkv": keys // width,
        "G": queries // keys,
        "Dh": width,
        "R": heads.rotated,
    }
    return Seam(layer.path, DECODER_BLOCK, {"self": layer.path}, variant, dims, weights)


def _of_heads(layer: _Layer, heads: Flow) -> dict[str, str]:
    """The keys of the queries' and the keys' norm."""
    at = layer.view.module
    keys = {at(norm.path): norm.weight_key or "" for norm, _ in layer.norms}
    return {f"{role}_norm": keys[module] for role, module in heads.norms.items()}
