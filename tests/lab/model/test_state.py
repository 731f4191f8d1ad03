"""KV states: immutable, named by what they were computed from, refused where they do not belong."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.lab.model import ExactExecutor, LoadedArtifact, PlainExecutor
from flashrt.lab.records import KVState
from flashrt_runtime.reason import Reason, Refusal

IDS = (1, 20, 25, 30, 3, 2)


@pytest.fixture(scope="module")
def state(executor):
    return executor.run(IDS).state


def refused(executor, state, reason, match):
    with pytest.raises(Refusal, match=match) as error:
        executor.run((20,), state)
    assert error.value.reason is reason


def test_a_state_cannot_be_changed(executor, state):
    before = executor.run((20,), state)
    for field in dataclasses.fields(KVState):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(state, field.name, getattr(state, field.name))
    with pytest.raises(TypeError):
        state.keys[0][0] = 1
    with pytest.raises(TypeError):
        state.keys[0] = b""
    with pytest.raises(TypeError):
        state.token_ids[0] = 5
    assert hash(state) == hash(executor.run(IDS).state)
    assert executor.run((20,), state) == before


def test_continuing_makes_a_new_state_and_leaves_the_old_one(executor, state):
    copy = dataclasses.replace(state)
    after = executor.run((20, 21), state).state
    assert state == copy
    assert after.token_ids == (*IDS, 20, 21)
    assert after.keys[0].startswith(state.keys[0])


def test_a_state_holds_what_its_name_says(artifact, executor, state):
    assert state.checkpoint_sha256 == artifact.identity.checkpoint_digest
    assert state.tokenizer_sha256 == artifact.tokenizer.manifest_sha256
    assert (state.precision, state.executor) == ("float32", "row-serial-1")
    assert state.name == executor.state_name(IDS)
    assert state.nbytes == executor.state_bytes(len(IDS)) == 2 * 4 * len(IDS) * 64 * 4


@pytest.mark.parametrize(
    "field", ["checkpoint_sha256", "tokenizer_sha256", "token_ids", "precision", "executor"]
)
def test_every_part_of_the_identity_is_in_the_name(state, field):
    other = (9, 9) if field == "token_ids" else "other"
    assert dataclasses.replace(state, **{field: other}).name != state.name


@given(st.lists(st.integers(0, 999), max_size=6), st.lists(st.integers(0, 999), max_size=6))
def test_names_are_equal_where_the_tokens_are(one, other):
    names = [KVState.name_of(("c", "t"), tuple(ids), "float32", "e") for ids in (one, other)]
    assert (names[0] == names[1]) == (one == other)


def test_a_state_of_another_checkpoint_is_refused(executor, state):
    other = ExactExecutor(LoadedArtifact.random(8))
    refused(other, state, Reason.CHECKPOINT, "its weights are")
    refused(executor, other.run(IDS).state, Reason.CHECKPOINT, "its weights are")


def test_a_state_of_another_executor_is_refused(artifact, executor, state):
    refused(PlainExecutor(artifact), state, Reason.CONFLICT, "its executor is row-serial-1")


@pytest.mark.parametrize("field", ["tokenizer_sha256", "precision"])
def test_a_state_of_another_tokenizer_or_precision_is_refused(executor, state, field):
    foreign = dataclasses.replace(state, **{field: "other"})
    refused(executor, foreign, Reason.CONFLICT, f"its {field} is other")


def test_a_state_whose_payload_is_not_of_its_positions_is_refused(executor, state):
    for change in (
        {"keys": state.keys[:-1]},
        {"values": (*state.values[:-1], state.values[-1][:-4])},
        {"token_ids": IDS[:-1]},
    ):
        refused(executor, dataclasses.replace(state, **change), Reason.DIGEST, "are not of")


def test_steps_that_cannot_be_are_refused(executor, state):
    for ids, given_state, reason, match in (
        ((), None, Reason.SHAPE, "no token"),
        ((), state, Reason.SHAPE, "no logits"),
        ((1,) * 257, None, Reason.SHAPE, "257 positions"),
        ((1,) * 251, state, Reason.SHAPE, "257 positions"),
        ((-1,), None, Reason.CONFLICT, "vocabulary"),
        ((executor.architecture.vocabulary,), None, Reason.CONFLICT, "vocabulary"),
    ):
        with pytest.raises(Refusal, match=match) as error:
            executor.run(ids, given_state)
        assert error.value.reason is reason


def test_the_control_has_no_nodes_to_observe(artifact):
    with pytest.raises(Refusal, match="no nodes"):
        PlainExecutor(artifact).run(IDS, observe=print)
