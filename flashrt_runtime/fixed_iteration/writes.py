"""In-place writes of a recorded call, made explicit where they reach from one part into another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def _source(node: Node) -> Node | None:
    """What a node is a view of; ``None`` for a node with memory of its own."""
    import operator

    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return node.all_input_nodes[0] if node.target is operator.getitem else None
    if schema.is_mutable or not any(given.alias_info for given in schema.returns):
        return None
    return node.all_input_nodes[0]


def _written(node: Node) -> Node | None:
    """What a node writes into: the first argument of ``add_``, ``copy_`` and their like."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable:
        return None
    from torch.fx import Node

    first = node.args[0] if node.args else None
    return first if isinstance(first, Node) else node


def _root(node: Node) -> Node:
    source: Node | None = node
    while source is not None:
        node = source
        source = _written(node) if _written(node) not in (None, node) else _source(node)
    return node


def _functional(node: Node, name: str) -> Any:
    """The operator that returns what ``node`` writes. Raises :class:`Refusal` (UNCAPTURABLE)."""
    import torch

    packet, _, overload = str(node.target).removeprefix("aten.").partition(".")
    made = getattr(getattr(torch.ops.aten, packet.removesuffix("_"), None), overload, None)
    if made is None or not packet.endswith("_"):
        what = f"{node.target} writes into a value of another part of the loop"
        raise Refusal(Reason.UNCAPTURABLE, what, subject=name)
    return made


def _stale_view(node: Node, target: Node, root: Node, order: dict[Node, int]) -> Node | None:
    """A view of what ``node`` writes, made before it and read after it."""
    for other, place in order.items():
        if other is target or _source(other) is None or place > order[node]:
            continue
        if _root(other) is root and any(order[user] > order[node] for user in other.users):
            return other
    return None


def without_writes(graph: GraphModule, part_of: dict[Node, int], name: str) -> None:
    """Replace writes that reach out of their own part by new values.

    A write into memory that its own part made stays: the part is the same function. A write into
    a window becomes a new value, so the schedule leaves its inputs as they were. ``part_of`` is
    kept up. Raises :class:`Refusal` (UNCAPTURABLE) for a write into what the host holds, into a
    view, and for a view that is read after its base was written.
    """
    nodes = list(graph.graph.nodes)
    order = {node: index for index, node in enumerate(nodes)}
    for node in nodes:
        target = _written(node)
        if target is None:
            continue
        root = _root(target)
        if root.op == "get_attr":
            what = f"{node.target} writes into a tensor that the call did not make"
            raise Refusal(Reason.UNCAPTURABLE, what, subject=name)
        if root.op == "call_function" and part_of[root] == part_of[node]:
            continue
        if _source(target) is not None:
            what = f"{node.target} writes into a view of a value of another part of the loop"
            raise Refusal(Reason.UNCAPTURABLE, what, subject=name)
        if stale := _stale_view(node, target, root, order):
            what = f"{stale.name}, a view, is read after {node.target} wrote into its base"
            raise Refusal(Reason.UNCAPTURABLE, what, subject=name)
        made = _functional(node, name)
        node.target = made
        for user in list(target.users):
            if user is not node and order[user] > order[node]:
                user.replace_input_with(target, node)
    graph.recompile()
