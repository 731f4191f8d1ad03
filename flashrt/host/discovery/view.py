"""What one forward showed of a host: the same for every finder."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from flashrt.host.discovery.near_miss import NearMiss
from flashrt.host.discovery.norms import Norm
from flashrt.host.discovery.projection import Leaf, Projection
from flashrt.host.discovery.trace import Call, Paths, Trace
from flashrt_runtime.contract import Seam

if TYPE_CHECKING:
    import torch

    from flashrt.host.discovery.attention.tap import Site

_T = TypeVar("_T")


@dataclass(frozen=True)
class View:
    """``projections`` and ``norms`` are by path, in call order; ``attention`` are its seams.

    ``sites`` are the calls of modules that attended, with what they held. ``known`` is what was
    told once and holds wherever the same is asked.
    """

    model: torch.nn.Module
    seen: Trace
    projections: Mapping[str, Projection]
    norms: Mapping[str, Norm]
    norm_misses: Sequence[NearMiss] = ()
    attention: Sequence[Seam] = ()
    leaves: Sequence[Leaf] = ()
    paths: Paths = field(default_factory=dict)
    sites: Sequence[Site] = ()
    known: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, tell: Callable[[], _T]) -> _T:
        """What ``tell`` says, asked once for one key; where it raises, it is asked again."""
        if key not in self.known:
            self.known[key] = tell()
        told: _T = self.known[key]
        return told

    @cached_property
    def readers(self) -> dict[int, list[Call]]:
        """Calls by the number of the first tensor they read, in call order."""
        readers: dict[int, list[Call]] = {}
        for call in self.by_order:
            if call.input is not None:
                readers.setdefault(call.input.number, []).append(call)
        return readers

    @cached_property
    def makers(self) -> dict[int, list[Call]]:
        """Calls by the number of the tensor they returned, the outermost first."""
        makers: dict[int, list[Call]] = {}
        for call in self.by_order:
            made = call.result()
            if made is not None and not (call.input is not None and made.same(call.input)):
                makers.setdefault(made.number, []).append(call)
        return makers

    def sites_around(self, module: torch.nn.Module) -> Sequence[Site]:
        """The attending calls that called this module, or within a call of which it was called."""
        return self._around.get(module, ())

    @cached_property
    def _around(self) -> dict[torch.nn.Module, list[Site]]:
        around: dict[torch.nn.Module, list[Site]] = {}
        for site in self.sites:
            for frame in site.frames():
                for child in frame.children:
                    known = around.setdefault(child.module, [])
                    if site.attended and not (known and known[-1] is site):
                        known.append(site)
        return around

    def module(self, path: str) -> torch.nn.Module:
        """The module at a path. ``AttributeError`` where there is none."""
        found = self._modules.get(path)
        return self.model.get_submodule(path) if found is None else found

    @cached_property
    def _modules(self) -> dict[str, torch.nn.Module]:
        return {name: module for module, names in self.paths.items() for name in names}

    def attending(self, module: torch.nn.Module) -> tuple[Site, Site] | None:
        """The first attending call in a call of this module, and that call around it."""
        return self._attending.get(module)

    @cached_property
    def _attending(self) -> dict[torch.nn.Module, tuple[Site, Site]]:
        found: dict[torch.nn.Module, tuple[Site, Site]] = {}
        for site in self.sites:
            for frame in site.frames() if site.attended else ():
                found.setdefault(frame.module, (site, frame))
        return found

    def order_of(self, paths: Sequence[str]) -> list[str]:
        """These modules, as often and in the order in which their calls began."""
        begun = self._begun
        return [path for _, path in sorted((at, p) for p in set(paths) for at in begun.get(p, ()))]

    @cached_property
    def _begun(self) -> dict[str, list[int]]:
        begun: dict[str, list[int]] = {}
        for at, path in enumerate(self.seen.sequence):
            begun.setdefault(path, []).append(at)
        return begun

    def made_by(self, outer: Call) -> tuple[Call, ...]:
        """The calls that were made while this one ran, in order."""
        return self.by_order[outer.order + 1 : outer.end]

    @cached_property
    def by_order(self) -> tuple[Call, ...]:
        """Every call, by when it began."""
        every = (call for calls in self.seen.calls.values() for call in calls)
        return tuple(sorted(every, key=lambda call: call.order))


def region_of(view: View, paths: Sequence[str]) -> str:
    """The innermost module that holds all of these and was called; a list of modules never is."""
    path = common_parent(paths)
    while path and path not in view.seen.calls:
        path = path.rpartition(".")[0]
    return path


def common_parent(paths: Sequence[str]) -> str:
    """The innermost module path that every path lies in."""
    shared = []
    for names in zip(*(p.split(".")[:-1] for p in paths), strict=False):
        if len(set(names)) != 1:
            break
        shared.append(names[0])
    return ".".join(shared)
