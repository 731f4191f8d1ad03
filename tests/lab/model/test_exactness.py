"""Equal bits however a sequence is split, at one thread and at two; batched torch the control."""

import random

import pytest
import torch

from flashrt.lab.model import ExactExecutor, PlainExecutor
from flashrt.lab.model.rows import Rows

LENGTH = 48


@pytest.fixture(scope="module")
def executor(artifact):
    """One that takes as many threads as torch has at the time."""
    return ExactExecutor(artifact, threads=None)


@pytest.fixture(params=[1, 2], ids=["one_thread", "two_threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def tokens(executor, count, seed=0):
    drawn = random.Random(seed)
    return tuple(drawn.randrange(executor.architecture.vocabulary) for _ in range(count))


def chunked(executor, ids, cuts):
    step, at = None, 0
    for cut in [*cuts, len(ids)]:
        step = executor.run(ids[at:cut], step.state if step else None)
        at = cut
    return step


def bits(step):
    return (step.state.keys, step.state.values, torch.tensor(step.logits).numpy().tobytes())


@pytest.fixture(scope="module")
def whole(executor):
    """The full-prefix run at one thread: what every other run must equal."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return executor.run(tokens(executor, LENGTH))
    finally:
        torch.set_num_threads(before)


def test_every_prefix_split_gives_equal_bits(executor, whole, threads):
    ids = tokens(executor, LENGTH)
    differing = [
        cut for cut in range(1, LENGTH) if bits(chunked(executor, ids, [cut])) != bits(whole)
    ]
    assert differing == []
    assert whole.state.name == chunked(executor, ids, [5]).state.name


def test_one_token_at_a_time_and_random_chunks_give_equal_bits(executor, whole, threads):
    ids = tokens(executor, LENGTH)
    assert bits(chunked(executor, ids, range(1, LENGTH))) == bits(whole)
    drawn = random.Random(threads)
    for _ in range(6):
        cuts = sorted(drawn.sample(range(1, LENGTH), drawn.randrange(1, 9)))
        assert bits(chunked(executor, ids, cuts)) == bits(whole), cuts


def test_a_whole_context_is_exact_too(executor, threads):
    ids = tokens(executor, executor.architecture.context, seed=3)
    full = executor.run(ids)
    assert bits(chunked(executor, ids, [1, 100, 255])) == bits(full)
    assert full.state.positions == 256


def test_a_prefix_has_the_state_of_any_longer_sequence(executor, whole, threads):
    size = 20 * executor.architecture.width * 4
    short = executor.run(tokens(executor, LENGTH)[:20]).state
    assert short.keys == tuple(layer[:size] for layer in whole.state.keys)
    assert short.values == tuple(layer[:size] for layer in whole.state.values)


def test_an_executor_takes_one_thread_and_leaves_the_callers_number(artifact, whole, threads):
    seen = []
    alone = ExactExecutor(artifact)
    step = alone.run(tokens(alone, LENGTH), observe=lambda *_: seen.append(torch.get_num_threads()))
    assert set(seen) == {1}
    assert torch.get_num_threads() == threads
    assert bits(step) == bits(whole)


def test_the_batched_control_agrees_in_value_and_says_how_many_splits_differ(
    artifact, executor, whole, capsys
):
    """Informational: how many of the control's splits differ depends on torch and the machine."""
    control = PlainExecutor(artifact)
    ids = tokens(control, LENGTH)
    full = control.run(ids)
    splits = [chunked(control, ids, [cut]) for cut in range(1, LENGTH)]
    differing = sum(bits(step) != bits(full) for step in splits)
    with capsys.disabled():
        print(f"\nbatched control: {differing} of {len(splits)} prefix splits differ in bits")
    for step in (full, *splits):
        error = max(abs(a - b) for a, b in zip(step.logits, whole.logits, strict=True))
        assert error < 1e-5
    assert full.state.name != whole.state.name  # of another executor: never mistaken for it


def test_an_arithmetic_that_depends_on_the_split_is_noticed(executor, whole, monkeypatch):
    """The comparison itself can fail: keys of another last bit, from position 30 on."""
    ids = tokens(executor, LENGTH)
    state = executor.run(ids[:30]).state
    right = Rows._map
    nudge = torch.nextafter(torch.ones(1), torch.full((1,), 2.0))

    def wrong(self, name, x):
        out = right(self, name, x)
        return out * nudge if name == "blocks.0.attention.k" else out

    monkeypatch.setattr(Rows, "_map", wrong)
    assert bits(executor.run(ids[30:], state)) != bits(whole)


def test_the_executor_agrees_with_the_batched_forward_at_every_node(artifact, executor):
    seen = []
    ids = tokens(executor, 3)
    step = executor.run(ids, observe=lambda name, at, value: seen.append((name, at, value.clone())))
    names = [stage.name for stage in artifact.architecture.stages]
    assert [name for name, at, _ in seen if at == 2] == names
    assert [name for name, at, _ in seen if at == 0] == names[:-2]  # scores of the last alone
    assert tuple(seen[-1][2][0].tolist()) == step.logits
    assert all(value.isfinite().all() for _, _, value in seen)
