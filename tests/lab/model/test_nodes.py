"""The seven operations as nodes: dependencies, and FLOPs and bytes equal to a hand count."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from flashrt.lab.model import ExactExecutor, PlainExecutor, Span, architecture, nodes
from flashrt.lab.model.batched import forward
from flashrt.lab.records import OPERATIONS
from flashrt_runtime.reason import Reason, Refusal

SMALL = architecture(layers=1, width=4, heads=2, context=8, vocabulary=10)


def by_name(span, shape=SMALL):
    return {node.id: (node.flops, node.bytes) for node in nodes(shape, span)}


def test_a_hand_count_of_one_step():
    """One layer of width 4 with 2 heads and a feed-forward width of 16; 2 positions after 3."""
    counts = by_name(Span(past=3, new=2, serial=True))
    assert counts == {
        # two rows of 4 numbers read and written, and two positions of 8 bytes
        "position": (0, 2 * (16 + 16) + 2 * 8),
        # two rows of 4 additions; token rows and positions read, rows written, two IDs
        "embedding": (8, 3 * 32 + 2 * 8),
        # 32 a row: 7 * 4 + 4; rows in and out, gain and bias read for each position
        "blocks.0.attention_norm": (64, 32 + 32 + 2 * 32),
        # four maps of 4 * 4 * 2 + 4 = 36 a row; positions seen 4 + 5 = 9, each 8 for the scores,
        # 8 for the mix and 6 for each of 2 heads. 80 weights a position; rows in and out; keys
        # and values of 2 written and of 9 read
        "blocks.0.attention": (
            2 * 4 * 36 + 9 * (8 + 8 + 12),
            2 * 80 * 4 + 32 + 32 + 2 * 32 + 9 * 32,
        ),
        "blocks.0.attention_residual": (8, 96),
        "blocks.0.ffn_norm": (64, 32 + 32 + 2 * 32),
        # up 4 * 16 * 2 + 16 = 144, gelu 5 * 16 = 80, down 16 * 4 * 2 + 4 = 132 a row; weights
        # 64 + 16 + 64 + 4 = 148 a position
        "blocks.0.ffn": (2 * (144 + 80 + 132), 32 + 32 + 2 * 148 * 4),
        "blocks.0.ffn_residual": (8, 96),
        # the last position only
        "final_norm": (32, 16 + 16 + 32),
        "output": (2 * 4 * 10, 16 + 160 + 40),
    }


def test_a_batched_step_reads_weights_and_states_once():
    serial = by_name(Span(3, 2, serial=True))
    batched = by_name(Span(3, 2, serial=False))
    assert {name: flops for name, (flops, _) in serial.items()} == {
        name: flops for name, (flops, _) in batched.items()
    }
    assert batched["blocks.0.ffn"][1] == 32 + 32 + 148 * 4
    assert batched["blocks.0.attention"][1] == 80 * 4 + 32 + 32 + 2 * 32 + 5 * 32


@given(st.integers(0, 50), st.integers(1, 40), st.integers(1, 40))
def test_split_work_costs_as_much_as_whole_work_inside_the_layers(past, first, second):
    whole = by_name(Span(past, first + second, serial=True))
    parts = [by_name(Span(past, first, True)), by_name(Span(past + first, second, True))]
    for name in set(whole) - {"final_norm", "output"}:
        assert whole[name] == tuple(map(sum, zip(*(part[name] for part in parts), strict=True)))


@pytest.mark.parametrize("layers", [1, 4])
def test_every_input_is_given_or_made_before(layers):
    shape = architecture(layers=layers, width=4, heads=2, context=8, vocabulary=10)
    made = {"token_ids", "positions", *(f"state_before.{layer}" for layer in range(layers))}
    used = set()
    step = nodes(shape, Span(1, 1, True))
    for node in step:
        assert set(node.inputs) <= made, node
        assert not set(node.outputs) & made, node
        used |= set(node.inputs)
        made |= set(node.outputs)
    ends = {"output", *(f"state_after.{layer}" for layer in range(layers))}
    assert made - used == ends  # nothing is computed for nothing
    assert len({node.id for node in step}) == len(step) == 4 + 6 * layers
    assert {node.operation for node in step} == {operation.name for operation in OPERATIONS}


def test_a_run_reports_the_nodes_of_its_cost(artifact, executor):
    state = executor.run((1, 2, 3)).state
    assert executor.run((4, 5), state).nodes == executor.cost(3, 2)
    plain = PlainExecutor(artifact)
    assert plain.run((4, 5)).nodes == plain.cost(0, 2)
    assert isinstance(executor, ExactExecutor)
    assert sum(n.flops for n in executor.cost(0, 2)) == sum(n.flops for n in plain.cost(0, 2))


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(Refusal, match="do not share") as error:
        architecture(layers=1, width=6, heads=4, context=8, vocabulary=10)
    assert error.value.reason is Reason.SHAPE


def test_torch_counts_the_same_products(artifact):
    """torch's own counter sees the products of maps; its CPU attention it does not know."""
    shape = artifact.architecture
    weights = artifact.weights.stacked(shape)
    with FlopCounterMode(display=False) as counter:
        hidden, _ = forward(shape, weights, torch.arange(6).unsqueeze(0))
        F.linear(hidden[0, -1:], weights["output.weight"])
    counted = counter.get_flop_counts()["Global"]
    maps = sum(flops for op, flops in counted.items() if "attention" not in str(op))
    d, f, span = shape.width, shape.feed_forward_width, Span(0, 6, serial=False)
    beside = {  # what a node counts beside the products of its maps
        "Attention": 6 * 4 * d + span.seen * (4 * d + 6 * shape.heads),
        "FeedForward": 6 * (6 * f + d),
        "OutputProjection": 0,
    }
    own = [node for node in nodes(shape, span) if node.operation in beside]
    assert maps == sum(node.flops - beside[node.operation] for node in own)
