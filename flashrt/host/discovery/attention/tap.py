"""What the attention finders see of one forward: attention calls, and the modules around them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from threading import get_ident
from typing import TYPE_CHECKING, Any

from flashrt.host.discovery.attention.seen import Seen
from flashrt.host.discovery.projection import held
from flashrt_runtime.adapters.call import AttentionCall
from flashrt_runtime.adapters.plan import Parameters, Plan
from flashrt_runtime.adapters.slots import ATTRIBUTE, Slot, plain_forward, slots_of

if TYPE_CHECKING:
    import torch

_LARGE = 1 << 16  # values; a table of angles has fewer


@dataclass(frozen=True)
class Child:
    """A call of a module made by a site's own forward. ``input`` is its first tensor."""

    path: str
    module: torch.nn.Module
    input: Seen | None
    output: Seen | None


@dataclass(frozen=True)
class Attended:
    """A call of scaled_dot_product_attention: its tensors as they were, and what came out.

    ``after`` is how many modules the site had called before; ``turned`` is what was told of it by
    :func:`flashrt.host.discovery.attention.rotation.turned`.
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


@dataclass
class Site:
    """One call of a module whose own forward attends, or runs a callable slot.

    ``around`` is the call that made this one; ``inner`` is whether a call inside of it attended or
    ran a slot. The calls around an attending one have ``given`` and ``children`` too; the tensors
    of those only where it is ``loose``: where what attends inside does not hold all projections.
    """

    path: str
    module: torch.nn.Module
    given: dict[str, Any] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)
    attended: list[Attended] = field(default_factory=list)
    slots: list[SlotCall] = field(default_factory=list)
    output: Any = None
    around: Site | None = None
    inner: bool = False
    loose: bool = False

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
    site.children[:] = [replace(child, input=None, output=None) for child in site.children]
    for name, value in site.given.items():
        if isinstance(value, tensor) and value.numel() > _LARGE:
            site.given[name] = None


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
        self._undo: list[Callable[[], None]] = []
        self._globals: dict[Any, tuple[Slot, ...]] = {}
        self._scopes: dict[int, dict[str, Any]] = {}
        self._read: dict[Any, Parameters] = {}
        self._thread = get_ident()

    def __enter__(self) -> AttentionTap:
        try:
            for path, module in self.model.named_modules():
                self._watch(path, module)
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

    def _watch(self, path: str, module: torch.nn.Module) -> None:
        # Slots first: what listens is no attribute that the host's forward calls.
        plain = plain_forward(module)
        scope = getattr(plain, "__globals__", {})
        self._scopes[id(scope)] = scope
        if plain not in self._globals:
            every = tuple(filter(_wanted, slots_of(module)))
            self._globals[plain] = tuple(slot for slot in every if slot.place != ATTRIBUTE)
        held = filter(_wanted, slots_of(module, attributes_only=True))
        for slot in (*held, *self._globals[plain]):
            self.offered.setdefault(path, []).append(slot)
            self._wrap(module.__dict__ if slot.place == ATTRIBUTE else scope, slot)
        self._listen(path, module)

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
                site.attended.append(Attended(call, q, k, v, out, len(site.children)))
            return out

        for scope in (vars(f), *self._scopes.values()):
            if scope.get(original.__name__) is original:
                self._put(scope, original.__name__, recorded)

    def _put(self, scope: dict[str, Any], name: str, value: Any) -> None:
        self._undo.append(functools.partial(scope.__setitem__, name, scope[name]))
        scope[name] = value

    def _listen(self, path: str, module: torch.nn.Module) -> None:
        """Wrap the module's forward: what its hooks do happens outside of it."""
        held, plain = module.__dict__, module.forward
        own = held.get("forward")

        def forward(*args: Any, **named: Any) -> Any:
            if self._thread != get_ident():
                return plain(*args, **named)
            depth = len(self._stack)
            around = self._stack[-1] if self._stack else None
            self._stack.append(Site(path, module, around=around))
            try:
                out = plain(*args, **named)
                self._leave(plain, args, named, out)
            finally:
                del self._stack[depth:]
            return out

        forward.__dict__["__wrapped__"] = plain  # its signature is still the host's
        held["forward"] = forward
        back = functools.partial(held.pop, "forward", None)
        again = functools.partial(held.__setitem__, "forward", own)
        self._undo.append(back if own is None else again)

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
                self._stack[-1].slots.append(SlotCall(slot, given, written, views, out))
            return out

        wrapped.__dict__["flashrt_slot"] = slot
        self._put(holder, slot.name, wrapped)

    def _parameters(self, plain: Any) -> Parameters:
        """Those of a forward, read once for all modules of one class."""
        function = getattr(inspect.unwrap(plain), "__func__", plain)
        if function not in self._read:
            self._read[function] = Parameters(plain)
        return self._read[function]

    def _leave(self, plain: Any, args: Any, named: dict[str, Any], out: Any) -> None:
        site = self._stack.pop()
        own = bool(site.attended or site.slots)
        if own or site.inner:
            site.given = self._parameters(plain).bind(args, named)
        if own:
            site.output, site.loose = out, site.loose or not _closed(site)
            self.sites.append(site)
        elif site.inner and not site.loose:
            _forget(site, self._tensor)
        if self._stack:
            self._stack[-1].loose |= (own or site.inner) and site.loose
            self._stack[-1].inner |= own or site.inner
            kind = self._tensor
            first = args[0] if args else None
            if not isinstance(first, kind):
                first = next((v for v in (*args, *named.values()) if isinstance(v, kind)), None)
            read = Seen.of(first) if first is not None else None
            made = Seen.of(out) if isinstance(out, kind) else None
            self._stack[-1].children.append(Child(site.path, site.module, read, made))
