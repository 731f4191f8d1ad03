"""Which seams a captured graph runs: its ``flashrt::`` operator nodes, by seam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

NAMESPACE = "flashrt::"


def _qualified(target: Any) -> str:
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return str(schema.name)
    return str(getattr(target, "_qualified_op_name", ""))


def _seam_of(node: torch.fx.Node) -> str:
    """The seam's id: the last string among the node's arguments, by contract its last one."""
    strings = [arg for arg in (*node.args, *node.kwargs.values()) if isinstance(arg, str)]
    return strings[-1] if strings else ""


def _writes(node: torch.fx.Node) -> bool:
    """Whether the node writes into one of its arguments (``index_copy_``, ``x[i] = y``, ``out=``).

    Nothing need use the result of such a node: a key-value cache is written and then read by
    another name.
    """
    if node.op not in ("call_method", "call_function"):
        return False
    if node.kwargs.get("out") is not None:
        return True
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return bool(schema.is_mutable)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in ("setitem", "iadd", "isub", "imul", "itruediv", "copy_")


def _live(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Nodes that an output or a side effect depends on: dead ones are never executed."""
    live: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        effect = node.op == "output" or node.is_impure() or _writes(node)
        if effect or any(user in live for user in node.users):
            live.add(node)
    return live


def seam_operators(module: torch.fx.GraphModule) -> dict[str, dict[str, int]]:
    """Per seam id, how many live nodes of each ``flashrt::`` operator the graph holds.

    Sub-graphs count too. A node of ours without a seam's id is counted under ``""``.
    """
    import torch

    found: dict[str, dict[str, int]] = {}
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        live = _live(part.graph)
        for node in part.graph.nodes:
            if node not in live or node.op != "call_function":
                continue
            name = _qualified(node.target)
            if name.startswith(NAMESPACE):
                counts = found.setdefault(_seam_of(node), {})
                counts[name] = counts.get(name, 0) + 1
    return found


def operator_counter() -> Any:
    """A context that counts, in ``found``, the ``flashrt::`` operators dispatched inside it, by
    seam: the path evidence of a form that holds no graph to read."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: dict[str, dict[str, int]] = {}

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = kwargs or {}
            name = _qualified(func)
            if name.startswith(NAMESPACE):
                strings = [given for given in (*args, *named.values()) if isinstance(given, str)]
                counts = self.found.setdefault(strings[-1] if strings else "", {})
                counts[name] = counts.get(name, 0) + 1
            return func(*args, **named)

    return Counter()
