"""The evidence alone says what was held where: budgets and LRU order, recomputed from events."""

import random
from fractions import Fraction
from typing import get_args

from flashrt.lab.records import (
    EventKind,
    Placement,
    RequestArrival,
    ResourceGraph,
    ResourceLink,
    ResourceNode,
    SystemCeilings,
    Workload,
)
from tests.lab.engine.toy import Toy, acts, asks, run, system

GRAPH = ResourceGraph(
    (
        ResourceNode("device", 400, Fraction(3), Fraction(7)),
        ResourceNode("middle", 0, Fraction(1), Fraction(1)),
        ResourceNode("host", 400, Fraction(1), Fraction(1)),
    ),
    (
        ResourceLink("a", "host", "middle", Fraction(3, 2), Fraction(1)),
        ResourceLink("b", "middle", "device", Fraction(4), Fraction(0)),
        ResourceLink("c", "device", "host", Fraction(2), Fraction(5, 3)),
    ),
)
PLACED = Placement("device", "host", ("a", "b"), ("c",))


class Replay:
    """Bytes and states on both nodes, from events and nothing else."""

    def __init__(self, execution, texts, device, host):
        self.texts = texts
        self.events = execution.events
        self.budget = {"device": device, "host": host}
        self.reserved = {}
        self.kept = {"device": {}, "host": {}}  # state: bytes, least recently used first
        self.leaving = set()

    def used(self, place):
        held = sum(self.kept[place].values())
        return held + (sum(self.reserved.values()) if place == "device" else 0)

    def check(self):
        for event in self.events:
            getattr(self, event.kind, lambda event: None)(event)
            for place, budget in self.budget.items():
                assert 0 <= self.used(place) <= budget, event

    def admitted(self, event):
        self.reserved[event.request_id] = event.bytes

    def released(self, event):
        assert self.reserved.pop(event.request_id) == event.bytes

    def cache_hit(self, event):
        if event.state in self.kept[event.place]:  # a claimed one is cached no more
            self.kept[event.place][event.state] = self.kept[event.place].pop(event.state)

    def retained(self, event):
        self.kept["device"].pop(event.state, None)
        self.kept["device"][event.state] = event.bytes

    def claimed(self, event):
        del self.kept["device"][event.state]

    def evicted(self, event):
        self.oldest(event)
        assert self.kept[event.place].pop(event.state) == event.bytes

    def demoted(self, event):
        self.oldest(event)
        self.leaving.add(event.state)
        self.kept["host"][event.state] = event.bytes

    def oldest(self, event):
        """No other state was used less recently, but what the request in need can continue."""
        needs = self.events[event.causes[0]].request_id
        prompt = Toy().encode(self.texts[needs])
        moving = self.moving(event.event_id)
        resident = [s for s in self.kept[event.place] if s not in moving]
        while resident[0] != event.state:
            ids = tuple(map(int, resident.pop(0).removeprefix("toy:").split(".")))
            assert ids == prompt[: len(ids)]

    def moving(self, number):
        """States that a transfer has been asked for and that has not ended."""
        asked = {e.state: e for e in self.events[:number] if e.kind == "demoted"}
        ended = [e for e in self.events[:number] if e.kind == "transfer_completed"]
        going = {
            s
            for s, e in asked.items()
            if not any(
                x.state == s and x.event_id > e.event_id and x.request_id is None for x in ended
            )
        }
        for waiting in self.waiting(number):
            going.add(waiting)
        return going

    def waiting(self, number):
        for event in self.events[:number]:
            if event.kind == "cache_hit" and event.place == "host":
                later = [
                    e.kind
                    for e in self.events[event.event_id + 1 : number]
                    if e.request_id == event.request_id
                ]
                if not {"transfer_completed", "cancelled"} & set(later):
                    yield event.state

    def transfer_completed(self, event):
        if event.request_id is None:
            self.leaving.remove(event.state)
            del self.kept["device"][event.state]
            self.kept["host"][event.state] = self.kept["host"].pop(event.state)
        else:
            self.kept["host"][event.state] = self.kept["host"].pop(event.state)


def scenario(seed):
    rng = random.Random(seed)
    lines, actions = [], []
    for number in range(rng.randint(2, 9)):
        text = rng.choice(["a", "ab", "abab", "aabb", "bbbba", "babab", "abababab"])
        name, at = f"r{number}", Fraction(rng.randint(0, 300), rng.randint(1, 5))
        lines.append(RequestArrival(name, at, asks(text, rng.randint(1, 5))))
        if rng.random() < 0.2:
            actions += acts((at + rng.randint(-9, 30) if at > 9 else at, "cancel", name)).actions
        for _ in range(rng.randint(0, 2)):
            actions += acts((at + rng.randint(0, 90), "consume", name, rng.randint(0, 6))).actions
    says = {} if rng.random() < 0.8 else {rng.choice(["ababe", "aabbe"]): "nan", "abc": "end"}
    device, host = rng.choice([90, 130, 200]), rng.choice([0, 70, 140])
    config = system(
        active=rng.randint(1, 3),
        device=device,
        host=host,
        retention=rng.choice(["exact_prefix_lru"] * 3 + ["exact_final_lru"]),
        ceilings=SystemCeilings(publication_buffer_tokens=rng.choice([None, None, 3])),
    )
    placed = {"graph": GRAPH, "placement": PLACED} if rng.random() < 0.4 else {}
    customers = acts()
    customers = type(customers)(tuple(actions))
    execution = run(config, Toy(says=says), Workload(tuple(lines)), customers, **placed)
    return execution, {line.request_id: line.request.text for line in lines}, device, host


def test_budgets_and_lru_order_follow_from_the_events_and_every_kind_of_event_occurs():
    kinds = set()
    for seed in range(250):
        execution, *held = scenario(seed)
        Replay(execution, *held).check()
        kinds |= {event.kind for event in execution.events}
    assert kinds == set(get_args(EventKind))
