"""From races in several fresh processes to one certificate, and what a matrix of them risks.

Code and data layout is luck that stays constant within a process: with 2 % of it, one process
promotes an equal arm in 8 % of cases, three that must all agree in 0.05 %. Each process decides
on its own series; requiring all of them keeps the error rate at most that of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flashrt.race.decision import Decision, Interval


def headline(processes: Sequence[Interval]) -> Interval | None:
    """Median of the processes' medians, with the envelope of their intervals.

    The envelope (lowest low to highest high) is wider than any one process's interval: layout
    differs between processes by an amount that no single series can see, so the headline never
    claims more than its worst process does. None without a process.
    """
    if not processes:
        return None
    ordered = sorted(p.median for p in processes)
    middle = ordered[len(ordered) // 2]
    if len(ordered) % 2 == 0:
        middle = (ordered[len(ordered) // 2 - 1] + middle) / 2
    return Interval(min(p.low for p in processes), middle, max(p.high for p in processes))


def agreed(decisions: Sequence[Decision], least: int) -> bool:
    """Whether at least ``least`` processes decided and every one of them is a win."""
    return len(decisions) >= least and all(d is Decision.WIN for d in decisions)


def alpha_of_cell(alpha: float, cells: int) -> float:
    """What one of ``cells`` that are asked for together may spend, so that all spend ``alpha``.

    ``cells`` is at least 1.
    """
    return alpha / max(1, cells)


def expected_false_promotions(cells: Iterable[tuple[float, int]]) -> float:
    """Upper bound of the expected number of arms promoted by chance in a matrix of receipts.

    ``cells`` gives each receipt's ``(alpha, attempt)``. A receipt at attempt k spent
    ``alpha / 2**k``; expectations add whatever the dependence between cells.
    """
    return sum(alpha / 2**attempt for alpha, attempt in cells)
