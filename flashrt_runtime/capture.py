"""A whole step captured in the form that the deployment runs, replayed over static windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flashrt_runtime.form import DIAGNOSIS, Form, known_form
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.compile_form import CapturedGraph


class Stage:
    """A captured step. Made by :func:`capture`.

    ``windows`` are the step's static inputs by name: a replay copies what it is given into them
    and leaves the others as they were. ``seam_operators`` holds, per seam and operator, the live
    nodes of the captured graph; ``operators`` their sum per seam. Both are empty for the form
    ``("eager",)``, whose seams count their own calls.
    """

    def __init__(
        self,
        name: str,
        form: tuple[str, ...],
        windows: dict[str, torch.Tensor],
        run: Callable[..., Any],
        *,
        seam_operators: Mapping[str, Mapping[str, int]],
        options: Mapping[str, str],
    ) -> None:
        self.name = name
        self.form = form
        self.windows = windows
        self.seam_operators = {seam: dict(counts) for seam, counts in seam_operators.items()}
        self.operators = {seam: sum(c.values()) for seam, c in self.seam_operators.items()}
        self.options = dict(options)
        self.replays = 0
        self._run = run

    @property
    def graph_calls(self) -> dict[str, int]:
        """Per seam, how often one replay executes its operator."""
        return dict(self.operators)

    def _check(self, name: str, value: torch.Tensor) -> None:
        window = self.windows.get(name)
        if window is None:
            what = f"there is no window {name!r}; the windows are {sorted(self.windows)}"
            raise Refusal(Reason.FORM, what, subject=self.name)
        if value.shape != window.shape:
            what = f"window {name!r} is {tuple(window.shape)}, {tuple(value.shape)} given"
            raise Refusal(Reason.SHAPE, what, subject=self.name)
        if value.dtype != window.dtype:
            what = f"window {name!r} is {window.dtype}, {value.dtype} given"
            raise Refusal(Reason.DTYPE, what, subject=self.name)

    def replay(self, **inputs: torch.Tensor) -> Any:
        """Copy ``inputs`` into their windows and run the captured step once.

        Returns what the step returns. Raises :class:`Refusal` before anything runs for an input
        that is no window (FORM), of another shape (SHAPE) or dtype (DTYPE); UNCAPTURABLE when the
        replay would need another graph (something that the graph depends on has changed).
        """
        import torch

        for name, value in inputs.items():
            self._check(name, value)
        with torch.inference_mode(False), torch.no_grad():
            for name, value in inputs.items():
                self.windows[name].copy_(value)
            outputs = self._run(**self.windows)
        self.replays += 1
        return outputs


def _whole(
    step: Callable[..., Any], windows: dict[str, Any], name: str, form: Form
) -> CapturedGraph:
    """One whole graph of a step, in a form that is not segmented."""
    from flashrt_runtime.aot_form import packaged
    from flashrt_runtime.compile_form import CapturedGraph, compiled
    from flashrt_runtime.cudagraph_form import check_device, recorded_graph

    if form == ("cudagraph",):
        return recorded_graph(step, windows, name)
    if form == ("aot",):
        return packaged(step, windows, name)
    if form == ("compile",):
        return compiled(step, windows, name)
    check_device(windows, name)
    graph = compiled(step, windows, name)
    taped = recorded_graph(graph.run, windows, name)
    return CapturedGraph(taped.run, graph.operators, {**graph.options, **taped.options})


def capture(
    step: Callable[..., Any],
    windows: Mapping[str, torch.Tensor],
    form: tuple[str, ...] = ("compile",),
    name: str = "step",
) -> Stage:
    """Capture ``step(**windows)`` whole, in ``form``: one of ``flashrt_runtime.form.FORMS``.

    The step is run at least twice with the windows' values, so state that it keeps must be reset
    by the caller. ``("compile",)`` is one fullgraph, static-shape, Inductor-compiled graph;
    ``("aot",)`` the same graph as an AOTInductor package; ``("cudagraph",)`` what the step
    launches, recorded, and ``("compile", "cudagraph")`` what its compiled graph launches;
    ``("segmented", …)`` captures each part of a :class:`~flashrt_runtime.segments.Segments`;
    ``("eager",)`` is for diagnosis. No form becomes another one when it fails. Raises
    :class:`Refusal`: FORM for an unknown form, UNCAPTURABLE for whatever cannot be captured in
    it, naming the blocker.
    """
    import torch

    form = known_form(form, name)
    static = {key: value.detach().clone() for key, value in windows.items()}
    if form == DIAGNOSIS:
        return Stage(name, form, static, step, seam_operators={}, options={})
    with torch.inference_mode(False), torch.no_grad():
        graph = _captured(step, static, name, form)
    return Stage(
        name, form, static, graph.run, seam_operators=graph.operators, options=graph.options
    )


def _captured(
    step: Callable[..., Any], static: dict[str, Any], name: str, form: Form
) -> CapturedGraph:
    from flashrt_runtime.segmented_form import segmented

    if form[0] != "segmented":
        return _whole(step, static, name, form)

    def part(run: Callable[..., Any], windows: dict[str, Any], called: str) -> CapturedGraph:
        return _whole(run, windows, called, form[1:])

    return segmented(step, static, name, part)
