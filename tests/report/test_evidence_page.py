"""The page of one receipt says what the receipt says, and shows what does not hold."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from copy import deepcopy
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.receipt.spec_gates import catalog_gates
from flashrt.receipt.verify import verify
from flashrt.report import evidence_tables, parity_figure, path_figure, race_figures
from flashrt.report.evidence_page import claim, evidence_html, evidence_markdown, recomputed
from flashrt.report.evidence_view import view
from flashrt.report.scale import LinearScale, bulk
from flashrt_runtime.reason import Because, Reason

VOID = {"meta", "br"}
VALUES = st.floats(-1e9, 1e9).filter(lambda v: v == 0 or abs(v) > 1e-9)
FIGURES = (
    race_figures.intervals, race_figures.drift, race_figures.nulls, parity_figure.parity,
    lambda seen: path_figure.path(seen.evidence["path"]),
    lambda seen: race_figures.ratios(seen.races, [(1.02, "margin", "limit")], "treated"),
)  # fmt: skip


class Shape(HTMLParser):
    """Fails at a tag that closes another than the last open one; collects anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.seen.append(tag)
        self.ids.add(given.get("id") or "")
        self.links.add(given.get("href") or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def marks(drawn: str) -> Iterator[int]:
    """How many marks each path of marks has."""
    for path in ET.fromstring(drawn).iter("path"):
        yield path.attrib["d"].count("M")


@pytest.mark.parametrize("made", ["receipt", "rough", "hostile"])
def test_the_page_is_well_formed_whole_and_fetches_nothing(committed: Any, made: str) -> None:
    text = evidence_html(getattr(committed, made)(), [])
    shape = Shape(text)
    assert shape.open == []
    assert shape.seen.count("figure") == 6
    assert {link[1:] for link in shape.links if link} <= shape.ids
    assert "script" not in shape.seen
    assert "img" not in shape.seen
    assert not re.search(r"https?://|@import|url\(", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("made", ["receipt", "rough", "hostile"])
def test_each_picture_is_xml(committed: Any, made: str) -> None:
    seen = view(getattr(committed, made)())
    drawn = [figure(seen) for figure in FIGURES]
    assert all(ET.fromstring(d).tag == "svg" for d in drawn if d)
    assert sum(bool(d) for d in drawn) >= 5


def test_every_pair_is_a_mark_and_lost_ones_are_told_apart(committed: Any) -> None:
    seen = view(committed.rough())
    drawn = race_figures.ratios(seen.races, [], "treated")
    assert sum(marks(drawn)) == sum(len(lap.pairs) for lap in seen.races)
    lost = sum(2 for lap in seen.races for kept in lap.kept if not kept)
    paths = ET.fromstring(drawn).iter("path")
    grey = [p.attrib["d"].count("M") for p in paths if p.attrib["class"] == "dots lost"]
    assert sum(grey) == lost > 0
    assert "above, to" in drawn
    assert "below, to" in drawn
    times = race_figures.drift(seen)
    assert sum(marks(times)) == 2 * sum(len(lap.pairs) for lap in seen.races)


def test_intervals_are_recomputed_from_the_pairs_and_not_taken_from_the_verdict(
    committed: Any,
) -> None:
    body = committed.receipt()
    stated = body["verdict"]["statistics"]
    laps = view(body).races
    assert [lap.seen.median for lap in laps if lap.seen] == stated["process_medians"]
    assert [lap.seen.low for lap in laps if lap.seen] == stated["process_low"]
    stated["process_medians"] = [9.0, 9.0, 9.0]
    assert [lap.seen for lap in view(body).races] == [lap.seen for lap in laps]


@pytest.mark.parametrize(
    ("margin", "words"),
    [(1.02, "past the margin"), (1.6, "undecided"), (3.0, "below the margin")],
)
def test_an_interval_says_on_which_side_of_the_margin_it_is(
    committed: Any, margin: float, words: str
) -> None:
    body = committed.receipt()
    seen = view(body)
    body["thresholds"]["margin"] = margin
    assert words in race_figures.intervals(seen)


def test_a_null_control_that_is_too_wide_or_without_1_is_said_to_be(committed: Any) -> None:
    body = committed.receipt()
    seen = view(body)
    assert "not below" not in race_figures.nulls(seen)
    body["thresholds"]["null_width"] = 1.001
    assert "not below 1.001" in race_figures.nulls(seen)
    for run in body["evidence"]["processes"]:
        run["null"]["pairs"] = [[a * 3, b] for a, b in run["null"]["pairs"]]
    assert all(lap.seen is None or lap.seen.low > 1 for lap in view(body).nulls)


def test_parity_shows_each_frame_before_and_after_with_bands(committed: Any) -> None:
    body = committed.rough()
    drawn = parity_figure.parity(view(body))
    frames = [w["frame"] for w in body["evidence"]["parity"]["before"]]
    assert all(f'data-point="{frame}"' in drawn for frame in frames)
    assert "pass 0.95, warn 0.85" in drawn
    assert "not finite before, not finite after" in drawn
    assert drawn.count("NaN") >= 1
    assert "top-1 agreement 0.9844 before, 0.8438 after" in drawn


def test_value_windows_and_numbers_of_a_later_schema_have_rows(committed: Any) -> None:
    body = committed.receipt()
    window = {
        "frame": "f", "elements": 4, "nonfinite": 0, "distinct": 4, "cosine": 0.9999,
        "max_abs": 0.1, "norm_ratio": [1.0, 1.0], "scale": 1.0, "ulp_max": 3,
    }  # fmt: skip
    body["evidence"]["parity"] |= {"kind": "value", "before": [window], "after": [window]}
    body["thresholds"] |= {"metric": "cosine", "floors": {"max_abs": 0.2}}
    rows = {row.name: row for row in parity_figure.rows_of(view(body))}
    assert list(rows) == ["cosine", "largest difference", "size, treated ÷ host", "ulp max"]
    assert rows["cosine"].levels == ((0.95, "pass"), (0.85, "warn"))
    assert rows["largest difference"].levels == ((0.2, "floor"),)


def test_token_windows_are_drawn_as_shares_of_their_tokens(committed: Any) -> None:
    body = committed.receipt()
    window = {"frame": "f", "tokens": 8, "identical": 6, "first_difference": 6, "distinct": 5}
    body["evidence"]["parity"] |= {"kind": "tokens", "before": [window], "after": [window]}
    body["thresholds"]["metric"] = "token_identity"
    rows = {row.name: row for row in parity_figure.rows_of(view(body))}
    assert rows["tokens identical, share"].read(window) == 0.75
    assert rows["tokens identical, share"].levels == ((0.95, "pass"), (0.85, "warn"))
    assert rows["first difference"].read(window) == 6
    assert "0.75 before, 0.75 after" in parity_figure.parity(view(body))


def test_drift_and_a_shifted_ratio_are_said_over_the_times(committed: Any) -> None:
    body = committed.receipt()
    first, second, third = (
        d["race"] for d in body["verdict"]["statistics"]["diagnosis"]
    )  # fmt: skip
    first |= {"drift": 1.25, "drifted": True}
    second |= {"shifted": True}
    third |= {"drift": None}
    drawn = race_figures.drift(view(body))
    assert "process 0 · host moved 1.250 × (drift)" in drawn
    assert drawn.count("RATIO SHIFTED") == 1
    assert "process 2 · too short to tell drift" in drawn


def test_a_seam_that_one_process_never_called_is_crossed_out(committed: Any) -> None:
    body = committed.rough()
    drawn = path_figure.path(body["evidence"]["path"])
    red = [r for r in ET.fromstring(drawn).iter("rect") if r.attrib["class"] == "fill bad"]
    assert len(red) == 1
    assert (
        "model.layers.3.mlp: flashrt::decoder_ffn_cpu_w8a16, calls in each graph: 1, 0, 1" in drawn
    )
    rows = path_figure.table(body["evidence"]["path"]).rows
    assert [row[1] for row in rows] == ["150 of 150", "149 of 150", "150 of 150"]
    assert rows[1][-1] == "2"
    unplanned = [{"expected": {}, "graph_calls": {"head": 1}}]
    assert path_figure.calls(unplanned) == {"head": ("not expected", (1,))}
    assert "fill bad" in path_figure.path(unplanned)


@pytest.mark.parametrize(
    ("seam", "row", "column"),
    [
        ("model.layers.7.mlp", "model.layers.*.mlp", 7),
        ("a.1.b.2", "a.1.b.*", 2),
        ("head", "head", 0),
    ],
)
def test_a_seams_place(seam: str, row: str, column: int) -> None:
    assert path_figure.place(seam) == path_figure.Place(row, column)


def test_controls_name_what_failed(committed: Any) -> None:
    clean = evidence_tables.controls(view(committed.receipt()))
    said = " ".join(cell for row in clean.rows for cell in row[1:])
    assert not re.search(r"NO|DIFFERS|FASTER", said)
    rough = {row[0]: row[1:] for row in evidence_tables.controls(view(committed.rough())).rows}
    assert rough["outputs rewritten"] == ("yes", "yes", "NO")
    assert rough["the host after detaching, against before"][0].startswith("DIFFERS")
    assert rough["parity after the race, against before"][0].startswith("DIFFERS")
    (roofline,) = [row for name, row in rough.items() if "roofline" in name]
    assert all("FASTER THAN THE ROOFLINE" in cell for cell in roofline)


def test_the_page_says_whether_it_recomputes(committed: Any) -> None:
    body = committed.receipt()
    wrong = verify(body, catalog_gates)
    assert wrong == []
    assert "every claim holds" in evidence_html(body, wrong)
    assert "Not recomputed here" in evidence_html(body)
    edited = deepcopy(body)
    edited["verdict"]["statistics"]["speedup"]["low"] = 1.5
    broken = verify(edited, catalog_gates)
    text = evidence_html(edited, broken)
    assert f"{len(broken)} claims do NOT hold" in text
    assert "$.verdict.statistics.speedup.low" in text
    assert 'class="broken"' in text


def test_claim_and_recomputed_in_words(committed: Any) -> None:
    assert claim(committed.receipt()).startswith("1.515 × (host time ÷ treated time), 1.432 to")
    assert "no speed-up was measured" in claim(committed.rough())
    assert recomputed([Because(Reason.DIGEST, "other", "$")])[1] == ["$: other [FRT022 DIGEST]"]


def test_markdown_has_the_claim_the_controls_and_no_markup_of_a_stranger(committed: Any) -> None:
    text = evidence_markdown(committed.rough(), [])
    assert "no speed\\-up was measured" in text
    assert "| outputs rewritten | yes | yes | NO |" in text
    assert "undecided \\<b\\>" in text
    assert "<script>" not in evidence_markdown(committed.hostile())


@pytest.mark.parametrize("cut", [0, 1, 7])
def test_evidence_that_cannot_be_replayed_is_drawn_all_the_same(committed: Any, cut: int) -> None:
    body = committed.receipt()
    for run in body["evidence"]["processes"]:
        run["race"]["pairs"] = run["race"]["pairs"][:cut]
    seen = view(body)
    assert all(lap.seen is None for lap in (*seen.races, *seen.nulls))
    assert "no interval" in evidence_html(body, [])


def test_nothing_measured_is_a_page_too(committed: Any) -> None:
    body = committed.receipt()
    body["evidence"] |= {"processes": [], "path": [], "poison": [], "rollback": []}
    body["evidence"]["parity"] |= {"before": [], "after": []}
    body["verdict"]["statistics"] |= {"speedup": None, "diagnosis": []}
    assert evidence_html(body, []).count("Nothing was measured.") == 6


def test_a_fact_that_a_later_schema_adds_is_in_the_tables(committed: Any) -> None:
    body = committed.receipt()
    body["evidence"]["environment"]["caches"] = {"l2_bytes": 4}
    body["evidence"]["processes"][0]["prehook_s"] = {"host": [1, 2]}
    text = evidence_html(body, [])
    assert "caches.l2_bytes" in text
    assert "prehook_s.host" in text


@given(st.lists(VALUES, min_size=1, max_size=30), st.floats(15, 200))
def test_a_linear_scale_keeps_order_and_its_ticks_apart(values: list[float], apart: float) -> None:
    scale = LinearScale.around(values, 300.0, 0.0)
    places = [scale(v) for v in sorted(values)]
    assert places == sorted(places, reverse=True)
    assert all(scale.holds(v) for v in values)
    ticks = scale.ticks(apart)
    assert all(scale.holds(t) for t in ticks)
    assert all(b > a for a, b in pairwise(ticks))
    assert all(abs(scale(a) - scale(b)) >= apart * 0.99 for a, b in pairwise(ticks))


def test_ticks_in_digits_and_values_far_out() -> None:
    scale = LinearScale(0.985, 1.012, 0.0, 500.0)
    assert [scale.said(t) for t in scale.ticks()] == [
        "0.985", "0.990", "0.995", "1.000", "1.005", "1.010",
    ]  # fmt: skip
    assert scale(9.0) == 500.0
    values = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 40.0]
    assert bulk(values) == values[:-1]
    assert bulk([1.0, 40.0]) == [1.0, 40.0]
    assert LinearScale.around([], 0, 10).high > 1.0
