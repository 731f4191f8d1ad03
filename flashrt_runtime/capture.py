"""A whole step captured in the form that the deployment runs, replayed over static windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

FORMS: tuple[tuple[str, ...], ...] = (("compile",), ("eager",))


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


def capture(
    step: Callable[..., Any],
    windows: Mapping[str, torch.Tensor],
    form: tuple[str, ...] = ("compile",),
    name: str = "step",
) -> Stage:
    """Capture ``step(**windows)`` whole, in ``form``.

    The step is run twice with the windows' values, so state that it keeps must be reset by the
    caller. ``("compile",)`` is one fullgraph, static-shape, Inductor-compiled graph;
    ``("eager",)`` is for diagnosis. Raises :class:`Refusal`: FORM for an unknown form,
    UNCAPTURABLE for a graph break, a second graph or a failed compilation, naming the blocker.
    """
    import torch

    from flashrt_runtime.compile_form import compiled

    if tuple(form) not in FORMS:
        known = ", ".join(str(list(known)) for known in FORMS)
        what = f"the form {list(form)} is unknown; the forms are {known}"
        raise Refusal(Reason.FORM, what, subject=name)
    static = {key: value.detach().clone() for key, value in windows.items()}
    if tuple(form) == ("eager",):
        return Stage(name, ("eager",), static, step, seam_operators={}, options={})
    with torch.inference_mode(False), torch.no_grad():
        graph = compiled(step, static, name)
    return Stage(
        name,
        ("compile",),
        static,
        graph.run,
        seam_operators=graph.operators,
        options=graph.options,
    )
