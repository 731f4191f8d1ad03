"""A recorded call cut into init, K times one step, and readout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flashrt_runtime.fixed_iteration.record import Record
from flashrt_runtime.fixed_iteration.steps import Steps
from flashrt_runtime.segments import Segment, Segments

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

Named = Callable[["Node"], str]


def _read(nodes: Iterable[Node]) -> list[Node]:
    """What nodes read that is none of them, in order, each once."""
    own = dict.fromkeys(nodes)
    found: dict[Node, None] = {}
    for node in own:
        for given in node.all_input_nodes:
            if given not in own and given.op != "get_attr":
                found[given] = None
    return list(found)


def _module(graph: GraphModule, nodes: list[Node], reads: list[Node], writes: list[Node]) -> Any:
    """A graph of ``nodes``: reads in, a tuple of writes out, held tensors shared."""
    from torch import nn
    from torch.fx import Graph, GraphModule

    made_graph, root = Graph(), nn.Module()
    made = {node: made_graph.placeholder(f"read_{index}") for index, node in enumerate(reads)}

    def mapped(node: Node) -> Node:
        if node not in made and node.op == "get_attr":
            target = str(node.target)
            if not hasattr(root, target):
                held = getattr(graph, target).detach()
                root.register_buffer(target, held, persistent=False)
            made[node] = made_graph.get_attr(target)
        return made[node]

    for node in nodes:
        made[node] = made_graph.node_copy(node, mapped)
    made_graph.output(tuple(mapped(node) for node in writes))
    made_graph.eliminate_dead_code()
    return GraphModule(root, made_graph)


def cut(record: Record, name: str) -> tuple[Segments, tuple[str, ...]]:
    """The canonical schedule of a recorded loop, and the windows that the value it refines
    starts from. A part without work is left out.

    Raises :class:`Refusal` (UNCAPTURABLE) when the steps are not one step: another number of
    operations, other operations, arguments or literals, a value of an earlier step.
    """
    steps = Steps(record, name)
    nodes = record.graph.graph.nodes
    windows = [node for node in nodes if node.op == "placeholder"]
    names = dict(zip(windows, record.windows, strict=True))
    output = next(node for node in nodes if node.op == "output")
    outputs: list[Node] = list(output.args[0])
    init, template, readout = steps.parts[0], steps.template, steps.parts[-1]
    after = [*_read(readout), *outputs]
    carried = sorted(set(steps.carried) | {i for i in map(steps.final, after) if i is not None})

    def named(node: Node) -> str:
        """The name of a value in the state that the parts share."""
        number = steps.final(node)
        if number is not None:
            return f"carried_{number}"
        return names.setdefault(node, f"value_{len(names)}")

    def named_in_step(node: Node) -> str:
        part, index = steps.place.get(node, (0, -1))
        return named(node) if part == 0 else f"carried_{index}"

    reads = _read(template)
    wanted = dict.fromkeys([*reads, *after, *steps.carried.values()])
    parts = (
        _part(record, "init", init, _of(init, wanted), named),
        _step(record, steps, carried, named_in_step, named),
        _part(record, "readout", readout, _of(readout, outputs), named),
    )
    present = tuple(part for part in parts if part is not None)
    made = Segments(present, tuple(named(node) for node in outputs), record.finish)
    refined = {i for i in map(steps.final, after) if i is not None}
    starts = _before(node for i, node in steps.carried.items() if i in refined)
    return made, tuple(names[node] for node in windows if node in starts)


def _before(nodes: Iterable[Node]) -> set[Node]:
    """The nodes and all that they were made from."""
    found: set[Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _of(nodes: list[Node], wanted: Iterable[Node]) -> list[Node]:
    own = set(nodes)
    return [node for node in dict.fromkeys(wanted) if node in own]


def _part(
    record: Record, name: str, nodes: list[Node], writes: list[Node], named: Named
) -> Segment | None:
    if not nodes or not writes:
        return None
    reads = _read(nodes)
    module = _module(record.graph, nodes, reads, writes)
    return Segment(name, module, tuple(map(named, reads)), tuple(map(named, writes)))


def _step(record: Record, steps: Steps, carried: list[int], inside: Named, named: Named) -> Segment:
    template = steps.template
    reads = _read(template)
    module = _module(record.graph, template, reads, [template[index] for index in carried])
    return Segment(
        "step",
        module,
        tuple(map(inside, reads)),
        tuple(f"carried_{index}" for index in carried),
        repeat=steps.count,
        starts={f"carried_{i}": named(node) for i, node in steps.carried.items()},
    )
