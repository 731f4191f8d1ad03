"""A host's seams: those its binding names, or those that discovery finds where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashrt.host.discovery import Discovery, discover
from flashrt.host.forward import forward
from flashrt.host.load import Host
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason, Refusal

_TEXT = """
A ferry left the island at six in the morning with forty passengers, two goats and a piano. The
captain had promised the piano's owner, a retired clockmaker named Ilse, that no wave would reach
the keys; he had wrapped the instrument in three tarpaulins and tied it beside the wheelhouse.
Halfway across, the wind turned. What had been a light swell became short and steep, and the older
goat began to complain. Ilse counted the seconds between the gusts, as she had once counted the
beats of a pendulum, and told the captain that the worst would be over in eleven minutes. He did
not ask how she knew. At 7:42 the rain stopped, the harbour lights came into view, and somebody on
the lower deck started to sing. The tarpaulins had held. When the crane lifted the piano ashore,
one string was out of tune by less than a quarter tone: "That," said Ilse, "was so before we left."
Prices for the crossing are 14.50 for adults and 7.25 for children; goats travel free on weekdays.
"""
_TOKENS = 256  # more show more, and what looking costs is a smaller part of the forward


@dataclass(frozen=True)
class HostSeams:
    """Seams with what they came from.

    ``binding`` is ``{"name", "digest"}`` or ``None`` where the seams were discovered; ``specs``
    maps ``structure@version`` to the spec digest in the catalog. ``emitters`` are seams that a form
    serves only by emitting for readers of another: they are bound in a chain or not at all.
    """

    seams: tuple[Seam, ...]
    specs: Mapping[str, str]
    binding: Mapping[str, str] | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)
    emitters: tuple[Seam, ...] = ()


def spec_digests(seams: Sequence[Seam]) -> dict[str, str]:
    """Spec digests of the structures that these seams belong to."""
    from flashrt.spec import load

    return {name: load(name).digest for name in sorted({seam.structure for seam in seams})}


def served(seams: Sequence[Seam]) -> tuple[Seam, ...]:
    """Those whose structure an installed impl serves; the others can be seen and not replaced."""
    from flashrt_runtime.impl_loader import structures

    able = structures()
    return tuple(seam for seam in seams if seam.structure in able)


def emitting(seams: Sequence[Seam]) -> tuple[Seam, ...]:
    """Those of structures that some installed form emits a wire from."""
    from flashrt_runtime.chain_route import WIRES
    from flashrt_runtime.impl_loader import emitters

    able = frozenset().union(*map(emitters, WIRES))
    return tuple(seam for seam in seams if seam.structure in able)


def probe_tokens(host: Host) -> Any:
    """Token ids [1, 256 or fewer] of a short text, for observing one forward."""
    import torch

    config = host.model.config
    length = min(_TOKENS, int(getattr(config, "max_position_embeddings", _TOKENS)))
    if host.tokenizer is not None:
        ids = host.tokenizer(_TEXT, add_special_tokens=False)["input_ids"][:length]
        if ids:
            return torch.tensor([ids], dtype=torch.int64)
    vocabulary = int(getattr(config, "vocab_size", 2))
    return torch.arange(length, dtype=torch.int64)[None] % vocabulary


def discover_host(host: Host) -> Discovery:
    """:func:`flashrt.host.discovery.discover` over one short text."""
    tokens = probe_tokens(host)
    return discover(host.model, lambda: forward(host.model, tokens, host.name))


def seams_of(host: Host) -> HostSeams:
    """The seams to calibrate and bind: those of the binding, else of discovery, with an impl.

    Raises what ``flashrt.binding.resolve`` raises, or :class:`Refusal`: STRUCTURE when discovery
    finds nothing, NONFINITE when a projection of the host computes NaN or infinity.
    """
    if host.binding_name is None:
        discovery = discover_host(host).require()
        for miss in discovery.refusals:
            if miss.because.reason is Reason.NONFINITE:
                raise Refusal(
                    Reason.NONFINITE,
                    miss.because.detail,
                    subject=miss.path,
                    do="look at the host's weights: nothing can be calibrated or judged on these",
                )
        found = served(discovery.seams)
        if not found:
            what = "no impl serves what discovery found"
            raise Refusal(Reason.STRUCTURE, what, subject="host", do="run `flashrt discover`")
        return HostSeams(found, spec_digests(found), emitters=emitting(discovery.seams))
    from flashrt.binding import load_binding, resolve

    binding = load_binding(host.binding_name)
    every = resolve(binding, host.model)
    seams = served(every)
    identity = {"name": binding.name, "digest": binding.digest}
    specs, manifest = spec_digests(seams), binding.manifest()
    return HostSeams(seams, specs, identity, manifest, emitting(every))
