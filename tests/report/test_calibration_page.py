"""The page is well-formed, self-contained, safe, and says what the receipt says."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from flashrt.report.calibration_page import calibration_html, clipping, points_table
from flashrt.report.calibration_plot import plot, require_plottable
from flashrt.report.calibration_view import view
from flashrt_runtime.reason import Reason, Refusal

Receipt = tuple[dict[str, Any], bytes]
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Elements with their attributes, the texts of cells and titles, and whether tags close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.titles: list[str] = []
        self.marks: dict[str, list[str]] = {}
        self._point = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "title":
            self.titles.append("")
        elif tag == "g":
            self._point = given.get("data-point") or ""
        elif tag == "path" and self._point:
            self.marks.setdefault(self._point, []).append(str(given["class"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "g":
            self._point = ""

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        elif self.open and self.open[-1] == "title":
            self.titles[-1] += data


def page_of(calibration: Receipt) -> Page:
    page = Page(calibration_html(view(*calibration)))
    assert page.open == []
    return page


def test_each_value_of_the_table_is_the_receipts(calibration: Receipt) -> None:
    head, *rows = page_of(calibration).tables[0]
    assert len(rows) == len(calibration[0]["points"])
    by_name = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    for record in calibration[0]["points"]:
        row = by_name[f"{record['seam']}:{record['point']}"]
        assert row["verdict"] == record["verdict"]
        for column, field in (("amax", "amax"), ("largest frame", "maximum")):
            value = record[field]
            assert (
                (row[column] == "–")
                if value is None
                else float(row[column]) == pytest.approx(value, rel=1e-5)
            )
        assert int(row["frames"]) == record["seen"]


def test_the_table_has_those_without_a_scale_first_then_the_widest(calibration: Receipt) -> None:
    rows = points_table(view(*calibration)).rows
    assert [row[1] for row in rows[:2]] == ["dead", "uncalibrated"]
    spread = [float(row[7]) for row in rows[2:]]
    assert spread == sorted(spread, reverse=True)


def test_each_point_is_drawn_with_its_verdict_and_a_title(calibration: Receipt) -> None:
    page = page_of(calibration)
    for record in calibration[0]["points"]:
        name = f"{record['seam']}:{record['point']}"
        drawn = 3 if record["dispersion"] else 1  # under the ceiling, sorted, frame by frame
        assert page.marks[name] == [f"v {record['verdict']}"] * drawn
        titles = [title for title in page.titles if title.startswith(f"{name}: ")]
        assert len(titles) == drawn
        if record["amax"] is not None:
            assert f"amax {record['amax']:.6g}" in titles[0]


def test_the_ceiling_and_the_verdicts_are_said_in_words(calibration: Receipt) -> None:
    body = calibration[0]
    text = calibration_html(view(*calibration))
    assert f"ceiling 20 × median = {body['ceiling']['limit']:.3g}" in text
    for verdict in ("calibrated", "dead", "outlier", "uncalibrated", "undersampled"):
        assert f"{verdict}: <b>1</b>" in text
    assert "2 of 5 points clip some frame at percentile 99" in text
    assert body["digest"] in text
    assert "only zeros [FRT028 DEAD]" in text


def test_nothing_is_fetched_and_nothing_runs(calibration: Receipt) -> None:
    page = page_of(calibration)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "use"}
    for _, given in page.tags:
        assert not [n for n in given if n in ("src", "href", "xlink:href") or n.startswith("on")]
    assert "url(" not in calibration_html(view(*calibration))
    policies = [g["content"] for _, g in page.tags if g.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_names_from_a_stranger_are_text(hostile_calibration: Receipt) -> None:
    page = page_of(hostile_calibration)
    assert "script" not in {tag for tag, _ in page.tags}
    text = calibration_html(view(*hostile_calibration))
    assert "\u202e" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_a_calibration_that_clips_nothing_says_so(calibration: Receipt) -> None:
    body, table = calibration
    for point in body["points"]:
        point["amax"] = point["amax"] and point["maximum"]
    seen = view(body, table)
    assert clipping(seen) == "Nothing is clipped: every point's scale reaches its largest frame."
    assert 'class="clip' not in calibration_html(seen)


def test_a_calibration_without_any_scale_is_drawn(calibration: Receipt) -> None:
    body, table = calibration
    body["points"] = [p | {"amax": None, "dispersion": None} for p in body["points"]]
    body["ceiling"] = {"factor": 20.0, "median": 0.0, "limit": 0.0}
    page = page_of((body, table))
    assert len(page.tables[0]) == 1 + len(body["points"])


def test_the_file_is_the_page_and_the_same_each_time(calibration: Receipt, tmp_path: Path) -> None:
    made = tmp_path / "new" / "page.HTML"
    plot(*calibration, made)
    assert made.read_text() == calibration_html(view(*calibration))


@pytest.mark.parametrize("name", ["picture.pdf", "picture", "html"])
def test_a_name_of_no_format_is_refused(calibration: Receipt, tmp_path: Path, name: str) -> None:
    with pytest.raises(Refusal, match=r"\.html or \.png") as caught:
        plot(*calibration, tmp_path / name)
    assert caught.value.reason is Reason.CONFLICT
    assert list(tmp_path.iterdir()) == []


def test_a_png_is_a_png(calibration: Receipt, hostile_calibration: Receipt, tmp_path: Path) -> None:
    for index, made in enumerate((calibration, hostile_calibration)):
        file = tmp_path / f"{index}.png"
        plot(*made, file)
        data = file.read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert int.from_bytes(data[16:20], "big") == 1320
        plot(*made, tmp_path / "again.png")
        assert (tmp_path / "again.png").read_bytes() == data


def test_a_png_without_matplotlib_is_refused_naming_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(Refusal) as caught:
        require_plottable(tmp_path / "a.png")
    assert caught.value.reason is Reason.SOFTWARE
    assert "flashrt[plot]" in caught.value.do
    require_plottable(tmp_path / "a.html")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(calibration: Receipt, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal) as caught:
        plot(*calibration, tmp_path / "file" / "page.html")
    assert caught.value.reason is Reason.STORAGE
