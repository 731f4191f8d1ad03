"""Each thing is computed once, payloads are bounded, and nothing in the evidence changes."""

from flashrt.lab.engine import MemoExecutor, Tally
from tests.lab.engine.toy import Toy, arrivals, run, system


def test_equal_work_is_computed_once():
    toy = Toy()
    memo = MemoExecutor(toy)
    lines = [(f"r{n}", n, "abcd", 3) for n in range(20)]
    execution = run(system(device=200), memo, arrivals(*lines))
    assert memo.ran == len(toy.runs) == len(set(toy.runs)) == 4
    assert len(execution.computations) > 40
    assert execution == run(system(device=200), Toy(), arrivals(*lines))


def test_states_in_the_engine_have_no_payload():
    memo = MemoExecutor(Toy())
    step = memo.run((1, 2), None)
    assert not hasattr(step.state, "__dict__")
    assert step.state.token_ids == (1, 2)
    assert memo.run((1, 2), None) is step


def test_dropped_payload_is_computed_again_when_it_is_needed():
    toy = Toy()
    memo = MemoExecutor(toy, states=1)
    first = memo.run((1, 2), None)
    memo.run((9,), None)
    again = memo.run((3,), first.state)
    assert toy.runs == [("", "ab"), ("", "i"), ("", "ab"), ("ab", "c")]
    assert again.state.token_ids == (1, 2, 3)


def test_what_is_held_does_not_grow_with_the_workload():
    memo = MemoExecutor(Toy(), steps=10, states=3)
    lines = [(f"r{n}", n, "abcdefgh"[n % 8] * (n % 5 + 1), 2) for n in range(200)]
    run(system(device=200), memo, arrivals(*lines), keeper=Tally())
    assert memo.held == (10, 3)


def test_costs_are_those_of_the_step_even_where_counts_differ():
    class Uneven(Toy):
        def run(self, input_ids, state):
            step = super().run(input_ids, state)
            (node,) = step.nodes
            more = type(node)(
                *[getattr(node, n) for n in ("id", "operation", "layer", "inputs")],
                node.outputs,
                node.flops + input_ids[0],
                node.bytes,
            )
            return type(step)(step.logits, step.state, (more,))

    memo = MemoExecutor(Uneven())
    assert memo.run((1,), None).nodes[0].flops == 7
    assert memo.run((2,), None).nodes[0].flops == 8
    assert memo.run((1,), None).nodes[0].flops == 7
