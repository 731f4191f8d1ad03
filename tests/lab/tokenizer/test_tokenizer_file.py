"""Learning pieces, and the tokenizer's file: canonical, identified, refused when changed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.document.problem import InputError
from flashrt.lab.tokenizer import Tokenizer, Turn, Vocabulary
from flashrt.lab.tokenizer.learn import learn
from flashrt.lab.tokenizer.pieces import Pieces, merged, words
from flashrt.lab.tokenizer.vocabulary import FIRST_PIECE
from flashrt_runtime.reason import Reason, Refusal

TEXTS = [b"the cat sat on the mat", b"a hat that the cat had sat on"]


def edited(folder, change):
    path = folder / "tokenizer.json"
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))


def test_a_tokenizer_is_read_back_as_it_was_written(tmp_path):
    made = Tokenizer.build(TEXTS, 60)
    made.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again == made
    assert again.encode([Turn("user", "the mat")]) == made.encode([Turn("user", "the mat")])
    before = (tmp_path / "tokenizer.json").read_bytes()
    again.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["merges"].pop(),
        lambda body: body.update(codec_version="other-1"),
        lambda body: body.update(tags=["USER_TURN"]),
        lambda body: body.update(digest="sha256:" + "0" * 64),
        lambda body: body.update(more=1),
        lambda body: body.pop("digest"),
    ],
)
def test_a_changed_file_is_refused(tmp_path, change):
    Tokenizer.build(TEXTS, 60).save(tmp_path)
    edited(tmp_path, change)
    with pytest.raises(InputError, match="digest or a field") as error:
        Tokenizer.load(tmp_path)
    assert error.value.reason is Reason.DIGEST


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda body: body["bytes"].reverse(), "ascending"),
        (lambda body: body["bytes"].append(300), "0 to 255"),
        (lambda body: body["bytes"].append("a"), "no integer"),
        (lambda body: body["bytes"].append(True), "no integer"),
        (lambda body: body["merges"].insert(0, [FIRST_PIECE, 99]), "does not exist yet"),
        (lambda body: body["merges"].insert(0, [2, FIRST_PIECE]), "does not exist yet"),
        (lambda body: body["merges"].append(body["merges"][0]), "the same bytes"),
        (lambda body: body["merges"].append([FIRST_PIECE]), "not a tokenizer"),
        (lambda body: body.update(merges=7), "not a tokenizer"),
        (lambda body: body.pop("bytes"), "bytes"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, change, what):
    Tokenizer.build(TEXTS, 60).save(tmp_path)
    edited(tmp_path, change)
    with pytest.raises(InputError, match=what):
        Tokenizer.load(tmp_path)


def test_what_is_learnt_does_not_depend_on_the_order_of_texts():
    assert learn(TEXTS, 60) == learn(TEXTS[::-1], 60)
    assert b" the" in learn(TEXTS, 60).pieces


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=4), st.integers(0, 20))
def test_any_corpus_gives_a_vocabulary_that_encodes_it(texts, more):
    size = FIRST_PIECE + len(set(b"".join(texts))) + more
    vocabulary = learn(texts, size)
    assert len(vocabulary) <= size
    for text in texts:
        ids = [token for word in words(text) for token in Pieces(vocabulary).of_word(word)]
        assert b"".join(vocabulary.piece(token) for token in ids) == text


@given(st.binary(max_size=300))
def test_words_are_consecutive_parts(data):
    parts = list(words(data))
    assert b"".join(parts) == data
    assert all(1 <= len(part) <= 64 for part in parts)


def test_merging_goes_from_the_left():
    assert merged([1, 1, 1], (1, 1), 2) == [2, 1]


def test_a_vocabulary_without_room_or_text_is_refused():
    with pytest.raises(Refusal, match="do not hold") as error:
        learn(TEXTS, 25)
    assert error.value.reason is Reason.CONFLICT
    with pytest.raises(Refusal, match="no text") as error:
        learn([b""], 100)
    assert error.value.reason is Reason.EMPTY_CORPUS


def test_one_piece_has_one_id():
    a = FIRST_PIECE
    with pytest.raises(Refusal, match="the same bytes"):
        Vocabulary((97,), ((a, a), (a, a + 1), (a + 1, a)))


def test_no_piece_is_longer_than_a_word():
    doubling = tuple((FIRST_PIECE + i, FIRST_PIECE + i) for i in range(60))
    assert len(Vocabulary((97,), doubling[:6]).pieces[-1]) == 64
    with pytest.raises(Refusal, match="longer than 64 bytes"):
        Vocabulary((97,), doubling)


def test_a_vocabulary_cannot_be_changed():
    made = Vocabulary((97,), ())
    with pytest.raises(AttributeError):
        made.single = ()
    assert len(made) == FIRST_PIECE + 1
