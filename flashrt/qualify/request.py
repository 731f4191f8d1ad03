"""What was asked for: a matrix of cells, before anything about them is known."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from flashrt_runtime.form import needs_cuda, parse_form
from flashrt_runtime.reason import Reason, Refusal

DEFAULT_FORM = "compile"
PHASES = ("decode", "prefill")
CHAINED = "+chains"


@dataclass(frozen=True)
class CellRequest:
    """One cell that somebody wants measured.

    ``rows`` is the number of tokens in one step (1 for decode); ``context`` the length of the
    static cache, in tokens; ``form`` the execution form of both arms, as it is typed. With
    ``chains``, producers that emit for the scheme's readers are bound too, each chain as one.
    """

    scheme: str
    phase: str
    rows: int
    context: int = 256
    form: str = DEFAULT_FORM
    chains: bool = False

    @property
    def bound(self) -> str:
        """What the arm binds: the scheme, and ``+chains`` where chains are asked for."""
        return f"{self.scheme}{CHAINED if self.chains else ''}"

    @property
    def label(self) -> str:
        """Short name for tables and logs, e.g. ``decode/1 w8a16_decode``; a form other than the
        default follows, e.g. ``decode/1 w8a16_decode aot``."""
        other = "" if self.form == DEFAULT_FORM else f" {self.form}"
        return f"{self.phase}/{self.rows} {self.bound}{other}"

    @property
    def text(self) -> str:
        """What :meth:`parse` reads, e.g. ``w8a16_decode@prefill:16`` or ``…:16/aot``."""
        other = "" if self.form == DEFAULT_FORM else f"/{self.form}"
        return f"{self.bound}@{self.phase}:{self.rows}{other}"

    @property
    def sequence(self) -> tuple[str, ...]:
        """The form as a cell holds it. Raises :class:`Refusal` (FORM) for an unknown one."""
        return parse_form(self.form, self.label)

    @classmethod
    def parse(cls, text: str, context: int = 256) -> CellRequest:
        """Read ``SCHEME[+chains]@PHASE[:ROWS][/FORM]``, e.g. ``w8a16_decode@prefill:16/aot``.

        Raises :class:`Refusal`: CONFLICT for text that does not read so, FORM for a form that is
        unknown, is no basis of a claim, or needs parts that this step does not have.
        """
        asked, slash, form = text.partition("/")
        form = form if slash else DEFAULT_FORM
        if parse_form(form, text)[0] == "segmented":
            what = "a decoder's step has no parts to capture one by one"
            raise Refusal(Reason.FORM, what, subject=text, do="compile or aot")
        bound, _, where = asked.partition("@")
        scheme = bound.removesuffix(CHAINED)
        phase, _, rows_text = where.partition(":")
        if not scheme or phase not in PHASES:
            raise Refusal(
                Reason.CONFLICT,
                f"a cell reads SCHEME@PHASE[:ROWS][/FORM] with a phase of {', '.join(PHASES)}",
                subject=text,
                do="for example fp16_weight@decode or w8a16_decode@prefill:16",
            )
        if not rows_text:
            rows_text = "1" if phase == "decode" else "16"
        rows = int(rows_text) if rows_text.isascii() and rows_text.isdigit() else 0
        if rows < 1 or rows > context or (phase == "decode" and rows != 1):
            raise Refusal(
                Reason.SHAPE,
                f"{rows_text!r} rows do not fit a {phase} step over a context of {context}",
                subject=text,
                do="decode has 1 row; prefill has 1 or more, at most the context",
            )
        return cls(scheme, phase, rows, context, form, chains=scheme != bound)


def require_forms(requests: Sequence[CellRequest]) -> None:
    """Refuse a form that no arm can have where cells are measured, before a host is loaded.

    Cells are measured on the CPU: a CUDA graph's windows would not lie on its device, whatever
    else the machine has. Raises :class:`Refusal` (UNCAPTURABLE).
    """
    for request in requests:
        if needs_cuda(request.sequence):
            raise Refusal(
                Reason.UNCAPTURABLE,
                f"{request.form} needs a CUDA device, and cells are measured on the CPU",
                subject=request.label,
                do="use compile or aot here",
            )


@dataclass(frozen=True)
class Budget:
    """How much may be spent, fixed before the first sample is seen.

    ``pairs`` is the most kept pairs of one race, ``seconds`` its longest duration, ``processes``
    the number of fresh processes, ``windows`` and ``positions`` the held-out frames and the tokens
    judged in each.
    """

    processes: int = 3
    pairs: int = 640
    seconds: float = 90.0
    windows: int = 8
    positions: int = 64
    threads: int = 1

    @classmethod
    def of(
        cls, *, processes: int, seconds: float, windows: int, positions: int, threads: int
    ) -> Budget:
        """A budget from what a caller typed; 0 threads means every core this process may use.

        Raises :class:`Refusal` (CONFLICT) for numbers that measure nothing.
        """
        stated = {"processes": processes, "windows": windows, "positions": positions}
        for name, value in stated.items():
            if value < 1:
                raise Refusal(Reason.CONFLICT, f"{value} measures nothing", subject=name)
        if not 0 < seconds <= MOST_SECONDS:
            raise Refusal(
                Reason.CONFLICT,
                f"a race of {seconds:g} s",
                subject="seconds",
                do=f"more than 0, at most {MOST_SECONDS:g}",
            )
        if threads < 0:
            do = "1 or more; 0 means every core"
            raise Refusal(Reason.CONFLICT, f"{threads} threads", subject="threads", do=do)
        cores = len(os.sched_getaffinity(0))
        if threads > cores:
            raise Refusal(
                Reason.CONFLICT,
                f"{threads} threads on {cores} cores would measure the scheduler",
                subject="threads",
                do=f"at most {cores}; 0 means every core",
            )
        count = threads or cores
        return cls(
            processes=processes,
            seconds=seconds,
            windows=windows,
            positions=positions,
            threads=count,
        )


MOST_SECONDS = 3600.0

MAIN: tuple[tuple[str, str, int], ...] = (
    ("fp16_weight", "decode", 1),
    ("w8a16_decode", "decode", 1),
    ("int8_static", "decode", 1),
    ("w8a16_decode", "prefill", 16),
)
SCHEMES = (
    "none",
    "bf16_structural",
    "fp16_weight",
    "w8a16_decode",
    "w4a16_decode",
    "int8_static",
    "int8_static_keep_outliers",
    "fp8_static",
    "fp8_static_keep_outliers",
)
SHAPES: tuple[tuple[str, int], ...] = (("decode", 1), ("prefill", 16), ("prefill", 256))


def named_matrix(name: str, context: int = 256) -> tuple[CellRequest, ...]:
    """The cells of ``main`` (what `make qualify` measures) or ``all`` (every scheme and shape).

    Raises :class:`Refusal` (CONFLICT) for another name, (SHAPE) for a context that is too short.
    """
    if name == "main":
        wanted = MAIN
    elif name == "all":
        wanted = tuple((scheme, phase, rows) for phase, rows in SHAPES for scheme in SCHEMES)
    else:
        raise Refusal(Reason.CONFLICT, f"no matrix {name!r}", do="main or all")
    return tuple(CellRequest.parse(f"{s}@{phase}:{rows}", context) for s, phase, rows in wanted)
