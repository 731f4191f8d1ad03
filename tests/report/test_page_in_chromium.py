"""Pages in a real browser: everything is there, nothing is cut off, run or fetched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from flashrt.release.matrix import matrix
from flashrt.report.evidence_page import evidence_html
from flashrt.report.page import matrix_html

PICTURES = [
    "ratio of every pair in the order of time",
    "interval of each process against the margin",
    "times of both arms in the order of time",
    "null control of each process",
    "ratio of every pair in the order of time",
    "parity of every frame",
    "operators of every seam in the captured graphs",
]
pytestmark = pytest.mark.browser
MADE = ["receipt", "rough", "hostile"]


@pytest.fixture(scope="module")
def chromium(browser: Any) -> Any:
    """The browser; where there is none, these tests are not collected."""
    return browser.Chromium(str(browser.find()))


def written(folder: Path, body: dict[str, Any]) -> Path:
    """The body's page, in a folder of its own."""
    page = folder / "page.html"
    page.write_text(evidence_html(body, []), encoding="utf-8")
    return page


def test_every_picture_of_a_receipt_is_in_the_document(
    committed: Any, chromium: Any, tmp_path: Path
) -> None:
    built = chromium.dom(written(tmp_path, committed.receipt()))
    assert re.findall(r'<svg role="img" aria-label="([^"]+)"', built) == PICTURES
    assert built.count("</table>") >= 10
    for word in ("certified_fast", "margin 1.02", "Intel(R) Xeon(R) Processor", "2.13.0+cpu"):
        assert word in built


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("width", [1300, 500])
def test_no_text_is_cut_off_or_lies_over_another(
    committed: Any, chromium: Any, tmp_path: Path, made: str, width: int
) -> None:
    found = chromium.geometry(written(tmp_path, getattr(committed, made)()), width)
    assert found["wrong"] == []
    assert found["pictures"] >= 6


def test_the_matrix_page_shows_each_cell(committed: Any, chromium: Any, tmp_path: Path) -> None:
    page = tmp_path / "matrix.html"
    receipts = [committed.receipt(), committed.receipt("fp16_weight")]
    page.write_text(matrix_html(matrix(receipts)), encoding="utf-8")
    assert chromium.geometry(page) == {"pictures": 1, "wrong": []}
    built = chromium.dom(page)
    assert built.count("<tr>") == 3
    assert "false promotions are expected" in built


def test_a_strangers_markup_is_text_and_nothing_runs(
    committed: Any, chromium: Any, tmp_path: Path
) -> None:
    built = chromium.dom(written(tmp_path, committed.hostile()))
    assert "<title>flashrt: &lt;script&gt;" in built
    assert "<script" not in built
    assert "<img" not in built


@pytest.mark.parametrize(("flags", "dark"), [((), False), (("--force-dark-mode",), True)])
def test_it_is_painted_in_light_and_dark(
    committed: Any, chromium: Any, tmp_path: Path, flags: tuple[str, ...], dark: bool
) -> None:
    shot = chromium.screenshot(written(tmp_path, committed.receipt()), 3000, *flags)
    picture = Image.open(shot).convert("RGB")
    assert picture.size == (1300, 3000)
    colours = picture.getcolors(1 << 24)
    assert colours is not None
    count = {colour: number for number, colour in colours}
    for name, colour in {
        "bars past the margin": (0x2B, 0x8A, 0x3E), "host": (0x2F, 0x7E, 0xC4),
        "treated": (0xD9, 0x58, 0x0F), "margin": (0xE0, 0x31, 0x31),
    }.items():  # fmt: skip
        assert count.get(colour, 0) > 20, name
    background = max(count, key=lambda colour: count[colour])
    assert (sum(background) < 200) is dark
