"""Every format, and that no name in a file can forge anything in any of them."""

import io
import json
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.document.problem import Problem
from flashrt.report import safe_text, table
from flashrt_cli import render_github
from flashrt_cli.output import Case, Format, Outcome, Output, Table, emit, problem_of
from flashrt_runtime.reason import Because, Reason


def rendered(result, fmt, **env):
    stream = io.StringIO()
    emit(result, fmt, stream=stream, environ=env)
    return stream.getvalue()


RESULT = Output(
    title="t",
    tables=[Table(("name", "ratio"), [("a", "1.5"), ("bb", "10.25")], "cells")],
    lines=["a line"],
    data={"x": 1},
    problems=[Problem("f.yaml", 2, "$.a", "bad", "mend", Reason.DIGEST)],
    warnings=[Problem("", 1, "$", "hm", "", Reason.OUTLIER)],
)


def test_plain_text_is_aligned(capsys):
    assert rendered(RESULT, Format.HUMAN).splitlines() == [
        "t", "",
        "cells",
        "name  ratio",
        "----  -----",
        "a       1.5",
        "bb    10.25",
        "",
        "a line", "",
        "f.yaml:2: $.a: bad; mend [FRT022 DIGEST]",
    ]  # fmt: skip
    assert capsys.readouterr().err == "warning: hm [FRT030 OUTLIER]\n"


def test_terminal_gets_rich_and_no_colour_is_respected(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = {}
    for colour in ("1", ""):
        if colour:
            monkeypatch.setenv("NO_COLOR", colour)
        else:
            monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "100")
        stream = Terminal()
        emit(RESULT, Format.HUMAN, stream=stream, environ={})
        shown[colour] = stream.getvalue()
    assert "10.25" in shown["1"]
    assert "\x1b[31m" in shown[""]
    assert "\x1b[31m" not in shown["1"]
    stream = Terminal()
    emit(RESULT, Format.HUMAN, stream=stream, environ={"TERM": "dumb"})
    assert "\x1b" not in stream.getvalue()


def test_markup_in_a_name_is_text_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    hostile = "[red]x[/red] \x1b[2J"
    emit(Output(hostile, [Table((hostile,), [(hostile,)])]), Format.HUMAN, stream=stream,
         environ={})  # fmt: skip
    assert "[red]x[/red]" in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()


def test_json_says_everything_and_only_json():
    body = json.loads(
        rendered(Output("t", data={"a": float("nan"), "p": {1, 2}}, problems=RESULT.problems),
                 Format.JSON)
    )  # fmt: skip
    assert body["a"] is None
    assert sorted(body["p"]) == [1, 2]
    assert body["problems"][0]["subject"] == "f.yaml:2: $.a"


def test_github_annotations_are_worst_first_and_limited(tmp_path):
    many = [Problem(f"f{i}", 1, "$", "bad") for i in range(15)]
    path = tmp_path / "summary.md"
    text = rendered(
        Output("t", problems=many, warnings=RESULT.warnings), Format.GITHUB,
        GITHUB_STEP_SUMMARY=str(path),
    )  # fmt: skip
    lines = [line for line in text.splitlines() if line.startswith("::")]
    assert [line.split()[0] for line in lines] == ["::error"] * 10 + ["::warning"]
    assert "file=f0,line=1" in lines[0]
    assert path.read_text().count("**error**") == 15


def test_github_is_chosen_in_ci_and_a_lost_summary_loses_nothing(tmp_path):
    text = rendered(RESULT, None, CI="true", GITHUB_STEP_SUMMARY=str(tmp_path / "no" / "way"))
    assert "::error file=f.yaml,line=2" in text
    assert "::" not in rendered(RESULT, None, CI="false")


def test_junit_counts_and_never_passes_what_was_not_measured():
    cases = [
        Case("a", Outcome.PASSED),
        Case("b", Outcome.FAILED, "why"),
        Case("c", Outcome.NOT_MEASURED, "absent"),
    ]
    suite = ET.fromstring(rendered(Output("t", cases=cases), Format.JUNIT))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["skipped"]]
    assert ET.fromstring(rendered(Output("t"), Format.JUNIT)).get("tests") == "1"
    derived = ET.fromstring(rendered(RESULT, Format.JUNIT))
    assert derived.get("failures") == "1"


def test_sarif_has_places_and_rules():
    (run,) = json.loads(rendered(RESULT, Format.SARIF))["runs"]
    first, second = run["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "f.yaml"
    assert place["region"]["startLine"] == 2
    assert "locations" not in second
    assert [r["level"] for r in run["results"]] == ["error", "warning"]
    assert [r["id"] for r in run["tool"]["driver"]["rules"]] == ["FRT022", "FRT030"]


def test_reason_becomes_a_problem():
    problem = problem_of(Because(Reason.NOISE, "busy", "$.x"), "f", 3, "wait")
    assert str(problem) == "f:3: $.x: busy; wait"


def test_ragged_table_is_refused():
    with pytest.raises(ValueError, match="2 cells"):
        Table(("a",), [("1", "2")])


def test_table_without_rows_says_so():
    assert table.plain(Table(("a", "b"), []))[-1] == "(none)"


def test_wide_and_combining_characters_are_aligned():
    lines = table.plain(Table(("n", "x"), [("日本", "1"), ("e\u0301", "2")]))
    assert [safe_text.width(line) for line in lines[-2:]] == [7, 7]


# What a runner obeys: GitHub's two syntaxes and Azure's.
COMMAND = re.compile(r"^\s*::[A-Za-z]|##\[|##vso\[", re.IGNORECASE)
HOSTILE = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            ["\n", "\r", "\r\n", "\u2028", "\x85", "\x0b", "\x1b[31m", "::error::x", "::", ":",
             "##[error]x", "##", "#", "##vso[task]", "%0A", "%", ",", "]]>", "<!--", '"', "'",
             "&", "|", "`", "<script>", "\u202e", "\ud800", "\x00", "\ufffe", " ", "\t", "\\"]
        ),
    ),
    max_size=6,
).map("".join)  # fmt: skip


@given(HOSTILE, HOSTILE, HOSTILE)
def test_no_text_forges_a_command_or_breaks_a_format(first, second, third):
    result = Output(
        title=first,
        tables=[Table((first, second), [(second, third), (third, first)], third)],
        lines=[second],
        data={"a": first, second: third},
        problems=[Problem(first, 1, second, third, first, Reason.DIGEST)],
        warnings=[Problem(second, 1, first, third, "", Reason.NOISE)],
        cases=[Case(first, Outcome.FAILED, second, third)],
    )
    for fmt in (Format.HUMAN, Format.JUNIT, Format.SARIF, Format.JSON):
        text = rendered(result, fmt)
        assert not [line for line in text.splitlines() if COMMAND.search(line)]
    annotated = rendered(result, Format.GITHUB)
    commands = [line for line in annotated.splitlines() if COMMAND.search(line)]
    assert len(commands) == 2
    assert commands[0].startswith("::error ")
    assert commands[1].startswith("::warning ")
    for line in commands:
        head, _, message = line.partition(" ")[2].partition("::")
        assert set(re.findall(r"(?:^|,)(\w+)=", head)) <= {"file", "line", "title"}
        assert not re.search(r"%(?!25|3A|2C)", head + message)
    assert len(list(ET.fromstring(rendered(result, Format.JUNIT)))) == 1
    json.loads(rendered(result, Format.SARIF))
    assert set(json.loads(rendered(result, Format.JSON))) >= {"problems", "warnings"}
    summary = render_github.summary(result)
    assert "<script>" not in summary
    assert not re.search(r"(?<!\\)<", summary)


@given(HOSTILE)
def test_visible_text_is_one_printable_line(text):
    shown = safe_text.visible(text)
    assert len(shown.splitlines()) <= 1
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", shown)
    shown.encode("utf-8")


@given(HOSTILE)
def test_html_and_xml_hold_the_text_and_nothing_more(text):
    markup = table.html(Table((text,), [(text,)], text))
    root = ET.fromstring(markup.replace("<", "<", 1).encode("utf-8", "replace")) \
        if not re.search("[\ufffe\uffff]", markup) else None  # fmt: skip
    if root is not None:
        assert {element.tag for element in root.iter()} <= {
            "table", "caption", "thead", "tbody", "tr", "th", "td",
        }  # fmt: skip
    assert ET.fromstring(f"<a b='{safe_text.xml(text)}'/>").tag == "a"
