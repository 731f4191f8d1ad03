"""The committed model in the engine: reuse changes no token, no score and no state."""

from dataclasses import replace
from fractions import Fraction

import pytest

from flashrt.lab.engine import Engine, MemoExecutor, ModelExecutor, check_end, check_invariants
from flashrt.lab.model import LoadedArtifact
from tests.lab.engine.toy import arrivals, system

TEXT = "The jury said that it was a good election"
LINES = (
    ("first", 0, TEXT, 6),
    ("again", 50_000, TEXT, 6),
    ("other", 100_000, "A man of the city", 5),
    ("third", 150_000, TEXT, 6),
    ("bytes", 150_001, "\x00 é <|user|> ünd 漢", 4),
)


@pytest.fixture(scope="module")
def model():
    return ModelExecutor.of(LoadedArtifact.load())


def configured(model, retention, *, device, host=0, cached=True):
    config = system(device=device, host=host, retention=retention, cached=cached)
    return replace(
        config,
        compute_service=replace(
            config.compute_service,
            compute_flops_per_us=Fraction(1000),
            memory_bytes_per_us=Fraction(5000),
        ),
        transfer=replace(config.transfer, link_bytes_per_us=Fraction(1000)),
    )


def executed(model, config, lines=LINES):
    engine = Engine(config, model, arrivals(*lines), watch=lambda e, _: check_invariants(e))
    execution = engine.run()
    check_end(engine)
    return execution


def scores(execution):
    return {(s.request_id, s.step): (s.raw_logits, s.selected_id) for s in execution.selections}


def test_outputs_with_reuse_equal_outputs_without_and_positions_were_reused(model):
    most = 100 * model.position_bytes
    anew = executed(model, configured(model, "none", device=most))
    kept = executed(model, configured(model, "exact_prefix_lru", device=most))
    assert scores(kept) == scores(anew)
    assert [o.published_ids for o in kept.outcomes] == [o.published_ids for o in anew.outcomes]
    assert [o.display for o in kept.outcomes] == [o.display for o in anew.outcomes]
    assert sum(row.reused_positions for row in anew.ledger) == 0
    prompt = len(model.encode(TEXT))
    assert kept.row("again").reused_positions == kept.row("third").reused_positions == prompt - 1
    assert kept.row("again").latency_us < anew.row("again").latency_us
    final = {c.request_id: c.state_after for c in kept.computations}
    assert final == {c.request_id: c.state_after for c in anew.computations}


def test_full_prefix_execution_gives_the_same_scores(model):
    most = 100 * model.position_bytes
    lines = LINES[:1]
    full = executed(model, configured(model, "none", device=most, cached=False), lines)
    kept = executed(model, configured(model, "exact_prefix_lru", device=most), lines)
    assert scores(full) == scores(kept)
    assert full.row("first").recomputed_positions > 0 == kept.row("first").recomputed_positions


def test_state_that_went_to_the_host_and_back_gives_the_same_scores(model):
    # One reservation and no more: the first state has to leave before the other can be admitted.
    most = (len(model.encode(TEXT)) + 7) * model.position_bytes
    config = configured(model, "exact_prefix_lru", device=most, host=4 * most)
    moved = executed(model, config)
    assert moved.row("third").transferred_positions == moved.row("third").reused_positions > 0
    assert scores(moved) == scores(executed(model, configured(model, "none", device=most)))


def test_memory_of_what_was_computed_changes_no_evidence(model):
    most = 100 * model.position_bytes
    config = configured(model, "exact_prefix_lru", device=most)
    memo = MemoExecutor(model, states=2)
    assert executed(memo, config) == executed(model, config)
    assert memo.ran < len(executed(memo, config).computations)


def test_costs_are_those_of_the_nodes(model):
    config = configured(model, "none", device=100 * model.position_bytes)
    execution = executed(model, config, LINES[:1])
    total = Fraction(0)
    for computation in execution.computations:
        flops = sum(node.flops for node in computation.nodes)
        moved = sum(node.bytes for node in computation.nodes)
        total += max(Fraction(flops, 1000), Fraction(moved, 5000))
    assert execution.ended_us == total > 0
