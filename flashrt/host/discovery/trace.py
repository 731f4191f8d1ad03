"""One real forward, observed: which module was called when, with which tensors, what came out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import get_ident
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch.nn.parameter import is_lazy

from flashrt.host.discovery.listener import listen
from flashrt.host.discovery.sample import Observed, Sampler
from flashrt.host.discovery.torch_linear import of_torch
from flashrt_runtime.reason import Reason, Refusal

__all__ = ["Call", "Forward", "Observed", "Paths", "Tap", "Trace", "paths_of", "trace"]

Forward = Callable[[], object]
_NONE: Mapping[str, Observed] = {}
_BARE = 8  # tensors that are kept until the module around them returns


class Call(NamedTuple):
    """One call of one module.

    ``order`` counts calls by when they began and ``end`` is the order of the first call after
    this one ended, so the calls that it made lie in between. ``input`` is the first tensor given,
    ``output`` the tensor returned. ``plain`` is whether the call had one positional tensor and
    nothing else; if not, ``given`` has its tensors by position (``"0"``), by keyword
    (``"hidden_states"``) and inside one tuple (``"position_embeddings.0"``), but only the first
    where the module holds others. ``returned`` has the tensors of a tuple that was returned, by
    position.
    """

    module: str
    order: int
    end: int
    input: Observed | None
    output: Observed | None
    plain: bool
    given: Mapping[str, Observed] = _NONE
    returned: Mapping[str, Observed] = _NONE

    def holds(self, other: Call) -> bool:
        """Whether the other call was made while this one ran."""
        return self.order < other.order < self.end

    def result(self) -> Observed | None:
        """The tensor returned, alone or first in a tuple."""
        return self.output or self.returned.get("0")


@dataclass
class Trace:
    """Every observed call of one forward, and the order in which modules were called.

    A module that a tree holds at several paths is called by the path that lies in the call around
    it, so a projection that two layers share has calls under both. ``unseen`` says, by path, what
    became of calls that could not be written down.
    """

    calls: dict[str, list[Call]] = field(default_factory=dict)
    sequence: list[str] = field(default_factory=list)
    unseen: dict[str, str] = field(default_factory=dict)

    def one(self, path: str) -> Call | None:
        """The only call of a module, or ``None`` when there were more or none."""
        calls = self.calls.get(path, ())
        return calls[0] if len(calls) == 1 else None

    def within(self, outer: Call, path: str) -> Call | None:
        """The only call of the module at ``path`` that this call made, or ``None``."""
        inside = [call for call in self.calls.get(path, ()) if outer.holds(call)]
        return inside[0] if len(inside) == 1 else None


Paths = dict[torch.nn.Module, list[str]]


def paths_of(model: torch.nn.Module) -> Paths:
    """Every path of every module of a tree. :class:`Refusal` HOST when a module holds itself."""
    paths: Paths = {}
    try:
        for path, module in model.named_modules(remove_duplicate=False):
            paths.setdefault(module, []).append(path)
    except RecursionError:
        what = "a module holds itself, so the tree has no end"
        raise Refusal(Reason.HOST, what, subject="host") from None
    return paths


@runtime_checkable
class Tap(Protocol):
    """A mode of :func:`trace` that follows the calls as well, out of the same wrappers."""

    def join(self, paths: Paths) -> None:
        """Before it is entered: calls of modules that have no hooks will be reported to it."""

    def begin(self, path: str, module: torch.nn.Module) -> int:
        """A call begins. Returns how many are open around it."""

    def end(self, plain: Any, args: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
        """The call that began last has returned; ``plain`` is the forward that it ran."""

    def drop(self, depth: int) -> None:
        """Something was raised: only ``depth`` calls are open still."""


class _Kind(Enum):
    """What a module is, for whether all rows of what it reads and makes may be asked for."""

    LINEAR = auto()  # torch's own code: a few rows of both say what it computes
    LIGHT = auto()  # holds no module and no matrix: nobody asks for all rows of what it makes
    LEAF = auto()
    TREE = auto()  # holds modules


def _kind(module: torch.nn.Module) -> _Kind:
    if module._modules:
        return _Kind.TREE
    for p in module._parameters.values():
        if p is not None and (is_lazy(p) or p.dim() > 1):
            return _Kind.LINEAR if of_torch(module) else _Kind.LEAF
    return _Kind.LIGHT


class _Open(NamedTuple):
    """A call that has begun, as :class:`Call` has it.

    ``bare`` is how many tensors of projections were held before it; ``late`` is the tensor that it
    read where a sketch of that may still be asked for.
    """

    path: str
    order: int
    input: Observed | None
    plain: bool
    given: Mapping[str, Observed]
    bare: int
    late: torch.Tensor | None


class _Recorder:
    """Writes calls down; holds the stack of those that have begun and not ended."""

    def __init__(self, *, whole: bool) -> None:
        self.seen = Trace()
        self._open: list[_Open] = []
        self._sample = Sampler(whole=whole)
        self._thread = get_ident()
        self._bare: list[tuple[torch.Tensor, Observed]] = []
        self._makers: dict[int, _Kind] = {}  # by number, of what was made and got no sketch

    def here(self) -> bool:
        """Whether this is the thread that the forward was started in."""
        return get_ident() == self._thread

    def enter(
        self, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any], kind: _Kind
    ) -> int:
        """A call begins. Returns how many are open around it.

        -1 for one in another thread: what lies in what is not known then.
        """
        if get_ident() != self._thread:
            what = "another thread called it, so the order of its calls was not observed"
            self.seen.unseen.update(dict.fromkeys(names, what))
            return -1
        path = names[0] if len(names) == 1 else self._path(names)
        first, late, given = None, None, _NONE
        plain = len(args) == 1 and not kwargs and isinstance(args[0], torch.Tensor)
        if plain:
            first, late = self._read(args[0], kind)
            plain = first is not None
        elif kind is _Kind.TREE:
            for name, tensor in _tensors((*enumerate(args), *kwargs.items())):
                first, late = self._read(tensor, kind)
                if first is not None:
                    given = {name: first}
                    break
        else:
            given = self._seen((*enumerate(args), *kwargs.items()))
            first = next(iter(given.values()), None)
            for seen in given.values():
                self._leaf_reads(seen)
        sequence, depth = self.seen.sequence, len(self._open)
        self._open.append(_Open(path, len(sequence), first, plain, given, len(self._bare), late))
        sequence.append(path)
        return depth

    def _read(
        self, tensor: torch.Tensor, kind: _Kind
    ) -> tuple[Observed | None, torch.Tensor | None]:
        """A module of this kind reads a tensor; it comes back where its sketch is put off.

        What a light module made is read whole where a sum of it is: that one is read inside, by a
        leaf, and has its shape.
        """
        seen = self._sample(tensor, bare=True)
        if seen is None or kind is _Kind.LINEAR:
            return seen, None
        if not seen.sum:
            maker = self._makers.get(seen.number)
            if kind is _Kind.TREE and maker is _Kind.LIGHT:
                return seen, tensor
            if kind is _Kind.LIGHT and maker is _Kind.LINEAR:
                return seen, None
            self._sample.sum(tensor, seen)
        if kind is not _Kind.TREE:
            self._leaf_reads(seen)
        return seen, None

    def _leaf_reads(self, seen: Observed) -> None:
        """What the calls around it read, in the same shape, may be a part of what a leaf reads."""
        for call in self._open:
            if call.late is not None and call.input and call.input.shape == seen.shape:
                self._sample.sum(call.late, call.input)

    def leave(self, out: Any, kind: _Kind) -> None:
        """The call that began last has returned."""
        call = self._open.pop()
        few = kind is _Kind.LINEAR or kind is _Kind.LIGHT
        after: Observed | None = None
        returned: Mapping[str, Observed] = _NONE
        if isinstance(out, torch.Tensor):
            after = self._sample(out, bare=few)
        elif isinstance(out, tuple):
            returned = self._seen(enumerate(out))
        if few and after is not None:
            self._makers.setdefault(after.number, kind)
        if kind is _Kind.LINEAR:
            if after is not None:
                self._bare.append((out, after))
                del self._bare[call.bare : -_BARE]  # no more are kept alive
        elif kind is not _Kind.LIGHT:
            self._compared(call, after or returned.get("0"))
        path, order, first, plain, given, *_ = call
        done = Call(path, order, len(self.seen.sequence), first, after, plain, given, returned)
        self.seen.calls.setdefault(path, []).append(done)

    def _compared(self, call: _Open, first: Observed | None) -> None:
        """A module returned ``first``, alone or in a tuple: what may be compared is summed up.

        That is what projections made in it, and what it read where something else came of it.
        """
        for tensor, seen in self._bare[call.bare :]:
            if first is not None and seen.shape == first.shape and not seen.same(first):
                self._sample.sum(tensor, seen)
        del self._bare[call.bare :]
        if call.late is not None and call.input and first and first.shape != call.input.shape:
            self._sample.sum(call.late, call.input)

    def drop(self, depth: int) -> None:
        """Only ``depth`` calls are open still: the next one has raised and has nothing to show."""
        if len(self._open) > depth:
            call = self._open[depth]
            del self._open[depth:], self._bare[call.bare :]
            self.seen.unseen[call.path] = "its call raised, and the host went on without it"

    def _seen(self, values: Iterable[tuple[object, object]]) -> dict[str, Observed]:
        every = ((name, self._sample(tensor)) for name, tensor in _tensors(values))
        return {name: seen for name, seen in every if seen is not None}

    def _path(self, names: Sequence[str]) -> str:
        for around, *_ in reversed(self._open):
            prefix = f"{around}." if around else ""
            inside = [name for name in names if name.startswith(prefix)]
            if inside:
                return inside[0]
        return names[0]


def _tensors(values: Iterable[tuple[object, object]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Those among named values, and in tuples and lists among them."""
    for name, value in values:
        if isinstance(value, torch.Tensor):
            yield str(name), value
        elif isinstance(value, (tuple, list)):
            for i, inner in enumerate(value):
                if isinstance(inner, torch.Tensor):
                    yield f"{name}.{i}", inner


def _hook(module: torch.nn.Module, names: Sequence[str], to: _Recorder) -> Callable[[], object]:
    began = [0]
    kind = _Kind.TREE if module._modules else _Kind.LEAF

    def before(_module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        began[0] += to.enter(names, args, kwargs, kind) >= 0

    def after(_module: object, _args: object, out: object) -> None:
        # called, without a result, where the forward or a hook before ours raised as well
        if began[0] and to.here():
            began[0] -= 1
            to.leave(out, kind)

    handles = (
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, always_call=True),
    )

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def _listen(
    module: torch.nn.Module, names: Sequence[str], to: _Recorder, tap: Tap | None
) -> Callable[[], object]:
    """Report one module's calls; returns what takes it back.

    A module without hooks gets its forward wrapped, which costs a fifth of what two hooks do. One
    that has hooks gets two more, last, so that what the others change is seen.
    """
    if module._forward_hooks or module._forward_pre_hooks:
        return _hook(module, names, to)
    plain, kind = module.forward, _kind(module)
    enter, leave, path = to.enter, to.leave, names[0]

    def forward(*args: Any, **kwargs: Any) -> Any:
        depth = enter(names, args, kwargs, kind)
        if depth < 0:
            return plain(*args, **kwargs)
        within = tap.begin(path, module) if tap is not None else 0
        try:
            out = plain(*args, **kwargs)
            leave(out, kind)
            if tap is not None:
                tap.end(plain, args, kwargs, out)
        except BaseException:
            to.drop(depth)  # a host that catches this goes on with the stack as it was
            if tap is not None:
                tap.drop(within)
            raise
        return out

    return listen(module, forward)


@contextmanager
def _listening(
    paths: Paths, watched: Collection[str] | None, to: _Recorder, tap: Tap | None = None
) -> Iterator[None]:
    undo = []
    try:
        for module, names in paths.items():
            chosen = names if watched is None else [name for name in names if name in watched]
            if chosen:
                undo.append(_listen(module, chosen, to, tap))
        yield
    finally:
        for take_back in reversed(undo):
            take_back()


def trace(
    model: torch.nn.Module,
    forward: Forward,
    watched: Collection[str] | None = None,
    modes: Sequence[AbstractContextManager[object]] = (),
    *,
    whole: bool = False,
    paths: Paths | None = None,
) -> Trace:
    """Run ``forward`` once and write down the calls of the modules at ``watched``.

    ``None`` watches every module. ``modes`` are entered around the forward, in order, so that
    other taps see the same one. Afterwards the model is as it was. Of every tensor only rows are
    kept (see :class:`Observed`), or with ``whole`` a copy of all of it, in its own shape.
    ``paths`` are those of ``model``, where they are known.
    """
    paths = paths_of(model) if paths is None else paths
    recorder = _Recorder(whole=whole)
    taps = [mode for mode in modes if isinstance(mode, Tap)] if watched is None else []
    tap = taps[0] if taps else None  # another one listens for itself
    with ExitStack() as entered, torch.no_grad():
        if tap is not None:
            tap.join(paths)
        for mode in modes:
            entered.enter_context(mode)
        with _listening(paths, watched, recorder, tap):
            forward()
    return recorder.seen
