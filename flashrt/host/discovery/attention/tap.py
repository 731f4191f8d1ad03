"""What the attention finders see of one forward: attention calls, and the modules around them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from flashrt.host.discovery.attention.seen import Seen
from flashrt.host.discovery.attention.thin import Thinner
from flashrt.host.discovery.listener import listen
from flashrt.host.discovery.projection import held
from flashrt_runtime.adapters.call import AttentionCall
from flashrt_runtime.adapters.plan import Parameters, Plan
from flashrt_runtime.adapters.slots import (
    ATTRIBUTE,
    Slot,
    attribute_slots,
    global_slots,
    plain_forward,
)

if TYPE_CHECKING:
    import torch

    from flashrt.host.discovery.trace import Paths

_LARGE = 1 << 16  # values; a table of angles has fewer


class Child(NamedTuple):
    """A call of a module made by a site's own forward. ``input`` is its first tensor."""

    path: str
    module: torch.nn.Module
    input: Seen | None
    output: Seen | None


@dataclass(frozen=True)
class Attended:
    """A call of scaled_dot_product_attention: its tensors as they were, and what came out.

    ``after`` is how many modules the site had called before; ``turned`` is what was told of it by
    ``rotation.turned`` and in ``reach``.
    """

    call: AttentionCall
    query: Seen
    key: Seen
    value: Seen
    output: torch.Tensor
    after: int = 0
    turned: dict[Hashable, bool] = field(default_factory=dict)

    def intact(self) -> bool:
        """Whether nothing was written to q, k or v since."""
        return self.query.intact() and self.key.intact() and self.value.intact()


@dataclass(frozen=True)
class SlotCall:
    """A call of a callable slot: arguments by name, what came out.

    States are copies, for a host may write to its own between calls. ``written`` names arguments
    that the call wrote to, ``views`` those that were not contiguous.
    """

    slot: Slot
    given: dict[str, Any]
    written: tuple[str, ...]
    views: tuple[str, ...]
    output: Any


@dataclass(slots=True)
class Site:
    """One call of a module whose own forward attends, or runs a callable slot.

    ``around`` is the call that made this one; ``inner`` is whether a call inside of it attended or
    ran a slot. The calls around an attending one have ``given`` and ``children`` too; the tensors
    of those only where it is ``loose``: where what attends inside does not hold all projections.
    ``cut`` is how many positions its tensors had before all but a few were cut; of a call around,
    those of the calls inside, where none was kept ``whole``.
    """

    path: str
    module: torch.nn.Module
    around: Site | None = None
    given: dict[str, Any] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)
    attended: Sequence[Attended] = ()
    slots: Sequence[SlotCall] = ()
    output: Any = None
    inner: bool = False
    loose: bool = False
    whole: bool = False
    cut: int = 0

    def frames(self) -> Iterator[Site]:
        """This call and those around it, from the inside out."""
        at: Site | None = self
        while at is not None:
            yield at
            at = at.around

    def relative(self, child: Child) -> str:
        """The child's path within this module."""
        return child.path[len(self.path) + 1 :] if self.path else child.path


def _wanted(slot: Slot) -> bool:
    names = set(slot.parameters)
    return {"cos", "sin"} <= names or {"g", "beta"} <= names


def _closed(site: Site) -> bool:
    """Whether it called modules with a matrix before and after it attended: q, k, v and o."""
    if not site.attended:
        return False
    matrices = [any(p.dim() > 1 for p in held(child.module).values()) for child in site.children]
    first, last = site.attended[0].after, site.attended[-1].after
    return sum(matrices[:first]) > 2 and any(matrices[last:])


def _forget(site: Site, tensor: type[torch.Tensor]) -> None:
    """Let go of what a call around an attending one read and made, so that memory is used again."""
    site.children = [Child(child.path, child.module, None, None) for child in site.children]
    site.given = {
        name: None if isinstance(value, tensor) and value.numel() > _LARGE else value
        for name, value in site.given.items()
    }


class AttentionTap:
    """A context manager for one forward of ``model``; the model is as it was afterwards.

    ``sites`` are the calls that attended, in the order in which they ended; ``offered`` the
    callable slots by module path, called or not; ``plans`` is filled by the finders, by seam id.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        import torch

        self.model = model
        self._tensor = torch.Tensor
        self.sites: list[Site] = []
        self.offered: dict[str, list[Slot]] = {}
        self.plans: dict[str, Plan] = {}
        self._stack: list[Site] = []
        self._undo: list[Callable[[], object]] = []
        self._globals: dict[Any, tuple[Slot, ...]] = {}
        self._scopes: dict[int, dict[str, Any]] = {}
        self._plain: dict[type, Any] = {}
        self._read: dict[Any, Parameters] = {}
        self._joined: Paths | None = None
        self._thread = get_ident()
        self._thinner = Thinner()

    def join(self, paths: Paths) -> None:
        """A trace of the same forward reports the calls of modules that have no hooks."""
        self._joined = paths

    def __enter__(self) -> AttentionTap:
        try:
            if self._joined is None:
                for path, module in self.model.named_modules():
                    self._watch(path, module)
                    self._listen(path, module)
            else:
                for module, names in self._joined.items():
                    self._watch(names[0], module)
                    if module._forward_hooks or module._forward_pre_hooks:
                        self._listen(names[0], module)
            self._record_attention()
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(self, *_exc: Any) -> None:
        self._restore()

    def _restore(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._stack.clear()
        self._joined = None

    def _watch(self, path: str, module: torch.nn.Module) -> None:
        # Slots first: what listens is no attribute that the host's forward calls.
        plain = self._plain_of(module)
        scope = getattr(plain, "__globals__", {})
        if plain not in self._globals:
            self._scopes[id(scope)] = scope
            self._globals[plain] = tuple(filter(_wanted, global_slots(plain)))
        for slot in (*filter(_wanted, attribute_slots(module)), *self._globals[plain]):
            self.offered.setdefault(path, []).append(slot)
            self._wrap(module.__dict__ if slot.place == ATTRIBUTE else scope, slot)

    def _plain_of(self, module: torch.nn.Module) -> Any:
        """The function that a call of the module runs, found once for a class."""
        if "forward" in module.__dict__:
            return plain_forward(module)
        kind = type(module)
        if kind not in self._plain:
            self._plain[kind] = plain_forward(module)
        return self._plain[kind]

    def _record_attention(self) -> None:
        """Wrap torch's function where it lives, and where a file of the host has it by name.

        A torch function mode would see every operator: a tenth of a small host's forward.
        """
        from torch.nn import functional as f

        original = f.scaled_dot_product_attention

        @functools.wraps(original)
        def recorded(*args: Any, **named: Any) -> Any:
            out = original(*args, **named)
            if self._stack and self._thread == get_ident():
                call = AttentionCall.of(args, named)
                q, k, v = (Seen.of(t) for t in (call.query, call.key, call.value))
                site = self._stack[-1]
                made = Attended(call, q, k, v, out, len(site.children))
                site.attended = (*site.attended, made)
            return out

        for scope in (vars(f), *self._scopes.values()):
            if scope.get(original.__name__) is original:
                self._put(scope, original.__name__, recorded)

    def _put(self, scope: dict[str, Any], name: str, value: Any) -> None:
        self._undo.append(functools.partial(scope.__setitem__, name, scope[name]))
        scope[name] = value

    def _listen(self, path: str, module: torch.nn.Module) -> None:
        """Wrap the module's forward: what its hooks do happens outside of it."""
        plain = module.forward

        def forward(*args: Any, **named: Any) -> Any:
            if self._thread != get_ident():
                return plain(*args, **named)
            depth = self.begin(path, module)
            try:
                out = plain(*args, **named)
                self.end(plain, args, named, out)
            finally:
                self.drop(depth)
            return out

        self._undo.append(listen(module, forward))

    def _wrap(self, holder: dict[str, Any], slot: Slot) -> None:
        original = holder[slot.name]
        if hasattr(original, "flashrt_slot"):
            return
        parameters = Parameters(original)

        @functools.wraps(original)
        def wrapped(*args: Any, **named: Any) -> Any:
            given = parameters.bind(args, named)
            before = {k: Seen.of(v) for k, v in given.items() if isinstance(v, self._tensor)}
            given |= {k: v.tensor.clone() for k, v in before.items() if "state" in k}
            views = tuple(k for k, v in before.items() if not v.tensor.is_contiguous())
            out = original(*args, **named)
            if self._stack and self._thread == get_ident():
                written = tuple(name for name, seen in before.items() if not seen.intact())
                site = self._stack[-1]
                site.slots = (*site.slots, SlotCall(slot, given, written, views, out))
            return out

        wrapped.__dict__["flashrt_slot"] = slot
        self._put(holder, slot.name, wrapped)

    def _parameters(self, plain: Any) -> Parameters:
        """Those of a forward, read once for all modules of one class."""
        function = getattr(plain, "__func__", plain)
        key = function, function is plain  # a bound one has no parameter for the module
        if key not in self._read:
            self._read[key] = Parameters(plain)
        return self._read[key]

    def begin(self, path: str, module: torch.nn.Module) -> int:
        """A call of a module begins. Returns how many are open around it."""
        stack = self._stack
        depth = len(stack)
        stack.append(Site(path, module, stack[-1] if stack else None))
        return depth

    def drop(self, depth: int) -> None:
        """Only ``depth`` calls are open still: the others have raised."""
        del self._stack[depth:]

    def end(self, plain: Any, args: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
        """The call that began last has returned; ``plain`` is the forward that it ran."""
        site = self._stack.pop()
        if site.attended or site.slots or site.inner:
            self._keep(site, self._parameters(plain).bind(args, named), out)
        around = site.around
        if around is None:
            return
        kind = self._tensor
        first = args[0] if args else None
        if not isinstance(first, kind):
            first = next((v for v in (*args, *named.values()) if isinstance(v, kind)), None)
        read = Seen.of(first) if first is not None else None
        made = Seen.of(out) if isinstance(out, kind) else None
        around.children.append(Child(site.path, site.module, read, made))

    def _keep(self, site: Site, given: dict[str, Any], out: Any) -> None:
        """A call that attended or ran a slot, or one around such a call, has returned."""
        site.given = given
        if site.attended or site.slots:
            site.output, site.loose = out, site.loose or not _closed(site)
            self._thinner.site(site)
            site.whole |= not site.cut
            self.sites.append(site)
        elif not site.loose:
            _forget(site, self._tensor)
        if site.around is not None:
            _within(site, site.around)
        if not (site.attended or site.slots or site.whole):
            self._thinner.around(site)


def _within(site: Site, around: Site) -> None:
    """Tell the call around what a call that attended, or lies around one that did, was."""
    around.loose |= site.loose
    around.inner = True
    around.whole |= site.whole or (around.cut not in (0, site.cut))
    around.cut = site.cut
