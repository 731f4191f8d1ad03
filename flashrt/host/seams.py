"""A host's seams: those its binding names, or those that discovery finds where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashrt.host.discovery import Discovery, discover
from flashrt.host.load import Host
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Because, Reason, Refusal

_SENTENCE = (
    "The jury further said in term-end presentments that the City Committee deserves praise."
)
_TOKENS = 16


@dataclass(frozen=True)
class HostSeams:
    """Seams with what they came from.

    ``binding`` is ``{"name", "digest"}`` or ``None`` where the seams were discovered; ``specs``
    maps ``structure@version`` to the spec digest in the catalog.
    """

    seams: tuple[Seam, ...]
    specs: Mapping[str, str]
    binding: Mapping[str, str] | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)


def spec_digests(seams: Sequence[Seam]) -> dict[str, str]:
    """Spec digests of the structures that these seams belong to."""
    from flashrt.spec import load

    return {name: load(name).digest for name in sorted({seam.structure for seam in seams})}


def probe_tokens(host: Host) -> Any:
    """Token ids [1, 16 or fewer] of one sentence, for observing one forward."""
    import torch

    if host.tokenizer is not None:
        ids = host.tokenizer(_SENTENCE, add_special_tokens=False)["input_ids"][:_TOKENS]
        if ids:
            return torch.tensor([ids], dtype=torch.int64)
    vocabulary = int(getattr(host.model.config, "vocab_size", 2))
    return torch.arange(_TOKENS, dtype=torch.int64)[None] % vocabulary


def discover_host(host: Host) -> Discovery:
    """:func:`flashrt.host.discovery.discover` over one sentence."""
    tokens = probe_tokens(host)
    return discover(host.model, lambda: host.model(tokens))


def seams_of(host: Host) -> HostSeams:
    """The seams to calibrate and bind: the binding's, else the discovered ones.

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
        found = discovery.seams
        return HostSeams(found, spec_digests(found))
    from flashrt.binding import load_binding, resolve

    binding = load_binding(host.binding_name)
    seams = tuple(resolve(binding, host.model))
    identity = {"name": binding.name, "digest": binding.digest}
    return HostSeams(seams, spec_digests(seams), identity, binding.manifest())


def compare(bound: Sequence[Seam], found: Sequence[Seam]) -> tuple[Because, ...]:
    """Where a binding and discovery disagree; empty when every bound seam was found as it is."""
    by_id = {seam.id: seam for seam in found}
    differences = []
    for seam in bound:
        other = by_id.get(seam.id)
        if other is None:
            detail = f"the binding names a {seam.structure} here and discovery finds none"
        elif other.record() != seam.record():
            fields = [k for k, v in seam.record().items() if other.record()[k] != v]
            detail = f"binding and discovery differ in {', '.join(fields)}"
        else:
            continue
        differences.append(Because(Reason.BINDING, detail, seam.id))
    return tuple(differences)
