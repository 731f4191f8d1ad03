"""One real forward, observed: which module was called when, with which tensors, what came out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from flashrt.host.discovery.sample import Observed, Sampler
from flashrt.host.discovery.torch_linear import of_torch
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

__all__ = ["Call", "Forward", "Observed", "Paths", "Trace", "paths_of", "trace"]

Forward = Callable[[], object]
_NONE: Mapping[str, Observed] = {}
_BARE = 8  # tensors that are kept until the module around them returns


class Call(NamedTuple):
    """One call of one module.

    ``order`` counts calls by when they began and ``end`` is the order of the first call after
    this one ended, so the calls that it made lie in between. ``input`` is the first tensor given,
    ``output`` the tensor returned. ``plain`` is whether the call had one positional tensor and
    nothing else; if not, ``given`` has its tensors by position (``"0"``), by keyword
    (``"hidden_states"``) and inside one tuple (``"position_embeddings.0"``). ``returned`` has the
    tensors of a tuple that was returned, by position.
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


Paths = dict["torch.nn.Module", list[str]]


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


class _Recorder:
    """Writes calls down; holds the stack of those that have begun and not ended."""

    def __init__(self, *, whole: bool) -> None:
        import torch

        self.seen = Trace()
        self._open: list[tuple[Any, ...]] = []
        self._sample = Sampler(whole=whole)
        self._tensor = torch.Tensor
        self._thread = get_ident()
        self._bare: list[tuple[torch.Tensor, Observed]] = []

    def here(self) -> bool:
        """Whether this is the thread that the forward was started in."""
        return get_ident() == self._thread

    def enter(
        self,
        names: Sequence[str],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        bare: bool = False,
    ) -> bool:
        """A call begins. False for one in another thread: what lies in what is not known then.

        A ``bare`` one reads and makes tensors of which a few rows are enough.
        """
        if not self.here():
            what = "another thread called it, so the order of its calls was not observed"
            self.seen.unseen.update(dict.fromkeys(names, what))
            return False
        path = names[0] if len(names) == 1 else self._path(names)
        first: Observed | None
        given: Mapping[str, Observed] = _NONE
        plain = len(args) == 1 and not kwargs and isinstance(args[0], self._tensor)
        if plain:
            first = self._sample(args[0], bare=bare)
            plain = first is not None
        else:
            given = self._tensors((*enumerate(args), *kwargs.items()))
            first = next(iter(given.values()), None)
        sequence = self.seen.sequence
        self._open.append((path, len(sequence), first, plain, given, len(self._bare)))
        sequence.append(path)
        return True

    def leave(self, out: Any, *, bare: bool = False) -> None:
        """The call that began last has returned."""
        path, order, first, plain, given, made = self._open.pop()
        after: Observed | None = None
        returned: Mapping[str, Observed] = _NONE
        if isinstance(out, self._tensor):
            after = self._sample(out, bare=bare)
        elif isinstance(out, tuple):
            returned = self._tensors(enumerate(out))
        if bare and after is not None:
            self._bare.append((out, after))
            del self._bare[made:-_BARE]  # no more are kept alive
        elif not bare:
            self._compared(after, made)
        end = len(self.seen.sequence)
        call = Call(path, order, end, first, after, plain, given, returned)
        calls = self.seen.calls
        if path in calls:
            calls[path].append(call)
        else:
            calls[path] = [call]

    def _compared(self, out: Observed | None, made: int) -> None:
        """A module returned ``out``: what was made in it and may be compared gets a sketch."""
        for tensor, seen in self._bare[made:]:
            if out is not None and seen.shape == out.shape and not seen.same(out):
                self._sample.sum(tensor, seen)
        del self._bare[made:]

    def drop(self) -> None:
        """The call that began last has raised, so it has nothing to show."""
        path, *_, made = self._open.pop()
        del self._bare[made:]
        self.seen.unseen[path] = "its call raised, and the host went on without it"

    def _tensors(self, values: Iterable[tuple[object, object]]) -> dict[str, Observed]:
        found: dict[str, Observed] = {}
        for name, value in values:
            if isinstance(value, self._tensor):
                seen = self._sample(value)
                if seen is not None:
                    found[str(name)] = seen
            elif isinstance(value, (tuple, list)):
                for i, inner in enumerate(value):
                    seen = self._sample(inner) if isinstance(inner, self._tensor) else None
                    if seen is not None:
                        found[f"{name}.{i}"] = seen
        return found

    def _path(self, names: Sequence[str]) -> str:
        for around, *_ in reversed(self._open):
            prefix = f"{around}." if around else ""
            inside = [name for name in names if name.startswith(prefix)]
            if inside:
                return inside[0]
        return names[0]


def _hook(module: torch.nn.Module, names: Sequence[str], to: _Recorder) -> Callable[[], None]:
    began = [0]

    def before(_module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        began[0] += to.enter(names, args, kwargs)

    def after(_module: object, _args: object, out: object) -> None:
        # called, without a result, where the forward or a hook before ours raised as well
        if began[0] and to.here():
            began[0] -= 1
            to.leave(out)

    handles = (
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, always_call=True),
    )

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def _listen(module: torch.nn.Module, names: Sequence[str], to: _Recorder) -> Callable[[], None]:
    """Report one module's calls; returns what takes it back.

    A module without hooks gets its forward wrapped, which costs a fifth of what two hooks do. One
    that has hooks gets two more, last, so that what the others change is seen.
    """
    if module._forward_hooks or module._forward_pre_hooks:
        return _hook(module, names, to)
    held = module.__dict__
    own = held.get("forward")
    plain = module.forward
    enter, leave, bare = to.enter, to.leave, of_torch(module)

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not enter(names, args, kwargs, bare=bare):
            return plain(*args, **kwargs)
        try:
            out = plain(*args, **kwargs)
        except BaseException:
            to.drop()  # a host that catches this goes on with the stack as it was
            raise
        leave(out, bare=bare)
        return out

    forward.__dict__["__wrapped__"] = plain  # its signature is still the host's
    held["forward"] = forward
    if own is None:
        return lambda: held.pop("forward") and None
    return lambda: held.update(forward=own)


@contextmanager
def _listening(
    model: torch.nn.Module, watched: Collection[str] | None, to: _Recorder
) -> Iterator[None]:
    undo = []
    try:
        for module, names in paths_of(model).items():
            chosen = names if watched is None else [name for name in names if name in watched]
            if chosen:
                undo.append(_listen(module, chosen, to))
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
) -> Trace:
    """Run ``forward`` once and write down the calls of the modules at ``watched``.

    ``None`` watches every module. ``modes`` are entered around the forward, in order, so that
    other taps see the same one. Afterwards the model is as it was. Of every tensor only rows are
    kept (see :class:`Observed`), or with ``whole`` a copy of all of it, in its own shape.
    """
    import torch

    recorder = _Recorder(whole=whole)
    with _listening(model, watched, recorder), ExitStack() as entered, torch.no_grad():
        for mode in modes:
            entered.enter_context(mode)
        forward()
    return recorder.seen
