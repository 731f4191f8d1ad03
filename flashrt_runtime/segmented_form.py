"""The forms that begin with ``segmented``: every part of a step captured on its own, run in order.

Between parts the tensors are copied into the next part's static inputs where its form needs that
(a CUDA graph), and are passed on where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.segments import Segment, Segments

if TYPE_CHECKING:
    from flashrt_runtime.compile_form import CapturedGraph

Capture = Callable[[Callable[..., Any], dict[str, Any], str], "CapturedGraph"]


def _captured(
    part: Segment, given: list[Any], whole: Capture, name: str
) -> tuple[Callable[..., Any], CapturedGraph]:
    static = {read: value.detach().clone() for read, value in zip(part.reads, given, strict=True)}

    def step(**windows: Any) -> Any:
        return part.run(*[windows[read] for read in part.reads])

    graph = whole(step, static, name)

    def run(*inputs: Any) -> Any:
        for window, value in zip(static.values(), inputs, strict=True):
            window.copy_(value)
        return graph.run(**static)

    return run, graph


def segmented(
    step: Callable[..., Any], windows: Mapping[str, Any], name: str, whole: Capture
) -> CapturedGraph:
    """Capture every part of ``step``, a :class:`Segments`, with ``whole``.

    ``operators`` counts what one run of the whole step executes: a repeated part's, as often as it
    is repeated. Raises :class:`Refusal`: FORM for a step that declares no parts, BINDING for parts
    that do not fit together, and what ``whole`` raises, naming the part.
    """
    from flashrt_runtime.compile_form import CapturedGraph

    if not isinstance(step, Segments):
        what = f"a segmented form needs a step that declares its parts, not {type(step).__name__}"
        raise Refusal(Reason.FORM, what, subject=name, do="pass flashrt_runtime.segments.Segments")
    step.check(windows, name)
    runs: list[Callable[..., Any]] = []
    graphs: list[CapturedGraph] = []

    def capturing(part: Segment) -> Callable[..., Any]:
        def once(*given: Any) -> Any:
            if len(runs) == step.parts.index(part):
                run, graph = _captured(part, list(given), whole, f"{name}.{part.name}")
                runs.append(run)
                graphs.append(graph)
            return part.run(*given)

        return once

    step.through([capturing(part) for part in step.parts], windows)
    operators: dict[str, dict[str, int]] = {}
    for part, graph in zip(step.parts, graphs, strict=True):
        for seam, counts in graph.operators.items():
            into = operators.setdefault(seam, {})
            for operator, count in counts.items():
                into[operator] = into.get(operator, 0) + count * part.repeat
    parts = " ".join(f"{p.name}*{p.repeat}" if p.repeat > 1 else p.name for p in step.parts)

    def run(**given: Any) -> Any:
        return step.through(runs, given)

    return CapturedGraph(run, operators, {**graphs[0].options, "segments": parts})
