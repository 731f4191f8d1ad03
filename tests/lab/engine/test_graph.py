"""A resource graph and a placement in it, executed."""

from dataclasses import replace
from fractions import Fraction

import pytest

from flashrt.lab.records import Placement, ResourceGraph, ResourceLink, ResourceNode
from flashrt_runtime.reason import Reason, Refusal
from tests.lab.engine.toy import Toy, acts, arrivals, run, system, times

LINES = (("a", 0, "aaaa", 1), ("b", 100, "bbbb", 1), ("a2", 200, "aaaa", 1))


def node(name, memory=100, flops=2):
    return ResourceNode(name, memory, Fraction(flops), Fraction(4))


def link(name, source, target, rate=5, latency=2):
    return ResourceLink(name, source, target, Fraction(rate), Fraction(latency))


GRAPH = ResourceGraph(
    (node("gpu"), node("switch", 0), node("cpu", flops=1)),
    (
        link("up", "cpu", "switch"),
        link("in", "switch", "gpu", rate=1),
        link("out", "gpu", "cpu", rate=3, latency=0),
    ),
)
PLACED = Placement("gpu", "cpu", ("up", "in"), ("out",))


def test_one_node_and_two_equal_links_give_the_times_of_directions_that_do_not_share():
    config = system(device=60, host=60)
    graph = ResourceGraph(
        (node("gpu"), node("cpu")), (link("h", "cpu", "gpu"), link("d", "gpu", "cpu"))
    )
    placed = Placement("gpu", "cpu", ("h",), ("d",))
    execution = run(config, Toy(), arrivals(*LINES), None, graph, placement=placed)
    # A reverse link is capacity of its own; here the room is made first all the same.
    assert times(execution, "transfer_completed") == [108, 208, 216]
    assert {e.place for e in execution.events if e.kind == "transfer_started"} == {"h", "d"}


def test_a_path_of_links_streams_at_the_slowest_rate_after_every_startup():
    config = system(device=60, host=60)
    execution = run(config, Toy(), arrivals(*LINES), None, GRAPH, placement=PLACED)
    moved = [(e.place, e.time_us) for e in execution.events if e.kind == "transfer_completed"]
    assert moved == [("out", 110), ("out", 210), ("up+in", 210 + 2 + 2 + 30)]
    assert {e.place for e in execution.events if e.kind == "admitted"} == {"gpu"}
    assert execution.row("a2").transferred_positions == 3


def test_compute_runs_at_the_rate_of_the_placed_node():
    slow = replace(
        PLACED, device_node="cpu", host_node="gpu", to_device=("out",), to_host=("up", "in")
    )
    execution = run(system(device=60), Toy(), arrivals(LINES[0]), None, GRAPH, placement=slow)
    assert execution.ended_us == 4 * 6


def test_cancellation_in_transfer_over_the_graph_holds_bytes_until_it_ends():
    customers = acts((220, "cancel", "a2"))
    config = system(device=60, host=60)
    execution = run(config, Toy(), arrivals(*LINES), customers, GRAPH, placement=PLACED)
    assert times(execution, "cancelled") == [244]


@pytest.mark.parametrize(
    ("graph", "placement", "device", "what"),
    [
        (GRAPH, None, 60, "go together"),
        (None, PLACED, 60, "go together"),
        (GRAPH, replace(PLACED, device_node="tpu"), 60, "no node tpu"),
        (GRAPH, replace(PLACED, host_node="gpu"), 60, "the device's node too"),
        (GRAPH, replace(PLACED, to_host=("back",)), 60, "no link back"),
        (GRAPH, replace(PLACED, to_host=()), 60, "no path to cpu"),
        (GRAPH, replace(PLACED, to_device=("up",)), 60, "no path to gpu"),
        (GRAPH, replace(PLACED, to_device=("in", "up")), 60, "leaves switch, not cpu"),
        (GRAPH, PLACED, 101, "more than the 100 of node gpu"),
        (replace(GRAPH, nodes=(*GRAPH.nodes, node("gpu"))), PLACED, 60, "one name"),
        (replace(GRAPH, links=(*GRAPH.links, GRAPH.links[0])), PLACED, 60, "one name"),
    ],
)
def test_graph_and_placement_that_do_not_fit_are_refused(graph, placement, device, what):
    with pytest.raises(Refusal) as refused:
        run(system(device=device), Toy(), arrivals(*LINES), None, graph, placement=placement)
    assert refused.value.reason is Reason.CONFLICT
    assert what in str(refused.value)


def test_a_path_that_passes_one_link_twice_is_refused():
    loop = ResourceGraph(
        (node("gpu"), node("cpu")),
        (link("h", "cpu", "gpu"), link("d", "gpu", "cpu")),
    )
    placed = Placement("gpu", "cpu", ("h", "d", "h"), ("d",))
    with pytest.raises(Refusal, match="no path"):
        run(system(device=60), Toy(), arrivals(*LINES), None, loop, placement=placed)
