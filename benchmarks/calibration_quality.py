"""What calibration buys: parity on held-out text for 1, 8 and 64 frames and three percentiles.

Arms differ in their scales and in nothing else: one host, one set of 64 calibration frames (an arm
of fewer takes a stratified part of them), one held-out set. Every arm runs eagerly, every quantised
layer at once; nothing is timed. The *fit residual* is the same parity on frames that the scales
were made from: what a calibration that judges itself would report.

``python benchmarks/calibration_quality.py --write`` puts the table into docs/calibration.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.calibration.reduce import Reduction, effective_percentile, percentile, reduce
from flashrt.calibration.statistic import AMAX, Statistic

if TYPE_CHECKING:
    import torch

    from flashrt.calibration.kinds import Samples
    from flashrt.calibration.reduce import PointRecord
    from flashrt.host.frames import Frame
    from flashrt_runtime.contract import Seam

WINDOW, FRAMES, HELD_OUT, SEED = 64, 64, 8, 0
COUNTS = (1, 8, 64)
PERCENTILES = (100.0, 99.9, 99.0)
SCHEMES = ("int8_static", "fp8_static")
DRAWS = 4  # of one frame: how much the choice of the frame matters
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "calibration.md"
BEGIN, END = "<!-- calibration_quality: begin -->", "<!-- calibration_quality: end -->"


@dataclass(frozen=True)
class Parity:
    """Agreement, divergence (nats) and perplexities over the judged positions of some windows."""

    positions: int
    agreement: float
    worst: float
    kl: float
    perplexity: float
    host: float

    @classmethod
    def of(cls, windows: Sequence[dict[str, Any]]) -> Parity:
        """Pooled over windows as :func:`flashrt.gate.parity.distribution_window` gives them."""
        count = sum(w["positions"] for w in windows)

        def mean(field: str) -> float:
            # A window with a value that is not finite has no divergence: the arm has none either.
            values = [math.nan if w[field] is None else w[field] for w in windows]
            return math.fsum(values) / count

        return cls(
            positions=count,
            agreement=mean("top1_agree"),
            worst=min(w["top1_agree"] / w["positions"] for w in windows),
            kl=mean("kl_sum"),
            perplexity=math.exp(mean("nll_treated_sum")),
            host=math.exp(mean("nll_host_sum")),
        )


@dataclass(frozen=True)
class Scales:
    """A reduction as a scheme reads it."""

    reduction: Reduction
    digest: str = ""
    statistics: frozenset[Statistic] = frozenset({AMAX})

    @property
    def limit(self) -> float:
        """The scale ceiling."""
        return self.reduction.limit

    def of(self, seam: Seam) -> dict[str, PointRecord]:
        """The seam's points by name."""
        return {p.address.point: p for p in self.reduction.points if p.address.seam == seam.id}


@dataclass(frozen=True)
class Arm:
    """Scales of one calibration. ``asked`` are all percentiles that give exactly these scales."""

    count: int
    asked: tuple[float, ...]
    interpolated: bool
    reduction: Reduction
    fitted: tuple[str, ...]

    @property
    def label(self) -> str:
        """``100, 99.9, 99 (the maximum)``, ``99 (interpolated)``."""
        named = ", ".join(f"{p:g}" for p in self.asked)
        if self.interpolated:
            return f"{named} (interpolated)"
        return f"{named} (the maximum)" if self.reduction.effective == 100.0 else named


def part(samples: Samples, ids: Sequence[str]) -> Samples:
    """The samples of some frames only."""
    rows = [samples.frames.index(name) for name in sorted(ids)]
    kept = tuple(samples.frames[row] for row in rows)
    return replace(samples, frames=kept, amax=samples.amax[rows], seen=samples.seen[rows])


def interpolated(samples: Samples, asked: float) -> Reduction:
    """The scales of a percentile that the samples cannot express: between their two largest."""
    plain = reduce(samples, 100.0)
    points = [
        replace(point, amax=percentile(samples.amax[samples.seen[:, i], i], asked))
        if point.amax is not None
        else point
        for i, point in enumerate(plain.points)
    ]
    return replace(plain, points=tuple(points), asked=asked, effective=asked)


def arms_of(samples: Samples, ids: Sequence[str]) -> Iterator[Arm]:
    """The different sets of scales that some frames give under :data:`PERCENTILES`."""
    mine, count = part(samples, ids), len(ids)
    groups: dict[float, list[float]] = {}
    for asked in PERCENTILES:
        groups.setdefault(effective_percentile(asked, count), []).append(asked)
    for asked_for in groups.values():
        yield Arm(count, tuple(asked_for), False, reduce(mine, asked_for[0]), tuple(ids))
    for asked in PERCENTILES if count > 1 else ():
        if effective_percentile(asked, count) != asked:
            yield Arm(count, (asked,), True, interpolated(mine, asked), tuple(ids))


def percent(value: float) -> str:
    """``0.9612`` as ``96.1 %``."""
    return f"{100 * value:.1f} %"


HEADER = (
    "| scheme | frames | percentile | agreement | worst window | KL | perplexity |"
    " fit: agreement | fit: KL | fit: perplexity ratio | gap, agreement | gap, KL |\n"
    "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def row(scheme: str, arm: Arm, held_out: Parity, fit: Parity) -> str:
    """One line of the table. The gap is fit residual minus held-out, agreement in points."""
    cells = (
        scheme,
        str(arm.count),
        arm.label,
        percent(held_out.agreement),
        percent(held_out.worst),
        f"{held_out.kl:.4f}",
        f"{held_out.perplexity:.2f} ({held_out.perplexity / held_out.host:.3f} ×)",
        percent(fit.agreement),
        f"{fit.kl:.4f}",
        f"{fit.perplexity / fit.host:.3f} ×",
        f"{100 * (fit.agreement - held_out.agreement):+.1f}",
        f"{fit.kl - held_out.kl:+.4f}",
    )
    return "| " + " | ".join(cells) + " |"


def written(document: str, text: str) -> str:
    """The document with ``text`` between its markers. Raises ``ValueError`` without both."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no {BEGIN} … {END}")
    return f"{before}{begin}\n{text.strip()}\n{end}{after}"


class Judge:
    """Runs arms and compares them with the host's own logits, which are computed once a frame."""

    def __init__(self) -> None:
        from flashrt.calibration.collect import collect
        from flashrt.host import load
        from flashrt.host.corpus import load_corpus
        from flashrt.host.frames import text_frames
        from flashrt.host.load import CACHE
        from flashrt.host.seams import seams_of

        self.host = load("smollm2")
        self.model = self.host.model
        self.seams = seams_of(self.host).seams
        split = text_frames(
            self.host.tokenizer,
            load_corpus("brown", CACHE),
            window=WINDOW,
            samples=FRAMES,
            held_out=HELD_OUT,
            seed=SEED,
        )
        self.frames, self.held_out = split.calibration, split.held_out
        self.by_id = {frame.id: frame for frame in self.frames}
        self.samples = collect(self.model, self.seams, self.frames, self.run)
        self.references: dict[str, torch.Tensor] = {}

    def run(self, frame: Frame, model: Any = None) -> Any:
        """Logits ``[positions, vocabulary]`` of all but the last token."""
        import torch

        with torch.inference_mode():
            return (model or self.model)(frame.token_ids[None]).logits[0, :-1]

    def parity(self, model: torch.nn.Module, frames: Sequence[Frame]) -> Parity:
        """One arm's parity on some frames."""
        from flashrt.gate.parity import distribution_window

        found = []
        for frame in frames:
            if frame.id not in self.references:
                self.references[frame.id] = self.run(frame)
            host, treated = self.references[frame.id], self.run(frame, model)
            found.append(distribution_window(frame.id, host, treated, frame.token_ids[1:]))
        return Parity.of(found)

    def attached(self, scheme: str, reduction: Reduction) -> tuple[torch.nn.Module, Any]:
        """A copy of the host (weights shared) with every seam of the scheme attached."""
        from flashrt.qualify.arm import share_weights
        from flashrt.scheme.plan import plan
        from flashrt_runtime.activate import make_swap
        from flashrt_runtime.swap import attach

        made = plan(scheme, self.seams, Scales(reduction), rows=WINDOW)
        arm, state = share_weights(self.model), self.model.state_dict()
        band = (WINDOW, WINDOW)
        swaps = [
            make_swap(one.seam, one.impl, one.record()["scales"], state, band)
            for one in made.bound
            if one.impl is not None
        ]
        return arm, attach(arm, swaps)

    def judge(self, scheme: str, arm: Arm, *, fit: bool = True) -> tuple[Parity, Parity | None]:
        """Parity held out, and on at most eight of the frames that the scales are from.

        Raises ``RuntimeError`` when a seam ran the host: that would not be the arm's parity.
        """
        model, handle = self.attached(scheme, arm.reduction)
        fitted = [self.by_id[name] for name in sorted(arm.fitted)]
        fitted = fitted[:: max(1, len(fitted) // HELD_OUT)][:HELD_OUT]
        held_out = self.parity(model, self.held_out)
        residual = self.parity(model, fitted) if fit else None
        counted = handle.summary()
        if counted["fallbacks"] or counted["dispatched"]:
            raise RuntimeError(f"{scheme}: some calls ran the host's modules: {counted}")
        return held_out, residual


def others(ids: Sequence[str], taken: Sequence[str]) -> list[str]:
    """:data:`DRAWS` frames that are not ``taken``, spread over the rest."""
    rest = [name for name in ids if name not in taken]
    return [rest[(2 * i + 1) * len(rest) // (2 * DRAWS)] for i in range(DRAWS)]


def draws(judge: Judge, scheme: str, frames: Sequence[str]) -> str:
    """A sentence on how far the held-out parity moves with the choice of a single frame."""
    found = []
    for frame in frames:
        arm = next(arms_of(judge.samples, [frame]))
        found.append(judge.judge(scheme, arm, fit=False)[0])
    agreement = sorted(p.agreement for p in found)
    kl = sorted(p.kl for p in found)
    return (
        f"{len(found)} other single frames under {scheme}: agreement {percent(agreement[0])} to "
        f"{percent(agreement[-1])}, KL {kl[0]:.4f} to {kl[-1]:.4f}."
    )


def machine() -> str:
    """CPU, threads and versions; no path and no name of the machine."""
    from importlib.metadata import version

    import torch

    from flashrt_runtime.facts import device_facts

    name = device_facts("cpu")["name"]
    versions = ", ".join(f"{p} {version(p)}" for p in ("torch", "transformers"))
    return f"{name}, {torch.get_num_threads()} threads, {versions}"


def report() -> str:
    """The table, and the facts it was made under, as Markdown."""
    from flashrt.calibration.run import choose

    judge = Judge()

    def ids(count: int) -> list[str]:
        return [frame.id for frame in choose(judge.frames, count, SEED)]

    singles = others(ids(FRAMES), ids(1))
    lines, said, host = [HEADER], [], None
    for scheme in SCHEMES:
        for count in COUNTS:
            for arm in arms_of(judge.samples, ids(count)):
                held_out, fit = judge.judge(scheme, arm)
                if fit is not None:
                    lines.append(row(scheme, arm, held_out, fit))
                    print(lines[-1], flush=True)
                host = held_out
        said.append(draws(judge, scheme, singles))
    if host is None:
        raise ValueError("no arm was judged")
    error = 0.5 / math.sqrt(host.positions)  # of a share: largest where the share is a half
    facts = (
        f"SmolLM2 on the Brown corpus, windows of {WINDOW} tokens, {HELD_OUT} held out "
        f"({host.positions} judged positions: one standard error of agreement would be at "
        f"most {100 * error:.1f} points if they were independent); the host's own perplexity on "
        f"them is {host.host:.2f}. "
        f"{' '.join(said)} {machine()}."
    )
    return "\n".join([*lines, "", facts])


def main() -> None:
    """Print the table; ``--write`` puts it between its markers in docs/calibration.md as well."""
    from flashrt.document.atomic import write_atomic

    parser = argparse.ArgumentParser(description="Parity by frames and percentile.")
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md")
    asked = parser.parse_args()
    text = report()
    print(text)
    if asked.write:
        write_atomic(DOCUMENT, written(DOCUMENT.read_text(), text).encode())


if __name__ == "__main__":
    main()
