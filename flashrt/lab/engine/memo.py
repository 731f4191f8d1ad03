"""An executor that computes each thing once: content names decide what is the same."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from flashrt.lab.engine.executor import Executor, State, Step
from flashrt.lab.records import Node


@dataclass(frozen=True, slots=True)
class NamedState:
    """A state by name and ids, without keys and values."""

    name: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KnownStep:
    """A step whose state is only named."""

    logits: tuple[float, ...]
    state: NamedState
    nodes: tuple[Node, ...]


class MemoExecutor:
    """Remembers steps by the name of the state before and the ids that were run.

    At most ``steps`` results and ``states`` payloads are held, the least recently used dropped
    first, so memory does not grow with the workload. A payload that was dropped and is needed is
    computed again from its ids: equal bits, since the inner executor is exact.
    """

    def __init__(self, inner: Executor, *, steps: int = 4096, states: int = 256) -> None:
        self.inner = inner
        self.ran = 0
        self._most_steps, self._most_states = steps, states
        self._steps: OrderedDict[tuple[str, tuple[int, ...]], KnownStep] = OrderedDict()
        self._states: OrderedDict[str, State] = OrderedDict()
        self._nodes: dict[tuple[int, int], tuple[Node, ...]] = {}
        self._prompts: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    @property
    def held(self) -> tuple[int, int]:
        """How many steps and how many payloads are held."""
        return len(self._steps), len(self._states)

    @property
    def context(self) -> int:
        """Positions that the model has."""
        return self.inner.context

    @property
    def position_bytes(self) -> int:
        """Bytes of keys and values of one position."""
        return self.inner.position_bytes

    @property
    def turn_end(self) -> int:
        """The id that ends a turn."""
        return self.inner.turn_end

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of the framed prompt."""
        ids = self._prompts.get(text)
        if ids is None:
            ids = self._prompts[text] = self.inner.encode(text)
            _trim(self._prompts, self._most_steps)
        return ids

    def display(self, ids: tuple[int, ...]) -> str:
        """What published ids read as."""
        return self.inner.display(ids)

    def run(self, input_ids: tuple[int, ...], state: State | None) -> KnownStep:
        """The remembered step, or the inner executor's, remembered."""
        key = ("" if state is None else state.name, input_ids)
        known = self._steps.get(key)
        if known is not None:
            self._steps.move_to_end(key)
            return known
        self.ran += 1
        step = self.inner.run(input_ids, None if state is None else self._payload(state))
        self._hold(step.state)
        past = 0 if state is None else len(state.token_ids)
        nodes = self._nodes.setdefault((past, len(input_ids)), step.nodes)
        known = KnownStep(
            tuple(step.logits),
            NamedState(step.state.name, step.state.token_ids),
            nodes if nodes == step.nodes else step.nodes,
        )
        self._steps[key] = known
        _trim(self._steps, self._most_steps)
        return known

    def _payload(self, state: State) -> State:
        held = self._states.get(state.name)
        if held is None:
            step: Step = self.inner.run(state.token_ids, None)
            held = step.state
            self._hold(held)
        else:
            self._states.move_to_end(state.name)
        return held

    def _hold(self, state: State) -> None:
        self._states[state.name] = state
        self._states.move_to_end(state.name)
        _trim(self._states, self._most_states)


Key = TypeVar("Key")
Value = TypeVar("Value")


def _trim(held: OrderedDict[Key, Value], most: int) -> None:
    while len(held) > most:
        held.popitem(last=False)
