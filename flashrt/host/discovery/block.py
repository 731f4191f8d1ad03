"""Finds decoder_block: a module that is one pre-norm decoder layer and nothing else.

What it holds is told by the flow of tensors: norm → q, k, v → attention → o, added to what the
module read; then norm → gated feed-forward, added to that, which is what the module returns.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from flashrt.host.discovery.near_miss import DECODER_BLOCK, Found, NearMiss
from flashrt.host.discovery.norms import Norm
from flashrt.host.discovery.projection import Projection
from flashrt.host.discovery.sample import Observed
from flashrt.host.discovery.trace import Call
from flashrt.host.discovery.view import View, common_parent
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

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
    heads = _heads(layer, norms)
    if not isinstance(heads, _Heads):
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


def _is_sum(total: Observed, a: Observed | None, b: Observed | None) -> bool:
    if a is None or b is None or a.kept.shape != b.kept.shape or total.kept.shape != a.kept.shape:
        return False
    size = a.kept.abs() + b.kept.abs()
    off = (total.kept - (a.kept + b.kept)).abs()
    return bool((off <= _ROUNDINGS * torch.finfo(total.dtype).eps * size + 1e-30).all())


@dataclass(frozen=True)
class _Heads:
    width: int
    rotated: int
    norms: tuple[Norm, ...]


def _heads(layer: _Layer, norms: _Norms) -> _Heads | Objection:
    inside = {call.module for call in layer.view.made_by(layer.call)}
    attending = layer.view.attention
    cores = [s for s in attending if s.structure == _CORE and s.members["self"] in inside]
    if len(cores) != 1:
        return Reason.STRUCTURE, "not one attention was seen in it, so its heads are unknown"
    if cores[0].variant.get("mask") != "causal" or cores[0].variant.get("scaling") == "given":
        return Reason.STRUCTURE, "its attention is not plainly causal with the usual scale"
    width = int(cores[0].dims["Dh"])
    tables = _tables(layer.call, width)
    if tables is None:
        return Reason.STRUCTURE, "it was given no cos and sin of its positions"
    both = {norms.before.path, norms.after.path}
    rest = [norm for norm, _ in layer.norms() if norm.path not in both]
    if any(norm.d != width or norm.variant != norms.before.variant for norm in rest):
        what = ", ".join(norm.path for norm in rest)
        return Reason.STRUCTURE, f"it has norms that a layer of this kind has not: {what}"
    if len(rest) not in (0, 2):
        return Reason.STRUCTURE, f"{len(rest)} norms of heads were seen, not none or two"
    return _Heads(width, tables, tuple(rest))


def _tables(call: Call, width: int) -> int | None:
    """The width of two tensors the layer was given whose squares sum to one, as angles' do."""
    given = [o for o in call.given.values() if o.dtype.is_floating_point and o.width <= width]
    for a, b in pairwise(given):
        if a.shape == b.shape and a.width % 2 == 0:
            ones = a.kept.double().square() + b.kept.double().square()
            if bool(((ones - 1).abs() < 0.02).all()):
                return a.width
    return None


def _made(layer: _Layer, norms: _Norms, output: Projection, heads: _Heads) -> Seam | Objection:
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
        named = _of_heads(layer, heads)
        if named is None:
            return Reason.AMBIGUOUS, "which norm is the queries' was not seen"
        variant["qk_norm"] = "per_head"
        weights |= named
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


def _of_heads(layer: _Layer, heads: _Heads) -> dict[str, str] | None:
    """The keys of the queries' and the keys' norm, told by what they read."""
    found: dict[str, str] = {}
    for role, slot in (("q", "q_norm"), ("k", "k_norm")):
        made = layer.view.seen.within(layer.call, layer.pack.members[role])
        for norm in heads.norms:
            call = layer.view.seen.within(layer.call, norm.path)
            if made and call and _reads(call.input, made.output) and norm.weight_key:
                found.setdefault(slot, norm.weight_key)
    return found if len(set(found.values())) == 2 else None


def _reads(heads: Observed | None, made: Observed | None) -> bool:
    """Whether the first row of heads is the beginning of the first row of a projection."""
    if heads is None or made is None:
        return False
    first = heads.rows[0]
    return torch.equal(first, made.rows[0, : first.shape[0]])
