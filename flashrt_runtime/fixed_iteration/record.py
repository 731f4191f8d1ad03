"""One real call of a host as a graph of operators, without its Python's control flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashrt_runtime.fixed_iteration.control import Decision, decisions_of, loop_of
from flashrt_runtime.fixed_iteration.writes import without_writes
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.recording import recorded

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

PART = "flashrt_part"


@dataclass(frozen=True)
class Record:
    """``graph`` takes the windows in order and writes into none; each of its nodes says in
    ``meta[PART]`` which part it belongs to: 0 is init, 1 … ``steps`` the steps, then the readout.
    ``finish`` makes the host's output of the graph's output tensors."""

    graph: GraphModule
    windows: tuple[str, ...]
    steps: int
    finish: Callable[[list[torch.Tensor]], Any]


class DependsOnData(Exception):
    """The host's Python asked for a value that depends on its input."""


def _mark(value: int) -> None:
    """Write ``value`` at every node that was recorded since the last mark."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    mode: Any = get_proxy_mode()
    if mode is None:
        return
    for node in reversed(mode.tracer.graph.nodes):
        if PART in node.meta:
            return
        node.meta[PART] = value


def _traced(run: Callable[..., Any], given: list[Any]) -> tuple[Any, list[Decision]]:
    """The call's graph, every node marked with the decision that came after it (or none)."""
    from torch.fx.experimental.proxy_tensor import make_fx

    decisions = decisions_of(_mark)

    def watched(*tensors: Any) -> Any:
        with decisions:
            return run(*tensors)

    with recorded():
        return make_fx(watched)(*given), decisions.found


def _parts(graph: Any, loop: list[Decision]) -> dict[Node, int]:
    """Each node's part, by the decisions that came before it."""
    found = {}
    for node in graph.graph.nodes:
        following = node.meta.get(PART)
        found[node] = sum(following is None or one.index < following for one in loop)
    return found


def _refuse_impure(graph: Any, weights: set[int], name: str) -> None:
    """What a graph must not hold: own noise, shapes that depend on values, writes, other inputs."""
    import torch

    shapes = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
    fed: set[Node] = set()  # what depends on a window
    for node in graph.graph.nodes:
        if node.op == "placeholder" or any(given in fed for given in node.all_input_nodes):
            fed.add(node)
        tags = set(getattr(node.target, "tags", ()))
        if torch.Tag.nondeterministic_seeded in tags and not _undropped(node):
            what = f"the host draws its own noise ({node.target})"
            raise Refusal(Reason.UNCAPTURABLE, what, subject=name, do="give the noise explicitly")
        if tags & shapes and any(one in fed for one in _deciding(node)):
            what = f"{node.target} has a shape that depends on the input's values"
            raise Refusal(Reason.UNCAPTURABLE, what, subject=name)
        if node.op == "get_attr" and _foreign(graph, node, weights):
            value = getattr(graph, node.target)
            what = f"the host reads a {value.dtype} {list(value.shape)} tensor that is no argument"
            raise Refusal(
                Reason.UNCAPTURABLE, what, subject=name, do="pass it to the call as an argument"
            )


def _deciding(node: Node) -> list[Node]:
    """The inputs whose values decide the shape of the output: of an index, its masks."""
    import torch

    if node.target is not torch.ops.aten.index.Tensor:
        return node.all_input_nodes
    given: Any = node.args[1]
    masks = (torch.bool, torch.uint8)
    return [one for one in given if one is not None and one.meta["tensor_meta"].dtype in masks]


def _undropped(node: Node) -> bool:
    """Whether the operator is random only by its dropout, which is 0 here (attention's)."""
    target: Any = node.target
    arguments = target._schema.arguments
    for index, argument in enumerate(arguments):
        if argument.name == "dropout_p":
            positional = node.args[index] if index < len(node.args) else argument.default_value
            return bool(node.kwargs.get("dropout_p", positional) == 0.0)
    return False


def _foreign(graph: Any, node: Node, weights: set[int]) -> bool:
    """Whether a held tensor is neither the host's own nor made within the call from a literal."""
    import torch

    made = (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default)
    if all(user.target in made for user in node.users):
        return False
    value = getattr(graph, str(node.target))
    return value.untyped_storage().data_ptr() not in weights


def held_by(model: torch.nn.Module) -> set[int]:
    """Addresses of every storage that a module of the host holds: parameters, buffers and plain
    attributes, alone or in a list, tuple or dict."""
    import torch

    found: set[int] = set()

    def walk(value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            found.add(value.untyped_storage().data_ptr())
        elif depth and isinstance(value, dict):
            for one in list(value.values()):
                walk(one, depth - 1)
        elif depth and isinstance(value, (list, tuple)):
            for one in value:
                walk(one, depth - 1)

    for module in model.modules():
        walk(vars(module), 2)
    return found


def record(
    run: Callable[..., Any],
    windows: Mapping[str, torch.Tensor],
    model: torch.nn.Module,
    name: str,
) -> Record | None:
    """Record ``run(**windows)`` once; ``None`` when no tensor-controlled while ran in it.

    Raises :class:`DependsOnData` when the host's Python asked for a value that depends on a
    window, :class:`Refusal` (UNCAPTURABLE) for a loop whose call draws noise, reads a tensor that
    is no argument, writes into its inputs or has shapes that depend on values.
    """
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    names = tuple(windows)
    trees: list[Any] = []

    def flat(*tensors: Any) -> Any:
        leaves, tree = tree_flatten(run(**dict(zip(names, tensors, strict=True))))
        trees.append((tree, [x if not isinstance(x, torch.Tensor) else None for x in leaves]))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    given = [value.detach().clone() for value in windows.values()]
    with torch.no_grad():
        try:
            graph, found = _traced(flat, given)
        except RuntimeError as error:
            raise DependsOnData(str(error).partition("\n")[0]) from error
        loop = loop_of(found)
        if loop is None:
            return None
        _refuse_impure(graph, held_by(model), name)
    part_of = _parts(graph, loop)
    without_writes(graph, part_of, name)
    for node in graph.graph.nodes:
        node.meta[PART] = part_of[node]
    tree, others = trees[-1]

    def finish(tensors: list[torch.Tensor]) -> Any:
        rest = iter(tensors)
        return tree_unflatten([next(rest) if one is None else one for one in others], tree)

    return Record(graph, names, len(loop) - 1, finish)
