"""The module that sits in the host's place: a guarded, counted call with the host retained.

A seat shares the host module's own dictionaries (parameters, buffers, children, hooks), so that
names, hooks and ``state_dict`` are the host's. Every seat has a type of its own whose
``__call__`` is a closure: Python looks calls up on the type, and a closure is the cheapest guard.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from operator import itemgetter
from threading import get_ident
from typing import Any

from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.nn.modules import module as module_globals

from flashrt_runtime import chain
from flashrt_runtime.contract import Seam
from flashrt_runtime.guard import FormContract, GuardFail, Judgement, Outcome, Place, fits, judge
from flashrt_runtime.reason import Because, Reason, Refusal
from flashrt_runtime.recording import recording

STREAK_LIMIT = 32
_INTERNAL = tuple(nn.Module().__dict__)
_GLOBAL_HOOKS = (
    module_globals._global_forward_hooks,
    module_globals._global_forward_pre_hooks,
    module_globals._global_backward_hooks,
    module_globals._global_backward_pre_hooks,
)


class _Missing:
    """Stands for an input that was not given by position; no dtype equals its dtype."""

    dtype = None


_MISSING: Any = _Missing()


class SeamState:
    """Counters and ownership of one seam, shared by the seats of its members."""

    __slots__ = (
        "calls", "contract", "dispatched", "fallbacks", "last_reason", "on_fail", "owner",
        "restore", "restored", "seam", "streak", "streak_calls",
    )  # fmt: skip

    def __init__(self, seam: Seam, contract: FormContract, on_fail: GuardFail) -> None:
        self.seam = seam
        self.contract = contract
        self.on_fail = on_fail
        self.calls = 0
        self.dispatched = 0
        self.fallbacks = 0
        self.last_reason: str | None = None
        self.owner: int | None = None
        self.restore: Callable[[], None] = _nothing
        self.restored = False
        self.streak = 0
        self.streak_calls = 0

    def claim(self) -> None:
        """Make this thread the seam's, or refuse. Raises :class:`Refusal` (THREAD)."""
        if self.owner is None:
            self.owner = get_ident()
        elif self.owner != get_ident():
            raise thread_refusal(self.seam.id)

    def fall(self, because: Because) -> None:
        """Count one fallback; warn once; after a streak restore the host for good."""
        self.fallbacks += 1
        self.last_reason = str(because)
        self.streak = self.streak + 1 if self.streak_calls == self.calls else 1
        self.streak_calls = self.calls
        if self.on_fail is GuardFail.RAISE:
            raise Refusal(
                because.reason,
                f"a call is outside the form's contract: {because.detail}",
                subject=self.seam.id,
                do="call the model as it was measured, or attach with on_guard_fail='host'",
            )
        if self.fallbacks == 1:
            warnings.warn(f"{self.seam.id}: the host runs instead: {because}", stacklevel=5)
        if self.streak >= STREAK_LIMIT:
            self.restored = True
            self.restore()

    def account(self, found: Judgement) -> None:
        """Count a call that the host runs: dispatched by design, or a fallback."""
        if found.because is None:
            return
        if found.outcome is Outcome.DISPATCH:
            self.dispatched += 1
            self.last_reason = str(found.because)
        else:
            self.fall(found.because)


class Turn:
    """Whose turn it is among a seam's members: all follow what its first member did."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.token: Any = None
        self.expected = 0
        self.running = False

    def lead(self, value: Any, running: bool) -> None:
        """The first member's call, with the tensor that the others must be given too."""
        if self.members > 1:
            self.token, self.expected, self.running = value, 1, running

    def follow(self, value: Any, index: int) -> bool:
        """Whether a later member's call continues the first member's."""
        if value is not self.token or index != self.expected:
            return False
        self.expected = index + 1
        if self.expected == self.members:
            self.token = None
        return True


def _nothing() -> None:
    return None


def thread_refusal(subject: str) -> Refusal:
    """The refusal of a second thread."""
    return Refusal(
        Reason.THREAD,
        "a second thread entered what belongs to the thread that called first",
        subject=subject,
        do="call the model from one thread, or give each thread its own model",
    )


def _refuse_migration(subject: str) -> Refusal:
    return Refusal(
        Reason.MIGRATION,
        "the device or dtype cannot change while implementations are attached",
        subject=subject,
        do="detach() first, move the model, then attach again",
    )


class Seat(nn.Module):
    """Base of every seat. Made by :func:`make_seat` only."""

    def __init__(
        self, host: nn.Module, body: nn.Module, state: SeamState, turn: Turn, index: int
    ) -> None:
        own = {key: host.__dict__[key] for key in _INTERNAL if key in host.__dict__}
        parameters = list(inspect.signature(host.forward).parameters)
        own |= {
            "seat_admit": _ignore,
            "seat_host": host,
            "seat_body": body,
            "seat_state": state,
            "seat_turn": turn,
            "seat_index": index,
            "seat_input": parameters[0] if parameters else "",
            "seat_contract": state.contract,
        }
        self.__dict__.update(own)

    def forward(self, *args: Any, **named: Any) -> Any:
        """What runs between the hooks that are registered on this module."""
        if is_dynamo_compiling():
            return _traced(self, args, named)
        return _eager(self, args, named, hooked=True)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["seat_host"], name)

    def extra_repr(self) -> str:
        """The seam and its contract."""
        return f"{self.seat_state.seam.id}: {self.seat_state.contract}"

    def state_dict(self, *args: Any, **named: Any) -> Any:
        """The host's, keys and bytes."""
        return self.seat_host.state_dict(*args, **named)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy or a pickle of an attached model holds the host's module."""
        return itemgetter(0), ((self.seat_host,),)

    def register_forward_hook(self, *args: Any, **named: Any) -> Any:
        """As ``nn.Module``'s; the fast path is left for as long as a hook is registered."""
        self.seat_admit(None)
        return super().register_forward_hook(*args, **named)

    def register_forward_pre_hook(self, *args: Any, **named: Any) -> Any:
        """As ``nn.Module``'s; the fast path is left for as long as a hook is registered."""
        self.seat_admit(None)
        return super().register_forward_pre_hook(*args, **named)

    def register_full_backward_hook(self, *args: Any, **named: Any) -> Any:
        """As ``nn.Module``'s; the fast path is left for as long as a hook is registered."""
        self.seat_admit(None)
        return super().register_full_backward_hook(*args, **named)

    def register_full_backward_pre_hook(self, *args: Any, **named: Any) -> Any:
        """As ``nn.Module``'s; the fast path is left for as long as a hook is registered."""
        self.seat_admit(None)
        return super().register_full_backward_pre_hook(*args, **named)

    def train(self, mode: bool = True) -> Any:
        """Refused for ``True`` (TRAINING)."""
        if mode:
            raise Refusal(
                Reason.TRAINING,
                "the model cannot train while implementations are attached",
                subject=self.seat_state.seam.id,
                do="detach() first",
            )
        self.seat_host.train(False)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        raise _refuse_migration(self.seat_state.seam.id)

    def load_state_dict(self, *args: Any, **named: Any) -> Any:
        """Refused (LOAD_STATE)."""
        raise Refusal(
            Reason.LOAD_STATE,
            "weights cannot be loaded while implementations are attached",
            subject=self.seat_state.seam.id,
            do="detach() first",
        )


def _input(seat: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return args[0] if args else named.get(seat.seat_input, _MISSING)


def _run(seat: Any, body: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    # A body names its input as it likes: it is given by position however the host is called.
    if args:
        return body(*args, **named)
    rest = {key: value for key, value in named.items() if key != seat.seat_input}
    return body(named[seat.seat_input], **rest)


def _traced(seat: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The call as a compiler traces it: decided once per graph, counted by the graph's operator."""
    value = _input(seat, args, named)
    turn, wire = seat.seat_turn, seat.seat_wire
    if wire is not None:
        run = chain.traced(wire, seat.seat_part, value, fits(seat.seat_contract, value))
    elif seat.seat_index == 0:
        run = fits(seat.seat_contract, value)
        turn.lead(value, run)
    else:
        run = turn.follow(value, seat.seat_index) and turn.running
    if not run:
        return seat.seat_host(*args, **named)
    out = _run(seat, seat.seat_body, args, named)
    if wire is not None and seat.seat_part == chain.EMITS:
        wire.send(out)
    return out


def _host(seat: Any, args: tuple[Any, ...], named: dict[str, Any], hooked: bool) -> Any:
    # The hooks' dictionaries are shared, so a hooked seat has run the host's hooks already.
    if hooked:
        return seat.seat_host.forward(*args, **named)
    return seat.seat_host(*args, **named)


def _eager(seat: Any, args: tuple[Any, ...], named: dict[str, Any], hooked: bool) -> Any:
    """Every eager call that the fast path did not take."""
    if seat.seat_wire is None:
        return _single(seat, args, named, hooked)
    seat.seat_state.claim()
    return chain.eager(
        seat.seat_state, seat.seat_wire, seat.seat_part, _input(seat, args, named),
        run=lambda: _run(seat, seat.seat_body.forward, args, named),
        host=lambda: _host(seat, args, named, hooked),
    )  # fmt: skip


def _single(seat: Any, args: tuple[Any, ...], named: dict[str, Any], hooked: bool) -> Any:
    state: SeamState = seat.seat_state
    turn: Turn = seat.seat_turn
    state.claim()
    if state.restored:
        return _host(seat, args, named, hooked)
    value = _input(seat, args, named)
    if seat.seat_index > 0:
        if turn.follow(value, seat.seat_index):
            body = seat.seat_body.forward
            return (
                _run(seat, body, args, named) if turn.running else _host(seat, args, named, hooked)
            )
        detail = "a member was not called in turn with the tensor that the first member read"
        state.fall(Because(Reason.SHARED_INPUT, detail))
        return _host(seat, args, named, hooked)
    found = judge(state.contract, value)
    turn.lead(value, found.outcome is Outcome.RUN)
    if found.outcome is not Outcome.RUN:
        state.account(found)
        return _host(seat, args, named, hooked)
    state.calls += 1
    if not hooked:
        seat.seat_admit(value.shape)
    return _run(seat, seat.seat_body.forward, args, named)


def _slow(seat: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    hooks = seat._forward_hooks or seat._forward_pre_hooks
    backward = seat._backward_hooks or seat._backward_pre_hooks
    if hooks or backward or any(_GLOBAL_HOOKS):
        return nn.Module.__call__(seat, *args, **named)
    if is_dynamo_compiling() or recording():
        return _traced(seat, args, named)
    return _eager(seat, args, named, hooked=False)


def _full_call(seat: Any, *args: Any, **named: Any) -> Any:
    return _slow(seat, args, named)


def _fast_call(body: nn.Module, state: SeamState) -> tuple[Any, Any]:
    """``__call__`` for a seam of one member, and the setter of the shape that it admits.

    An admitted shape was judged in full once, when no hook was registered on the seat; from then
    on equality with it is the whole check. Registering a hook withdraws it.
    """
    run = body.forward
    contract = state.contract
    dtype = contract.dtype
    cpu = contract.device.type == "cpu"
    index = contract.device.index
    global_hooks, global_pre, global_backward, global_backward_pre = _GLOBAL_HOOKS
    admitted: Any = None

    def admit(shape: Any) -> None:
        nonlocal admitted
        admitted = shape

    def call(self: Any, x: Any = _MISSING, /, *rest: Any, **named: Any) -> Any:
        try:
            admit_call = (
                x.dtype is dtype
                and not is_dynamo_compiling()
                and x.shape == admitted
                and (x.is_cpu if cpu else x.is_cuda and index in (None, x.get_device()))
                and state.owner == get_ident()
                and not (
                    rest or named
                    or global_hooks or global_pre or global_backward or global_backward_pre
                )
            )  # fmt: skip
        except AttributeError:
            admit_call = False
        if admit_call:
            state.calls += 1
            return run(x)
        return _slow(self, rest if x is _MISSING else (x, *rest), named)

    return call, admit


def make_seat(
    host: nn.Module,
    body: nn.Module,
    state: SeamState,
    turn: Turn,
    index: int,
    *,
    wire: chain.Wire | None = None,
    part: int = chain.EMITS,
) -> nn.Module:
    """A seat for ``host`` that runs ``body`` inside the contract. Mutates neither.

    ``wire`` is the chain's and ``part`` the reader's index in it, or ``chain.EMITS``.
    """
    call: Any = _full_call
    admit: Any = _ignore
    if turn.members == 1 and wire is None and state.contract.place is Place.ANYWHERE:
        call, admit = _fast_call(body, state)
    kind = type("Seat", (Seat,), {"__call__": call, "__module__": __name__})
    seat = kind(host, body, state, turn, index)
    seat.__dict__ |= {"seat_admit": admit, "seat_wire": wire, "seat_part": part}
    return seat


def _ignore(shape: Any) -> None:
    return None
