"""Progress: two lines a stage in a pipe, bars on a terminal, nothing when quiet."""

import io

import pytest

from flashrt_cli.progress import reporting


class Terminal(io.StringIO):
    def isatty(self):
        return True


def ride(stream, quiet=False):
    with reporting(stream, quiet) as tell:
        for done in range(5):
            tell("calibrate", done, 4, "frame\n::error::x")
        tell("race")
        tell("race", note="again")
    return stream.getvalue()


def test_a_pipe_gets_a_line_when_a_stage_starts_and_one_when_it_ends():
    assert ride(io.StringIO()).splitlines() == [
        "calibrate 0/4: frame\\n::error::x",
        "calibrate 4/4: frame\\n::error::x",
        "race",
    ]


def test_quiet():
    assert ride(io.StringIO(), quiet=True) == ""


def test_a_terminal_gets_bars(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = ride(Terminal())
    assert "4/4" in text
    assert "\n::error" not in text


def test_markup_in_a_stage_is_text(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with reporting(stream) as tell:
        tell("[bold]x[/bold]", 1, 1)
    assert "[bold]x[/bold]" in stream.getvalue()


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


def summarised(stream, fails=False):
    clock = Clock()
    with reporting(stream, summary=True, now=clock) as tell:
        tell("load", note="host")
        clock.time = 1.5
        for done in range(3):
            tell("calibrate", done, 4, "frame")
            clock.time += 2.0
        if fails:
            raise ValueError
        tell("calibrate", 4, 4)


def test_a_summary_is_one_line_with_counts_and_times():
    stream = io.StringIO()
    summarised(stream)
    assert stream.getvalue() == "load 1.5 s, calibrate 4/4 6.0 s\n"


def test_a_run_that_stops_says_how_far_it_came():
    stream = io.StringIO()
    with pytest.raises(ValueError):
        summarised(stream, fails=True)
    assert stream.getvalue() == "load 1.5 s, calibrate 2/4 6.0 s (stopped)\n"


def test_no_stage_is_no_line():
    stream = io.StringIO()
    with reporting(stream, summary=True):
        pass
    assert stream.getvalue() == ""


def test_a_terminal_shows_the_time_left_and_no_summary(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with reporting(stream, summary=True) as tell:
        tell("load")
        for done in range(5):
            tell("calibrate", done, 4)
    text = stream.getvalue()
    assert "ETA" in text
    assert "4/4" in text
    assert "1/1" in text  # an uncounted stage is done when the next one begins
    assert " s, calibrate" not in text
