"""Whether the recorded steps of a loop are one step, and what that step carries to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flashrt_runtime.fixed_iteration.record import PART, Record
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from torch.fx import Node

Leaf = tuple[str, Any]
DO = "keep it a loop of the host and capture one of its steps"


def differs(what: str, name: str) -> Refusal:
    """The refusal of a loop that is no repetition."""
    return Refusal(Reason.UNCAPTURABLE, what, subject=name, do=DO)


def _equal(left: Leaf, right: Leaf) -> bool:
    """Whether two leaves are the same argument; held tensors by place, literals by value."""
    import torch

    if left[0] != right[0]:
        return False
    one, other = left[1], right[1]
    if left[0] != "held":
        return one is other if left[0] == "init" else type(one) is type(other) and one == other
    if one is other:
        return True
    form = (one.dtype, one.shape, one.stride(), one.device)
    if form != (other.dtype, other.shape, other.stride(), other.device):
        return False
    return one.data_ptr() == other.data_ptr() or (one.numel() == 1 and torch.equal(one, other))


class Steps:
    """The parts of a record. ``carried`` maps a number of a step's node to the value, made before
    the loop, that the first step reads where the others read that node of the step before."""

    def __init__(self, record: Record, name: str) -> None:
        self.graph = record.graph
        self.name = name
        self.parts: list[list[Node]] = [[] for _ in range(record.steps + 2)]
        for node in record.graph.graph.nodes:
            if node.op == "call_function":
                self.parts[node.meta[PART]].append(node)
        self.place = {n: (p, i) for p, nodes in enumerate(self.parts) for i, n in enumerate(nodes)}
        self.count = record.steps
        self.carried: dict[int, Node] = {}
        self._check()

    @property
    def template(self) -> list[Node]:
        """The step whose arguments tell what is carried: the second, or the only one."""
        return self.parts[min(2, self.count)]

    def _leaves(self, value: Any, number: int) -> Iterator[Leaf]:
        from torch.fx import Node

        if isinstance(value, Node):
            yield self._node(value, number)
        elif isinstance(value, (list, tuple)):
            yield ("length", len(value))
            for one in value:
                yield from self._leaves(one, number)
        elif isinstance(value, dict):
            yield ("keys", tuple(value))
            for one in value.values():
                yield from self._leaves(one, number)
        else:
            yield ("literal", value)

    def _node(self, node: Node, number: int) -> Leaf:
        if node.op == "get_attr":
            return ("held", getattr(self.graph, str(node.target)))
        part, index = self.place.get(node, (0, -1))
        if part == 0:
            return ("init", node)
        if part == number:
            return ("own", index)
        if part == number - 1:
            return ("before", index)
        raise differs(f"step {number} reads a value of step {part}", self.name)

    def _check(self) -> None:
        for number in range(2, self.count + 1):
            template = 1 if number == 2 else 2
            first, step = self.parts[template], self.parts[number]
            if len(step) != len(first):
                what = f"step {number} has {len(step)} operations, step {template} {len(first)}"
                raise differs(what, self.name)
            for left, right in zip(first, step, strict=True):
                if left.target is not right.target:
                    what = f"step {number} runs {right.target}, step {template} {left.target}"
                    raise differs(what, self.name)
                self._compare(left, right, template, number)

    def _compare(self, left: Node, right: Node, template: int, number: int) -> None:
        ours = list(self._leaves((left.args, left.kwargs), template))
        theirs = list(self._leaves((right.args, right.kwargs), number))
        if len(ours) == len(theirs) and all(
            self._starts(a, b) if template == 1 and b[0] == "before" else _equal(a, b)
            for a, b in zip(ours, theirs, strict=True)
        ):
            return
        what = f"{right.target} of step {number} has other arguments than in step {template}"
        raise differs(what, self.name)

    def _starts(self, first: Leaf, second: Leaf) -> bool:
        """The second step reads the first one's node: what the first reads there is its start."""
        if first[0] != "init":
            return False
        return self.carried.setdefault(second[1], first[1]) is first[1]

    def final(self, node: Node) -> int | None:
        """A node's number in the last step; ``None`` for one made before the loop or after it.

        Raises :class:`Refusal` (UNCAPTURABLE) for a node of an earlier step.
        """
        part, index = self.place.get(node, (0, -1))
        if part in (0, self.count + 1):
            return None
        if part != self.count:
            raise differs(f"the readout reads a value of step {part}", self.name)
        return index
