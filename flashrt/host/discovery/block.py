"""Finds decoder_block: a module that is one pre-norm decoder layer and nothing else.

What it holds is told by the flow of tensors: norm → q, k, v → attention → o, added to what the
module read; then norm → gated feed-forward, added to that, which is what the module returns.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from flashrt.host.discovery.attention.flow import Flow, flow
from flashrt.host.discovery.attention.tap import Site
from flashrt.host.discovery.attention.window import declared
from flashrt.host.discovery.near_miss import DECODER_BLOCK, Found, NearMiss
from flashrt.host.discovery.norms import Norm
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.trace import Call
from flashrt.host.discovery.view import View, common_parent
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason

_CORE = "attention_core@1"
_ROUNDINGS = 16

Objection = tuple[Reason, str]


@dataclass(frozen=True)
class _Layer:
    """One module around a trio and a gated feed-forward, and its one call."""

    path: str
    call: Call
    pack: Seam
    ffn: Seam
    view: View

    def norms(self) -> list[tuple[Norm, Call]]:
        """Its norms and their calls, in call order."""
        known = self.view.norms
        return [(known[c.module], c) for c in self.view.made_by(self.call) if c.module in known]

    @property
    def site(self) -> tuple[Site, Site] | None:
        """The first attending call in it, and its own call around that."""
        own = self.view.model.get_submodule(self.path)
        for site in self.view.sites:
            for frame in site.frames():
                if frame.module is own and site.attended:
                    return site, frame
        return None

    def projections(self) -> list[Projection]:
        """Its projections, each once, in call order."""
        known = self.view.projections
        paths = dict.fromkeys(c.module for c in self.view.made_by(self.call))
        return [known[path] for path in paths if path in known]


def find(view: View, packs: Sequence[Seam], feeds: Sequence[Seam]) -> Found:
    """decoder_block seams around the qkv_pack and decoder_ffn seams that were found."""
    found = Found()
    for layer in _layers(view, packs, feeds):
        found.add(_judge(layer))
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
        calls = view.seen.calls.get(path)
        if path and calls:
            yield _Layer(path, calls[0], pack, feed, view)


def _order(path: str, view: View) -> int:
    calls = view.seen.calls.get(path)
    return calls[0].order if calls else -1


def _judge(layer: _Layer) -> Seam | NearMiss:
    result = _seam(layer)
    if isinstance(result, Seam):
        return result
    return NearMiss.of(layer.path, DECODER_BLOCK, *result)


def _seam(layer: _Layer) -> Seam | Objection:
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
    return _closed(layer, norms, first, feed)


def _closed(layer: _Layer, norms: _Norms, first: Call, feed: Call) -> Seam | Objection:
    y = layer.call.result()
    assert y is not None
    output = _output(layer, first, feed, norms)
    if isinstance(output, tuple):
        return output
    if not _is_sum(y, norms.sum, feed.output):
        return Reason.STRUCTURE, "what it returns is not the feed-forward's result plus a residual"
    if not _sums_whole(layer, norms, output, feed):
        return Reason.STRUCTURE, "what it adds up is not what it read, attention and feed-forward"
    heads = _heads(layer, norms, output)
    if not isinstance(heads, Flow):
        return heads
    return _made(layer, norms, output, heads)


@dataclass(frozen=True)
class _Norms:
    before: Norm
    after: Norm
    sum: Observed


def _two_norms(layer: _Layer, x: Observed, first: Call, feed: Call) -> _Norms | Objection:
    """The norm that the trio reads and the one that the feed-forward reads."""
    before = after = None
    total: Observed | None = None
    for norm, call in layer.norms():
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


def _output(layer: _Layer, first: Call, feed: Call, norms: _Norms) -> Projection | Objection:
    """The projection that closes attention: added to what the layer read, it is the sum."""
    own = [layer.ffn.weights[role] for role in ("gate", "up", "down")]
    rest = [
        p
        for p in layer.projections()
        if p.weight_key not in own and p.path not in layer.pack.members.values()
    ]
    if len(rest) != 1:
        names = ", ".join(p.path for p in rest) or "none"
        return Reason.STRUCTURE, f"one projection closes its attention; seen were {names}"
    output = rest[0]
    call = layer.view.seen.within(layer.call, output.path)
    if call is None or not first.order < call.order < feed.order:
        return Reason.STRUCTURE, "its output projection is not called between the norms"
    if not _is_sum(norms.sum, layer.call.input, call.output):
        return Reason.STRUCTURE, "attention's result is not simply added to what the layer read"
    biases = [
        *(k for k in layer.ffn.weights if k.endswith("_bias")),
        *filter(None, [output.bias_key]),
    ]
    if biases:
        return Reason.STRUCTURE, "its output projection or its feed-forward has a bias"
    return output


def _sums_whole(layer: _Layer, norms: _Norms, output: Projection, feed: Call) -> bool:
    """Whether both sums hold for the sum of all rows as well, those that were not kept too."""
    x, y = layer.call.input, layer.call.result()
    closed = layer.view.seen.within(layer.call, output.path)
    parts = closed.output if closed is not None else None, feed.output
    if x is None or y is None or parts[0] is None or parts[1] is None:
        return False
    return norms.sum.sums(x, parts[0]) and y.sums(norms.sum, parts[1])


def _near(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    size = a.abs() + b.abs()
    off = (total - (a + b)).abs()
    return bool((off <= _ROUNDINGS * torch.finfo(total.dtype).eps * size + 1e-30).all())


def _is_sum(total: Observed, a: Observed | None, b: Observed | None) -> bool:
    """Whether it is for the rows that are kept, element by element."""
    if a is None or b is None or a.kept.shape != b.kept.shape or total.kept.shape != a.kept.shape:
        return False
    return _near(total.kept, a.kept, b.kept)


def _heads(layer: _Layer, norms: _Norms, output: Projection) -> Flow | Objection:
    """Its one attention call, followed to the projections and the norms of heads around it."""
    found = _attending(layer)
    if not isinstance(found[0], Site):
        return found
    both = {norms.before.path, norms.after.path}
    rest = [norm for norm, _ in layer.norms() if norm.path not in both]
    if any(norm.variant != norms.before.variant for norm in rest):
        what = ", ".join(norm.path for norm in rest)
        return Reason.STRUCTURE, f"it has norms that a layer of this kind has not: {what}"
    paths = {**layer.pack.members, "o": output.path}
    at = layer.view.model.get_submodule
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
    inside = {call.module for call in layer.view.made_by(layer.call)} | {layer.path}
    attending = layer.view.attention
    cores = [s for s in attending if s.structure == _CORE and s.members["self"] in inside]
    found = layer.site
    if len(cores) != 1 or found is None:
        return Reason.STRUCTURE, "not one attention was seen in it, so its heads are unknown"
    if cores[0].variant.get("mask") != "causal" or cores[0].variant.get("scaling") == "given":
        return Reason.STRUCTURE, "its attention is not plainly causal with the usual scale"
    window = declared(found[0])
    if window is not None:
        what = f"it declares a window of {window.size} tokens ({window.name}), this block has none"
        return Reason.STRUCTURE, what
    return found


def _made(layer: _Layer, norms: _Norms, output: Projection, heads: Flow) -> Seam | Objection:
    pack, ffn, width = layer.pack, layer.ffn, heads.width
    weights = {
        "input_norm": norms.before.weight_key or "",
        "post_norm": norms.after.weight_key or "",
        "o": output.weight_key,
        **pack.weights,
        **ffn.weights,
    }
    variant = {
        "norm": norms.before.kind,
        "eps": f"{norms.before.eps:g}",
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
    at = layer.view.model.get_submodule
    keys = {at(norm.path): norm.weight_key or "" for norm, _ in layer.norms()}
    return {f"{role}_norm": keys[module] for role, module in heads.norms.items()}
