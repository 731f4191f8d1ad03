"""Tiny hosts: the real classes of transformers and diffusers, small, seeded, with one forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

_MODULES = {
    "qwen3": "qwen3",
    "qwen3_vl": "qwen3_vl",
    "qwen3_next": "qwen3_next",
    "llama": "llama",
    "smolvlm": "smolvlm",
    "pi0": "pi0",
    "gemma3": "gemma3",
    "siglip": "siglip",
    "wan22": "wan22",
    "cosmos3": "cosmos3",
    "cosmos": "cosmos",
    "dit": "dit",
    "qwenimage": "qwenimage",
    "flux": "flux",
    "dinov2": "dinov2",
}


@dataclass(frozen=True)
class TinyHost:
    """A small instance of a real host class.

    ``model`` is float32, in evaluation mode, without gradients and the same in every process.
    ``forward`` runs one real forward or one generation on drawn input without padding, and draws
    the same input in every call. ``binding`` is the in-tree binding written for this host's class,
    ``source`` the dotted name of the class, ``note`` what was kept and what was made small.
    """

    name: str
    model: torch.nn.Module
    forward: Callable[[], object]
    binding: str | None
    source: str
    note: str


def names() -> tuple[str, ...]:
    """The names that :func:`build` knows."""
    return tuple(_MODULES)


def build(name: str) -> TinyHost:
    """Build a tiny host; torch's random state is left as it was.

    Raises :class:`Refusal` (HOST) for an unknown name, and for a host whose package is absent.
    """
    from flashrt.spec.model import suggest

    if name not in _MODULES:
        what = "there is no tiny host of this name"
        raise Refusal(Reason.HOST, what, subject=name, do=suggest(name, names()))
    try:
        module = import_module(f"flashrt.host.tiny.{_MODULES[name]}")
        built: TinyHost = module.build()
    except ImportError as error:
        raise Refusal(
            Reason.HOST,
            f"the host's package cannot be imported: {error}",
            subject=name,
            do="run `make setup`, or install the `host` extra",
        ) from error
    return built
