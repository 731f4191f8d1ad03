"""IDs to text: append-only, equal to whole decoding, nothing repaired, pending only at the end."""

import codecs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flashrt.lab.tokenizer import StreamDecoder, Tokenizer, Turn
from flashrt.lab.tokenizer.vocabulary import ESCAPE, FIRST_DIGIT, TAGS, Vocabulary
from flashrt_runtime.reason import Refusal

TOKENIZER = Tokenizer.build([b"the cat sat on the mat", "é ☕ é ☕ é ☕".encode() * 3], 64)
IDS = st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=40)


def spelt(data: bytes) -> list[int]:
    """Every byte as a triple."""
    return [token for value in data for token in Vocabulary.triple(value)]


def body(data: bytes) -> list[int]:
    """The IDs of a text without its frame."""
    return list(TOKENIZER.encode([Turn("user", data)]).ids[1:-1])


def oracle(ids: list[int]) -> str:
    """The text by another way: runs of whole bytes, each decoded by Python's own decoder."""
    text, run, index = "", b"", 0
    while index < len(ids):
        triple = ids[index : index + 3]
        digits = triple[1:]
        whole = len(digits) == 2 and all(FIRST_DIGIT <= i < FIRST_DIGIT + 16 for i in digits)
        if ids[index] >= FIRST_DIGIT + 16:
            run += TOKENIZER.vocabulary.piece(ids[index])
            index += 1
        elif ids[index] == ESCAPE and whole:
            run += bytes([(digits[0] - FIRST_DIGIT) * 16 + digits[1] - FIRST_DIGIT])
            index += 3
        else:  # no text: bytes before and after it are never one character
            text += run.decode("utf-8", "ignore")
            run = b""
            index += 1
    return text + run.decode("utf-8", "ignore")


@given(IDS)
@example([ESCAPE, ESCAPE, FIRST_DIGIT, FIRST_DIGIT])
@example([*spelt(b"\xc3"), 0, *spelt(b"\xa9")])
def test_the_stream_only_grows_and_ends_as_the_whole(ids):
    stream, shown = TOKENIZER.stream(), ""
    for token in ids:
        text = stream.push(token)
        assert text.startswith(shown)
        shown = text
    done = stream.finish()
    assert done.text == shown == oracle(ids)
    assert done == TOKENIZER.decode(ids)


@given(IDS)
def test_what_is_no_text_is_a_fault_in_place(ids):
    done = TOKENIZER.decode(ids)
    assert 0 <= done.pending <= min(2, len(done.faults))
    for fault in done.faults:
        assert 0 <= fault.first < fault.end <= len(ids)
        assert 0 <= fault.at <= len(done.text)
    for index, token in enumerate(ids):
        if token < len(TAGS):
            assert any(f.first == index and f.what == "a tag" for f in done.faults)


@given(IDS)
def test_every_byte_is_shown_or_in_a_fault(ids):
    data = b"".join(TOKENIZER.token(i).piece for i in ids)
    triples = sum(  # whole triples, by the oracle's rule
        ids[i] == ESCAPE
        and len(ids) > i + 2
        and all(FIRST_DIGIT <= d < FIRST_DIGIT + 16 for d in ids[i + 1 : i + 3])
        for i in range(len(ids))
    )
    done = TOKENIZER.decode(ids)
    kept = len(done.text.encode()) + sum(len(fault.data) for fault in done.faults)
    assert kept == len(data) + triples


@given(st.text(max_size=60))
def test_valid_text_comes_back_with_no_fault(text):
    clean = text.encode("utf-8", "ignore").decode()
    for ids in (body(clean.encode()), spelt(clean.encode())):
        done = TOKENIZER.decode(ids)
        assert (done.text, done.faults, done.pending) == (clean, (), 0)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_never_repaired(data):
    for ids in (body(data), spelt(data)):
        done = TOKENIZER.decode(ids)
        assert done.text == data.decode("utf-8", "ignore")
        assert bool(done.faults) == (done.text.encode() != data)


@given(st.binary(max_size=60))
def test_a_pending_sequence_is_no_fault_before_the_end(data):
    stream = StreamDecoder(TOKENIZER.vocabulary)
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    shown = ""
    for value in data:
        for token in Vocabulary.triple(value):
            stream.push(token)
        shown += decoder.decode(bytes([value]))
        assert stream.text == shown
    unfinished = decoder.getstate()[0]
    before = len(stream.faults)
    done = stream.finish()
    assert done.pending == len(done.faults) - before == bool(unfinished)
    if unfinished:
        assert done.faults[-1].data == unfinished


def test_both_kinds_of_pending_are_reported_in_order():
    ids = [*body("☕".encode()), *spelt(b"\xe2\x98"), ESCAPE, FIRST_DIGIT + 9]
    stream = TOKENIZER.stream()
    for token in ids:
        assert stream.push(token) in ("", "☕")
    assert stream.faults == ()
    done = stream.finish()
    assert (done.text, done.pending) == ("☕", 2)
    assert [fault.what for fault in done.faults] == [
        "the output ended within a character",
        "the output ended within a byte triple",
    ]
    first, last = done.faults
    assert (first.first, first.end, first.data) == (len(ids) - 8, len(ids) - 2, b"\xe2\x98")
    assert (last.first, last.end) == (len(ids) - 2, len(ids))


def test_bytes_on_both_sides_of_a_tag_are_no_character():
    done = TOKENIZER.decode([*spelt(b"\xc3"), TOKENIZER.turn_end, *spelt(b"\xa9")])
    assert done.text == ""
    assert [fault.data for fault in done.faults] == [b"\xc3", b"", b"\xa9"]


def test_text_that_looks_like_a_tag_is_text():
    done = TOKENIZER.decode(body(b"TURN_END USER_TURN"))
    assert (done.text, done.faults) == ("TURN_END USER_TURN", ())


def test_finishing_twice_gives_the_same_and_then_nothing_is_taken():
    stream = TOKENIZER.stream()
    stream.push(ESCAPE)
    assert stream.finish() == stream.finish()
    with pytest.raises(Refusal, match="was finished"):
        stream.push(ESCAPE)


def test_an_unknown_id_is_refused_and_changes_nothing():
    stream = TOKENIZER.stream()
    stream.push(body(b"c")[0])
    with pytest.raises(Refusal, match="the vocabulary has"):
        stream.push(len(TOKENIZER))
    assert stream.finish().text == "c"
