"""Training: the same bits for the same seed, a loss that falls, and honest held-out documents."""

import math

import pytest
import torch

from flashrt.host.corpus import Corpus, TextDocument
from flashrt.lab.model import LoadedArtifact, architecture, prepare
from flashrt.lab.model.exchanges import exchanges, turns
from flashrt.lab.model.preparing import Size, prepare_from
from flashrt.lab.model.train import Schedule, held_out_loss, train
from flashrt.lab.tokenizer import Tokenizer
from flashrt_runtime.reason import Reason, Refusal

TEXT = "The cat sat on the mat. It was a hat. Who had it? The dog had it. So it was. It is."
CORPUS = Corpus(
    "cats",
    "text folder cats",
    tuple(TextDocument(f"d{i}", "", f"{TEXT} Day {i} ended. It rained.") for i in range(10)),
)
SIZE = Size(layers=1, width=16, heads=2, context=16, vocabulary=120, batch=4)


def test_the_same_seed_gives_the_same_artifact_and_another_seed_another(tmp_path):
    torch.manual_seed(1)
    one = prepare_from(CORPUS, SIZE, 0, 4)
    torch.manual_seed(2)
    two = prepare_from(CORPUS, SIZE, 0, 4)
    assert one == two
    assert prepare_from(CORPUS, SIZE, 1, 4).identity != one.identity
    one.save(tmp_path)
    assert LoadedArtifact.load(tmp_path) == one


def test_the_loss_falls_and_is_reported():
    told = []
    made = prepare_from(CORPUS, SIZE, 0, 60, lambda *step: told.append(step))
    assert [done for done, _, _ in told] == list(range(1, 61))
    assert {steps for _, steps, _ in told} == {60}
    assert told[0][2] == pytest.approx(math.log(len(made.tokenizer)), rel=0.05)
    assert told[-1][2] < 0.6 * told[0][2]
    loss, density = made.preparation.held_out_loss, made.preparation.held_out_bits_per_byte
    assert loss < 0.6 * told[0][2]
    assert 0 < density < 8


def test_provenance_counts_documents_that_were_held_out():
    preparation = prepare_from(CORPUS, SIZE, 0, 1).preparation
    assert (preparation.documents, preparation.held_out_documents) == (8, 2)
    assert preparation.corpus_digest == CORPUS.digest
    assert preparation.sentence.startswith("flashrt lab prepare: 1 steps on text folder cats")


def test_held_out_documents_teach_the_tokenizer_nothing():
    marked = tuple(
        TextDocument(d.id, "", d.text + (" Zzz\x7f." if i == 3 else ""))
        for i, d in enumerate(CORPUS.documents)
    )
    corpus = Corpus("cats", "cats", marked)
    knows = {
        seed: 0x7F in prepare_from(corpus, SIZE, seed, 1).tokenizer.vocabulary.single
        for seed in range(8)
    }
    assert set(knows.values()) == {True, False}  # document 3 is held out for some seeds only


def test_the_callers_threads_and_generator_are_left_as_they_were():
    before = (torch.get_num_threads(), torch.get_rng_state())
    prepare_from(CORPUS, SIZE, 0, 1)
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_sentences_are_exchanged_within_a_paragraph():
    pairs = [(a.text, b.text) for a, b in turns("One. Two. Three.\nFour! Five?")]
    assert pairs == [("One.", "Two."), ("Four!", "Five?")]


def test_windows_begin_at_a_users_tag_and_are_whole():
    tokenizer = Tokenizer.build([TEXT.encode()], 100)
    data = exchanges(tokenizer, [TEXT, TEXT], 16)
    windows = data.windows(data.starts)
    assert windows.shape == (len(data.starts), 17)
    assert set(windows[:, 0].tolist()) == {1}
    assert data.source_bytes == 2 * sum(len(a.text) + len(b.text) for a, b in turns(TEXT))
    with pytest.raises(Refusal, match="less than one window") as error:
        exchanges(tokenizer, ["One. Two."], 256)
    assert error.value.reason is Reason.EMPTY_CORPUS


def test_a_learning_rate_rises_and_then_falls():
    schedule = Schedule(100)
    rates = [schedule.rate(step) for step in range(100)]
    assert rates[4] == max(rates) == schedule.learning_rate
    assert rates[:5] == sorted(rates[:5])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[-1] < 0.01 * schedule.learning_rate


def test_a_loss_that_is_no_number_is_refused():
    tokenizer = Tokenizer.build([TEXT.encode()], 100)
    shape = architecture(layers=1, width=16, heads=2, context=16, vocabulary=len(tokenizer))
    data = exchanges(tokenizer, [TEXT, TEXT], 16)
    with pytest.raises(Refusal, match="the loss is") as error:
        train(shape, data, Schedule(20, 2, learning_rate=math.inf), 0)
    assert error.value.reason is Reason.NONFINITE
    weights = train(shape, data, Schedule(1, 2), 0)
    assert held_out_loss(shape, weights, data, 4) > 0


@pytest.mark.parametrize("documents", [0, 4])
def test_a_corpus_too_small_to_hold_out_of_is_refused(documents):
    with pytest.raises(Refusal, match="held out") as error:
        prepare_from(Corpus("c", "c", CORPUS.documents[:documents]), SIZE, 0, 1)
    assert error.value.reason is Reason.EMPTY_CORPUS


def test_no_steps_are_refused():
    with pytest.raises(Refusal, match="train nothing"):
        prepare_from(CORPUS, SIZE, 0, 0)


def test_prepare_writes_what_it_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("flashrt.host.corpus.load_corpus", lambda name, cache: CORPUS)
    monkeypatch.setattr("flashrt.lab.model.preparing.Size", lambda: SIZE)
    made = prepare(tmp_path / "out", seed=3, steps=1)
    assert LoadedArtifact.load(tmp_path / "out") == made
    assert made.preparation.seed == 3
