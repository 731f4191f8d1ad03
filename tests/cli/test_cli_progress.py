"""Progress: two lines a stage in a pipe, bars on a terminal, nothing when quiet."""

import io

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
