"""The form ``["compile"]``: one Dynamo graph, static shapes, Inductor's defaults."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.compile_fx import compile_fx

from flashrt_runtime.blocker import uncapturable
from flashrt_runtime.operators import seam_operators
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from torch.fx import GraphModule

OPTIONS = {"backend": "inductor", "fullgraph": "true", "dynamic": "false", "mode": "default"}


@dataclass(frozen=True)
class CapturedGraph:
    """A captured step, its graph's operators by seam, and the options it was captured with."""

    run: Callable[..., Any]
    operators: Mapping[str, Mapping[str, int]]
    options: Mapping[str, str]


class _Recorder:
    """The compiler backend: Inductor, exactly once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.graphs = 0
        self.operators: dict[str, dict[str, int]] = {}

    def __call__(self, graph: GraphModule, inputs: Any) -> Any:
        self.graphs += 1
        if self.graphs > 1:
            what = "a second graph was needed: what the first one depends on has changed"
            raise Refusal(Reason.UNCAPTURABLE, what, subject=self.name)
        self.operators = seam_operators(graph)
        return compile_fx(graph, inputs)


def own_code(step: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls ``step`` and whose code object no other capture shares.

    Dynamo keeps graphs and their guards by code object: two captures of one class would check
    each other's guards on every replay and share one recompile limit.
    """

    def captured(**windows: Any) -> Any:
        return step(**windows)

    code = captured.__code__.replace(co_name=f"captured_{id(step):x}")
    return types.FunctionType(
        code, captured.__globals__, code.co_name, captured.__defaults__, captured.__closure__
    )


def compiled(step: Callable[..., Any], windows: Mapping[str, Any], name: str) -> CapturedGraph:
    """Compile ``step(**windows)`` into one graph and prove that a second call reuses it.

    Raises :class:`Refusal` (UNCAPTURABLE), naming the blocker.
    """
    recorder = _Recorder(name)
    call = torch.compile(own_code(step), backend=recorder, fullgraph=True, dynamic=False)
    try:
        call(**windows)
        call(**windows)
    except Exception as error:
        raise uncapturable(error, name) from error
    if recorder.graphs != 1:
        what = "the step holds no tensor operation to capture"
        raise Refusal(Reason.UNCAPTURABLE, what, subject=name)

    def run(**given: Any) -> Any:
        try:
            return call(**given)
        except TorchDynamoException as error:
            raise uncapturable(error, name) from error

    return CapturedGraph(run, recorder.operators, OPTIONS)
