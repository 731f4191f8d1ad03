"""A small deterministic executor, and short ways to write systems, workloads and customers."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from flashrt.lab.engine import Engine, Execution, check_end, check_invariants
from flashrt.lab.records import (
    CacheEvent,
    CancelAction,
    ComputeServiceConfig,
    ConsumeAction,
    CustomerInteraction,
    GenerationPolicy,
    InferenceRequest,
    KVCacheConfig,
    KVResidencySystemConfig,
    ModelExecutionConfig,
    Node,
    RequestArrival,
    RequestSchedulingConfig,
    StateTransferConfig,
    SubmitAction,
    SystemCeilings,
    Workload,
)

END = 0
ENDS = ("completed", "cancelled", "failed", "refused")


@dataclass(frozen=True)
class ToyState:
    token_ids: tuple[int, ...]

    @property
    def name(self) -> str:
        return "toy:" + ".".join(map(str, self.token_ids))


@dataclass(frozen=True)
class ToyStep:
    logits: tuple[float, ...]
    state: ToyState
    nodes: tuple[Node, ...]


@dataclass
class Toy:
    """A letter is a token (a = 1). A position costs 6 FLOPs and 4 bytes and keeps 10 bytes.

    The next token is the length of the prefix modulo 26, plus 1, or what ``says`` gives for it.
    """

    says: dict[str, str] = field(default_factory=dict)
    context: int = 32
    position_bytes: int = 10
    turn_end: int = END
    runs: list[tuple[str, str]] = field(default_factory=list)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(letter) - 96 for letter in text)

    def display(self, ids: tuple[int, ...]) -> str:
        return "".join(chr(96 + token) for token in ids)

    def run(self, input_ids: tuple[int, ...], state: ToyState | None) -> ToyStep:
        past = () if state is None else state.token_ids
        ids = past + input_ids
        self.runs.append((self.display(past), self.display(input_ids)))
        said = self.says.get(self.display(ids))
        logits = [0.0] * 27
        if said == "nan":
            logits[3] = float("nan")
        elif said == "end":
            logits[END] = 2.0
        else:
            logits[self.encode(said)[0] if said else len(ids) % 26 + 1] = 1.0
        count = len(input_ids)
        node = Node("toy", "Attention", None, ("x",), ("y",), 6 * count, 4 * count)
        return ToyStep(tuple(logits), ToyState(ids), (node,))


def system(
    *,
    active: int = 2,
    device: int = 10_000,
    host: int = 0,
    retention: str = "exact_prefix_lru",
    cached: bool = True,
    ceilings: SystemCeilings | None = None,
) -> KVResidencySystemConfig:
    """A position computes in 3 us (FLOPs bound); a transfer takes 2 us and 1/5 us a byte."""
    return KVResidencySystemConfig(
        RequestSchedulingConfig(active),
        KVCacheConfig(device, host, retention),
        StateTransferConfig(Fraction(5), Fraction(2)),
        ComputeServiceConfig(Fraction(2), Fraction(4)),
        ModelExecutionConfig("cached" if cached else "full_prefix"),
        ceilings or SystemCeilings(),
    )


def asks(text: str, budget: int = 2) -> InferenceRequest:
    return InferenceRequest(text, GenerationPolicy(budget))


def arrivals(*lines: tuple[str, int | Fraction, str, int]) -> Workload[RequestArrival]:
    """Lines of name, time, text, budget."""
    return Workload(
        tuple(RequestArrival(n, Fraction(at), asks(text, b)) for n, at, text, b in lines)
    )


def acts(*lines: tuple[object, ...]) -> CustomerInteraction:
    """Lines of time, "submit" | "cancel" | "consume", name, then text and budget or the count."""
    made: list[SubmitAction | ConsumeAction | CancelAction] = []
    for at, kind, name, *rest in lines:
        time = Fraction(at)
        if kind == "submit":
            made.append(SubmitAction(time, name, asks(*rest)))
        elif kind == "consume":
            made.append(ConsumeAction(time, name, *rest))
        else:
            made.append(CancelAction(time, name))
    return CustomerInteraction(tuple(made))


def run(config: KVResidencySystemConfig, toy: Toy | None = None, *inputs, **keywords) -> Execution:
    """Run with every invariant checked after every event, and at the end."""
    engine = Engine(
        config,
        toy or Toy(),
        *inputs,
        watch=lambda engine, event: check_invariants(engine),
        **keywords,
    )
    execution = engine.run()
    check_end(engine)
    return execution


def story(execution: Execution, request_id: str) -> list[str]:
    """Kinds of the events of one request, in order."""
    return [event.kind for event in execution.events if event.request_id == request_id]


def times(execution: Execution, kind: str) -> list[Fraction]:
    """When events of a kind happened."""
    return [event.time_us for event in execution.events if event.kind == kind]


def causal_chain(execution: Execution, request_id: str) -> list[tuple[CacheEvent, CacheEvent]]:
    """Each step of a request and the one before it, by first causes, from arrival to end."""
    events = execution.events
    last = next(e for e in reversed(events) if e.request_id == request_id and e.kind in ENDS)
    chain: list[tuple[CacheEvent, CacheEvent]] = []
    while last.causes:
        own = events[last.causes[0]]
        chain.append((own, last))
        last = own
    return chain[::-1]
