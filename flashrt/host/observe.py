"""A host and one forward to observe it by, from what a person types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.host.load import CACHE
from flashrt.host.load import load as load_host

if TYPE_CHECKING:
    import torch

TINY = "tiny:"


@dataclass(frozen=True)
class Observed:
    """A host that can be observed: ``forward`` runs it once on an input of its own kind.

    ``model`` is in evaluation mode without gradients. ``binding_name`` is the in-tree binding
    written for this host, ``label`` what to call it. ``artifact`` is the ModelArtifact record; a
    tiny host, whose weights are drawn, has none.
    """

    model: torch.nn.Module
    forward: Callable[[], object]
    binding_name: str | None
    label: str
    artifact: Mapping[str, Any] | None = field(default=None)


def observe(reference: str, cache: Path = CACHE) -> Observed:
    """The host named ``tiny:NAME``, or any that :func:`flashrt.host.load` takes.

    ``cache`` is the folder of converted hosts. Raises :class:`Refusal` (HOST) for a name that is
    not known, and what :func:`flashrt.host.load` raises.
    """
    if reference.startswith(TINY):
        from flashrt.host.tiny import build

        tiny = build(reference.removeprefix(TINY))
        return Observed(tiny.model, tiny.forward, tiny.binding, f"{reference} ({tiny.source})")
    from flashrt.host.seams import probe_tokens

    host = load_host(reference, cache=cache)
    tokens = probe_tokens(host)
    return Observed(
        model=host.model,
        forward=lambda: host.model(tokens),
        binding_name=host.binding_name,
        label=host.name,
        artifact=host.model_artifact,
    )
