"""From a release to a running model: choose, bind, attach, capture; all of it or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt_runtime.contract import BindRequest, BoundSeam, Seam
from flashrt_runtime.ledger import RunLine, export, lines
from flashrt_runtime.reason import Because, Reason, Refusal
from flashrt_runtime.route import AcceptBand, Mismatch, Want, choose, first_mismatch

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.capture import Stage
    from flashrt_runtime.decode.loop import GenerateLoop
    from flashrt_runtime.decode.step import DecodeStep
    from flashrt_runtime.facts import Facts
    from flashrt_runtime.guard import Place
    from flashrt_runtime.handle import Handle
    from flashrt_runtime.release_reader import ReleaseContent
    from flashrt_runtime.route_record import Route
    from flashrt_runtime.swap import Swap

Binder = Callable[[Mapping[str, str], BindRequest], BoundSeam]


class Policy(Enum):
    """What to do where no route fits: refuse, or keep the host and say so in the ledger."""

    REFUSE = "refuse"
    HOST = "host"


class Active:
    """A model that runs a route, or the host where ``policy="host"`` kept it.

    ``route``, ``handle``, ``step`` and ``stage`` are ``None`` on a kept host. The model's own
    ``generate`` works beside :meth:`generate`; it is outside the recorded form, so its calls run
    the host's modules and are counted as dispatched.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        run: RunLine,
        *,
        route: Route | None = None,
        handle: Handle | None = None,
        step: DecodeStep | None = None,
        stage: Stage | None = None,
        loop: GenerateLoop | None = None,
    ) -> None:
        self.model = model
        self.run = run
        self.route = route
        self.handle = handle
        self.step = step
        self.stage = stage
        self.loop = loop

    def generate(self, input_ids: torch.Tensor, max_new_tokens: int = 256) -> torch.Tensor:
        """Greedy continuation ``[B, P] -> [B, P + n]``: through the recorded form, or by the host.

        Raises :class:`Refusal`: FORM when the route is not a decode route, and what
        :meth:`GenerateLoop.generate` raises.
        """
        if self.loop is not None:
            return self.loop.generate(input_ids, max_new_tokens)
        if self.handle is not None:
            raise Refusal(Reason.FORM, "the route is not a decode route", do="use .stage.replay")
        host: Any = self.model
        tokens: torch.Tensor = host.generate(
            input_ids, max_new_tokens=max_new_tokens, do_sample=False
        )
        return tokens

    def ledger_lines(self) -> list[dict[str, Any]]:
        """Ledger records of this run."""
        if self.handle is not None:
            return self.handle.ledger_lines()
        return lines(self.run, [], [])

    def export(self, path: str | Path) -> None:
        """Write the ledger as JSON lines."""
        export(self.ledger_lines(), Path(path))

    def detach(self) -> None:
        """Give the host back, the same module objects. Idempotent."""
        if self.handle is not None:
            self.handle.detach()


class Release:
    """A release that was read and checked whole."""

    def __init__(self, content: ReleaseContent) -> None:
        self.content = content

    @property
    def name(self) -> str:
        """The release's name."""
        return self.content.name

    @property
    def digest(self) -> str:
        """Digest of the manifest's bytes."""
        return self.content.digest

    @property
    def signed(self) -> bool:
        """Whether a trusted key signed it."""
        return self.content.signed

    @property
    def routes(self) -> tuple[Route, ...]:
        """Every route, live or not."""
        return self.content.routes

    def explain(self, facts: Facts) -> list[tuple[str, Mismatch | None]]:
        """Per route, its cell's digest and the first fact that does not match (or ``None``)."""
        return [(r.cell_digest, first_mismatch(r, facts)) for r in self.content.routes]

    def activate(
        self,
        model: torch.nn.Module,
        policy: Policy | str = Policy.REFUSE,
        scheme: str | None = None,
        accept_band: AcceptBand | str | None = None,
        *,
        form: tuple[str, ...] = ("compile",),
        phase: str = "decode",
        rows: int | None = None,
        context: int | None = None,
        binder: Binder | None = None,
    ) -> Active:
        """Bind the best route that fits this model and machine exactly, and capture its form.

        ``rows`` and ``context`` (positions) choose the shape where the release has several.
        All or nothing: on any failure the model is as it was. Raises :class:`Refusal`:
        TRAINING, UNKNOWN_CELL with the first fact that differs, REVOKED, AMBIGUOUS, BAND_LOW, the
        receipt's reason below ``certified_fast``, BINDING, UNCAPTURABLE, NEVER_CALLED. With
        ``policy="host"`` all of these but TRAINING keep the host, and the ledger says why.
        """
        chosen = _choice(Policy, policy, "policy")
        accepted = None if accept_band is None else _choice(AcceptBand, accept_band, "accept_band")
        if model.training:
            what = "the model is in training mode"
            raise Refusal(Reason.TRAINING, what, do="call model.eval() first")
        try:
            want = Want(phase, scheme, accepted, rows, context)
            return self._activate(model, chosen, want, form, binder)
        except Refusal as refusal:
            if chosen is Policy.REFUSE:
                raise
            because = refusal.because()
        return Active(model, self._run(chosen, "host", (because,)))

    def _run(self, policy: Policy, state: str, reasons: tuple[Because, ...] = ()) -> RunLine:
        return RunLine(self.content.digest, policy.value, state, reasons)

    def _activate(
        self,
        model: torch.nn.Module,
        policy: Policy,
        want: Want,
        form: tuple[str, ...],
        binder: Binder | None,
    ) -> Active:
        from flashrt_runtime.decode.loop import GenerateLoop
        from flashrt_runtime.decode.step import DecodeStep
        from flashrt_runtime.facts import model_facts
        from flashrt_runtime.swap import attach

        route = choose(self.content, model_facts(model, tuple(form)), want)
        handle = attach(model, _swaps(model, route, binder))
        try:
            shape = route.cell["shape"]
            step = DecodeStep(model, shape["batch"], shape["rows"], shape["context"])
            stage = _captured(step, route)
            handle.run = self._run(policy, route.state)
            handle.add_stage(stage)
            loop = GenerateLoop(step, stage, handle) if step.rows == 1 else None
        except BaseException:
            handle.detach()
            raise
        return Active(
            model, handle.run, route=route, handle=handle, step=step, stage=stage, loop=loop
        )


def _choice(kind: Any, given: Any, name: str) -> Any:
    try:
        return kind(given)
    except ValueError:
        known = ", ".join(repr(choice.value) for choice in kind)
        raise Refusal(Reason.CONFLICT, f"{name}={given!r} is none of {known}") from None


def _binder() -> Binder:
    from flashrt_runtime import impl_loader

    binder: Binder = impl_loader.bind
    return binder


def make_swap(
    seam: Seam,
    impl: Mapping[str, str],
    scales: Mapping[str, float],
    tensors: Mapping[str, torch.Tensor],
    rows: tuple[int, int],
    *,
    device: torch.device | str = "cpu",
    place: Place | None = None,
    binder: Binder | None = None,
) -> Swap:
    """Bind one seam from the host's own tensors and write the contract that guards it.

    ``impl`` is ``{"structure", "backend", "form"}``; ``tensors`` the host's state dict; ``rows``
    the inclusive band. The contract's dtype is that of the seam's weights. Raises
    :class:`Refusal`: BINDING for a missing weight, and what the loader and the impl refuse.
    """
    import torch

    from flashrt_runtime.guard import FormContract, Place, RowRule, width_of
    from flashrt_runtime.swap import Swap

    missing = [key for key in seam.weights.values() if key not in tensors]
    if missing or not seam.weights:
        what = f"the host has no weight {missing[0]!r}" if missing else "the seam has no weight"
        raise Refusal(Reason.BINDING, what, subject=seam.id)
    weights = {slot: tensors[key] for slot, key in seam.weights.items()}
    bound = (binder or _binder())(impl, BindRequest(seam, weights, scales, impl["form"]))
    contract = FormContract(
        device=torch.device(device),
        dtype=next(iter(weights.values())).dtype,
        width=width_of(seam),
        rows=rows,
        rule=RowRule.EXACT if rows[0] == rows[1] else RowRule.CAPACITY,
        place=place or Place.ANYWHERE,
    )
    return Swap(seam, bound, contract, impl["backend"], impl["form"])


def _swaps(model: torch.nn.Module, route: Route, binder: Binder | None) -> tuple[Swap, ...]:
    """The route's swaps, those of a chain linked: a chain that is not whole is refused."""
    from flashrt_runtime.chain_route import link
    from flashrt_runtime.guard import Place

    tensors = model.state_dict()
    device = next(model.parameters()).device
    swaps = [
        make_swap(
            one.seam, one.impl, one.scales, tensors, one.rows, device=device,
            place=Place.CAPTURED, binder=binder,
        )
        for one in route.seams
    ]  # fmt: skip
    return link(swaps, route.chains, {one.seam.id: one.scales for one in route.seams})


def _captured(step: DecodeStep, route: Route) -> Stage:
    """The step in the route's form, with every seam's operator in the graph exactly once."""
    from flashrt_runtime.capture import capture

    shape = route.cell["shape"]
    stage = capture(step, step.windows(), tuple(route.cell["form"]), name=shape["phase"])
    step.reset()
    for one in route.seams:
        times = stage.operators.get(one.seam.id, 0)
        if times != 1:
            what = f"its operator is in the captured graph {times} times, not once"
            raise Refusal(Reason.NEVER_CALLED, what, subject=one.seam.id)
    return stage
