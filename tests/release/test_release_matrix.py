"""The matrix, the pages and the trail of explain."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from flashrt.release.explain import Fact, consider, table
from flashrt.release.matrix import matrix, of_source
from flashrt.release.state import State
from flashrt.report.page import intervals, matrix_html, matrix_markdown
from flashrt.report.receipt_page import report_html, report_markdown
from flashrt_runtime.reason import Because, Reason


def receipts(make):
    return list(make.store.list("qualification"))


def unmeasured(make, kind="preflight", **changes):
    body = make.store.get("qualification", make.receipt())
    record = {
        "schema": "flashrt.receipt/1", "kind": kind, "cell_digest": None, "cell": None,
        "request": {"device": "sm90", "scheme": "fp8_static"}, "execution": body["execution"],
        "verdict": {
            "state": "unknown", "band": "none",
            "reasons": [Because(Reason.ARCH_ABSENT, "no sm90 here", "sm90").record()],
        },
        "checks": [], "environment": body["evidence"]["environment"], **changes,
    }  # fmt: skip
    make.store.put(kind, record)
    return body


def test_rows_states_and_promise(make):
    make.receipt()
    make.receipt("w8a16_decode", speedup=1.0)
    make.receipt("int8_static", agree=50)
    found = of_source(make.store)
    states = {row.label.split()[1]: (row.state, row.band) for row in found.rows}
    assert states == {
        "fp16_weight": (State.CERTIFIED_FAST, "pass"),
        "w8a16_decode": (State.SUPPORTED_CORRECT, "pass"),
        "int8_static": (State.SUPPORTED_CORRECT, "low"),
    }
    assert found.promise() == (
        "3 cells, 3 raced, 1 certified fast; at most 0.03 false promotions are expected"
    )
    row = next(r for r in found.table().rows if "w8a16" in r[0])
    assert row[2] == "supported_correct"
    assert "LOSS" in row[-1]


def test_contested_cells_are_unknown(make):
    make.receipt()
    make.receipt(speedup=1.4)
    rows = matrix(receipts(make)).rows
    assert [row.state for row in rows] == [State.UNKNOWN] * 2
    assert rows[0].reasons[0].reason is Reason.AMBIGUOUS


def test_cells_that_read_alike_say_what_differs(make):
    for torch in ("2.13.0", "2.14.0"):
        make.receipt(cell={"software": {"torch": torch, "flashrt": "0.1.0"}})
    make.receipt("w8a16_decode")
    labels = [row.label for row in matrix(receipts(make)).rows]
    assert [label.partition(" cpu")[2] for label in labels] == [
        " software.torch=2.13.0", " software.torch=2.14.0", "",
    ]  # fmt: skip


def test_attempts_are_counted(make):
    make.receipt(supersedes=make.receipt())
    (row,) = matrix(receipts(make)).rows
    assert row.attempts == 2


def test_what_was_not_measured_has_a_row_until_it_is(make):
    body = unmeasured(make)
    unmeasured(make, request={"device": "sm90", "scheme": "fp8_static", "x": "y"})
    unmeasured(make, "incomplete", cell=body["cell"], cell_digest=body["cell_digest"])
    rows = {row.label: row for row in of_source(make.store).rows}
    assert len(rows) == 3
    row = rows["device=sm90 scheme=fp8_static"]
    assert row.state is State.UNKNOWN
    assert row.reasons[0].reason is Reason.ARCH_ABSENT


def test_pages_hold_the_matrix_and_run_nothing(make):
    make.receipt()
    make.receipt("w8a16_decode", speedup=0.9)
    found = of_source(make.store)
    page = matrix_html(found)
    assert page.count("<tr>") == 3
    assert "default-src 'none'" in page
    assert not re.search(r"<script|https?://|src=|@import", page)
    ET.fromstring(intervals(found.rows))
    assert matrix_markdown(found).count("\n| ") == 1 + 1 + 2
    assert intervals([]) == ""


def test_the_picture_has_the_margin_where_all_cells_have_the_same(make):
    make.receipt()
    (row,) = of_source(make.store).rows
    assert row.record()["margin"] == 1.02
    assert "margin 1.02" in intervals([row])
    assert "certified_fast" in intervals([row])
    assert "margin" not in intervals([row, replace(row, margin=1.5)])


def test_report_says_all_a_receipt_says_and_escapes_it(make):
    first = make.receipt(cell={"software": {"torch": "<b>&", "flashrt": "0.1.0"}})
    make.receipt("w8a16_decode", speedup=1.0)
    make.receipt(supersedes=None, revokes=[first], agree=90)
    html = report_html(receipts(make))
    assert "<b>&" not in html
    assert "&lt;b&gt;&amp;" in html
    assert html.count("<h2>") == 3
    assert "not live" in html
    assert "held out" in html
    text = report_markdown(receipts(make))
    assert text.count("\n## ") == 3


def test_report_of_nothing():
    assert "0 cells" in report_html([])


def asked(**changes):
    facts = {
        "model_artifact.name": "tiny", "cell.precision.scheme": "fp16_weight",
        "cell.shape.phase": "decode", "cell.shape.rows": 1, "cell.device.class": "cpu",
        "cell.device.isa": ["avx2"], **changes,
    }  # fmt: skip
    return [Fact(name, value) for name, value in facts.items()]


def test_the_receipt_that_answers_comes_first(make):
    make.receipt("w8a16_decode")
    digest = make.receipt()
    first, second = consider(receipts(make), asked())
    assert first.receipt["digest"] == digest
    assert first.serves
    assert (second.mismatch.name, second.matched) == ("cell.precision.scheme", 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cell.shape.rows", 2),
        ("cell.device.class", "cuda"),
        ("cell.device.isa", ["avx2", "avx512f"]),
        ("cell.device.isa", None),
        ("cell.software.absent", "1"),
        ("nothing.here", "x"),
    ],
)
def test_first_mismatch_names_both_values(make, name, value):
    make.receipt()
    (only,) = consider(receipts(make), asked(**{name: value}))
    assert not only.serves
    assert only.mismatch.name == name
    record = only.record()["mismatch"]
    assert record["expected"] == value
    assert record["found"] != value or value is None
    assert table([only]).rows[0][3] == name.removeprefix("cell.")


def test_dead_and_unearned_receipts_do_not_answer(make):
    first = make.receipt()
    make.receipt(supersedes=first, evidence={"rollback": []})
    assert [c.serves for c in consider(receipts(make), asked())] == [False, False]
    assert {c.dead is None for c in consider(receipts(make), asked())} == {True, False}


def test_a_receipt_that_does_not_follow_from_its_evidence_is_unknown(make):
    make.receipt()
    wrong = Because(Reason.VERDICT, "the samples say otherwise", "$.verdict.state")
    (row,) = of_source(make.store, lambda body: [wrong]).rows
    assert (row.state, row.ratio, row.reasons) == (State.UNKNOWN, None, (wrong,))
    (row,) = of_source(make.store, lambda body: []).rows
    assert row.state is not State.UNKNOWN
