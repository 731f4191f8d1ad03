"""Turns to IDs: no text forges a tag, spans partition the source, nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.lab.tokenizer import ROLES, Tokenizer, Turn, source_sha256
from flashrt.lab.tokenizer.vocabulary import ESCAPE, FIRST_PIECE, TAGS
from flashrt_runtime.reason import Reason, Refusal

CORPUS = [b"the cat sat on the mat; the hat sat on the cat", "naïve café, naïve café".encode()]
TOKENIZER = Tokenizer.build(CORPUS, 96)
TAG_WORDS = [b"USER_TURN", b"TURN_END", b"<|user|>", b"BYTE", b"\x00", b"\x01\x02\x03"]
DATA = st.one_of(
    st.binary(max_size=80),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
    st.lists(st.sampled_from([*TAG_WORDS, b" the", b"cat", "é".encode(), b"\xc3"]), max_size=8).map(
        b"".join
    ),
)
TURNS = st.lists(st.builds(Turn, st.sampled_from(ROLES), DATA), max_size=4)


def read_back(ids):
    """The turns, or None where the IDs were refused for being none."""
    try:
        return TOKENIZER.turns(ids)
    except Refusal as refusal:
        return None if refusal.reason is Reason.CONFLICT else ()


@given(TURNS, st.sampled_from([None, *ROLES]))
def test_tags_are_the_frame_and_nothing_else(turns, opened):
    ids = TOKENIZER.encode(turns, opened).ids
    expected = [tag for turn in turns for tag in (ROLES.index(turn.role), TOKENIZER.turn_end)]
    if opened is not None:
        expected.append(ROLES.index(opened))
    assert [token for token in ids if token < len(TAGS)] == expected


@given(TURNS)
def test_spans_partition_the_source(turns):
    encoding = TOKENIZER.encode(turns)
    source = b"".join(turn.data for turn in turns)
    at = 0
    for token, (start, end) in zip(encoding.ids, encoding.spans, strict=True):
        assert start == at <= end
        if token >= FIRST_PIECE:
            assert source[start:end] == TOKENIZER.vocabulary.piece(token)
        at = end
    assert at == len(source)


@given(TURNS)
def test_a_byte_triple_gives_its_byte_to_its_last_token(turns):
    encoding = TOKENIZER.encode(turns)
    source = b"".join(turn.data for turn in turns)
    spans = encoding.spans
    for index, token in enumerate(encoding.ids):
        if token == ESCAPE:
            triple = encoding.ids[index : index + 3]
            widths = [end - start for start, end in spans[index : index + 3]]
            assert widths == [0, 0, 1]
            value = TOKENIZER.vocabulary.byte(triple)
            assert source[spans[index + 2][0]] == value
            assert value not in TOKENIZER.vocabulary.single


@given(TURNS)
def test_turns_come_back_from_their_ids(turns):
    again = TOKENIZER.turns(TOKENIZER.encode(turns).ids)
    assert [(turn.role, turn.data) for turn in again] == [(turn.role, turn.data) for turn in turns]


@given(st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=30))
def test_only_encodings_are_read_back(ids):
    again = read_back(ids)
    assert again is None or list(TOKENIZER.encode(again).ids) == ids


@pytest.mark.parametrize("ids", [[1], [TOKENIZER.turn_end], [1, 2, TOKENIZER.turn_end], [30], [4]])
def test_ids_that_are_no_turns_are_refused(ids):
    assert read_back(ids) is None
    assert read_back([1, TOKENIZER.turn_end]) == (Turn("user", b""),)


@given(TURNS, TURNS)
def test_different_conversations_have_different_ids_and_digests(one, other):
    def said(turns):
        return [(turn.role, turn.data) for turn in turns]

    same = said(one) == said(other)
    assert (TOKENIZER.encode(one).ids == TOKENIZER.encode(other).ids) == same
    assert (source_sha256(one) == source_sha256(other)) == same


def test_text_is_encoded_as_its_utf8():
    text = TOKENIZER.encode([Turn("user", "café ☕")])
    assert text == TOKENIZER.encode([Turn("user", "café ☕".encode())])
    assert text.manifest_sha256 == TOKENIZER.manifest_sha256


def test_a_prompt_is_a_user_turn_and_an_opened_answer():
    ids = TOKENIZER.prompt("the cat").ids
    assert (ids[0], ids[-2], ids[-1]) == (1, TOKENIZER.turn_end, 2)
    assert TOKENIZER.turns(ids[:-1])[0].data == b"the cat"
    with pytest.raises(Refusal, match="no encoding"):
        TOKENIZER.turns(ids)


def test_a_role_that_does_not_exist_is_refused():
    with pytest.raises(Refusal, match="no such role"):
        Turn("tool", "x")


def test_half_a_character_is_refused():
    with pytest.raises(Refusal, match="lone surrogate"):
        Turn("user", "a\ud800")


def test_tokens_say_what_they_are():
    kinds = [TOKENIZER.token(i).kind for i in (0, TOKENIZER.turn_end, ESCAPE, ESCAPE + 1)]
    assert kinds == ["role", "turn_end", "byte", "byte"]
    assert [TOKENIZER.display(i) for i in (1, 3, ESCAPE, ESCAPE + 11)] == [
        "USER_TURN",
        "TURN_END",
        "BYTE",
        "A",
    ]
    piece = TOKENIZER.token(FIRST_PIECE)
    assert (piece.kind, piece.piece) == ("piece", bytes([TOKENIZER.vocabulary.single[0]]))
    for outside in (-1, len(TOKENIZER)):
        with pytest.raises(Refusal, match="the vocabulary has"):
            TOKENIZER.token(outside)
