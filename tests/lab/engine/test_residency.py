"""Reuse, eviction, transfers and reservations, with their exact times."""

from dataclasses import replace
from fractions import Fraction

from flashrt.lab.records import ComputeServiceConfig
from tests.lab.engine.toy import Toy, arrivals, run, story, system, times


def row(execution, name):
    line = execution.row(name)
    return (line.reused_positions, line.recomputed_positions, line.transferred_positions)


def published(execution):
    return {o.request_id: o.published_ids for o in execution.outcomes}


def test_identical_prompt_reuses_all_but_its_last_position():
    toy = Toy()
    execution = run(system(), toy, arrivals(("a", 0, "abcd", 2), ("b", 100, "abcd", 2)))
    assert toy.runs == [("", "abc"), ("abc", "d"), ("abcd", "e"), *toy.runs[1:3]]
    assert row(execution, "b") == (3, 2, 0)
    assert execution.row("a").computed_positions == 5
    assert execution.row("b").latency_us == 2 * 3 < execution.row("a").latency_us
    assert execution.outcome("a").published_ids == execution.outcome("b").published_ids


def test_final_state_is_no_prefix_of_an_identical_prompt_but_of_a_continued_one():
    config = system(retention="exact_final_lru")
    lines = (("a", 0, "abcd", 2), ("same", 100, "abcd", 2), ("more", 200, "abcdef", 1))
    execution = run(config, Toy(), arrivals(*lines))
    assert row(execution, "same") == (0, 5, 0)
    assert row(execution, "more")[0] == 5


def test_nothing_is_kept_without_retention():
    config = system(retention="none")
    execution = run(config, Toy(), arrivals(("a", 0, "abc", 1), ("b", 100, "abc", 1)))
    assert row(execution, "b") == (0, 3, 0)
    assert not times(execution, "retained")


def test_a_partial_match_is_no_match():
    execution = run(system(), Toy(), arrivals(("a", 0, "abcx", 1), ("b", 50, "abyz", 1)))
    assert row(execution, "b")[0] == 0
    assert story(execution, "b")[3] == "cache_miss"


def test_the_longest_whole_prefix_wins():
    lines = (("a", 0, "abx", 1), ("b", 50, "abcdx", 1), ("c", 100, "abcdef", 1))
    assert row(run(system(), Toy(), arrivals(*lines)), "c")[0] == 4


def test_full_prefix_execution_reuses_nothing_and_gives_the_same_tokens():
    lines = arrivals(("a", 0, "abcd", 3), ("b", 60, "abcd", 3))
    toy = Toy()
    full = run(system(cached=False), toy, lines)
    assert toy.runs[:3] == [("", "abcd"), ("", "abcde"), ("", "abcdef")]
    assert published(full) == published(run(system(), Toy(), lines))
    assert row(full, "a") == (0, 4 + 5, 0)
    assert full.row("a").computed_positions == 6
    assert not times(full, "cache_miss")
    assert not times(full, "retained")


def test_least_recently_used_is_dropped_when_there_is_no_host():
    # Each leaves 30 bytes and needs 40 while active; c needs 50, and b was used before a2.
    lines = [("a", 0, "aaaa", 1), ("b", 100, "bbbb", 1), ("a2", 200, "aaaa", 1)]
    execution = run(system(device=100), Toy(), arrivals(*lines, ("c", 300, "ccccc", 1)))
    (evicted,) = (e for e in execution.events if e.kind == "evicted")
    assert evicted.state == "toy:2.2.2"
    assert evicted.place == "device"
    assert evicted.bytes == 30
    assert execution.events[evicted.causes[0]].request_id == "c"


def test_victim_moves_to_the_host_and_comes_back():
    lines = [("a", 0, "aaaa", 1), ("b", 100, "bbbb", 1), ("a2", 200, "aaaa", 1)]
    execution = run(system(device=60, host=60), Toy(), arrivals(*lines))
    # b needs 40 of 60 and 30 are held: a's state leaves, 2 + 30/5 us, before b is admitted.
    assert times(execution, "admitted")[1] == 108
    # a2 evicts b's state too, and its own state comes back over the same link after that.
    assert times(execution, "transfer_started") == [100, 200, 208]
    assert times(execution, "transfer_completed") == [108, 208, 216]
    assert row(execution, "a2") == (3, 1, 3)
    assert execution.row("a2").transferred_bytes == 30
    assert execution.row("a2").latency_us == 16 + 3
    assert story(execution, "a2")[2:8] == [
        "admitted",
        "cache_hit",
        "transfer_started",
        "transfer_completed",
        "compute_started",
        "compute_completed",
    ]


def test_victim_that_the_host_has_already_is_dropped_at_once():
    lines = [("a", 0, "aaaa", 1), ("b", 100, "bbbb", 1), ("a2", 200, "aaaa", 1)]
    more = arrivals(*lines, ("c", 300, "cccc", 1))
    execution = run(system(device=60, host=60), Toy(), more)
    evicted = [(e.time_us, e.state, e.place) for e in execution.events if e.kind == "evicted"]
    assert evicted == [(300, "toy:1.1.1", "device")]
    assert execution.row("c").latency_us == 12


def test_full_host_drops_its_own_least_recently_used():
    lines = [("a", 0, "aaaa", 1), ("b", 100, "bbbb", 1), ("c", 200, "cccc", 1)]
    execution = run(system(device=60, host=30), Toy(), arrivals(*lines))
    evicted = [(e.state, e.place) for e in execution.events if e.kind == "evicted"]
    assert evicted == [("toy:1.1.1", "host")]


def test_host_too_small_for_a_state_gets_none():
    lines = [("a", 0, "aaaa", 1), ("b", 100, "bbbb", 1)]
    execution = run(system(device=60, host=29), Toy(), arrivals(*lines))
    assert not times(execution, "transfer_started")
    assert execution.row("b").latency_us == 12


def test_state_that_cannot_stand_beside_its_reservation_becomes_part_of_it():
    lines = [("a", 0, "aaaa", 1), ("a2", 100, "aaaa", 1), ("a3", 200, "aaaa", 1)]
    execution = run(system(device=60), Toy(), arrivals(*lines))
    assert row(execution, "a2") == row(execution, "a3") == (3, 1, 0)
    assert times(execution, "claimed") == [100, 200]
    assert not times(execution, "evicted")


def test_admission_waits_for_the_whole_reservation_in_order_of_arrival():
    lines = [("big", 0, "aaaa", 5), ("next", 1, "bbbb", 3), ("tiny", 2, "c", 1)]
    execution = run(system(device=100, active=3), Toy(), arrivals(*lines))
    admitted = [(e.request_id, e.bytes) for e in execution.events if e.kind == "admitted"]
    assert admitted == [("big", 80), ("next", 60), ("tiny", 10)]
    end = next(e for e in execution.events if e.kind == "completed" and e.request_id == "big")
    waited = next(e for e in execution.events if e.kind == "admitted" and e.request_id == "next")
    assert waited.time_us == end.time_us
    others = {execution.events[cause].request_id for cause in waited.causes[1:]}
    assert others  # it says what it waited for


def test_active_requests_rotate_between_computations():
    execution = run(system(active=2), Toy(), arrivals(("a", 0, "a", 3), ("b", 0, "b", 3)))
    order = [e.request_id for e in execution.events if e.kind == "compute_started"]
    assert order == ["a", "b", "a", "b", "a", "b"]
    alone = run(system(active=1), Toy(), arrivals(("a", 0, "a", 3), ("b", 0, "b", 3)))
    order = [e.request_id for e in alone.events if e.kind == "compute_started"]
    assert order == ["a", "a", "a", "b", "b", "b"]


def test_completion_comes_before_arrival_and_arrival_before_scheduling():
    lines = [("a", 0, "aa", 1), ("b", 6, "ab", 1), ("c", 6, "aa", 1)]
    execution = run(system(active=1), Toy(), arrivals(*lines))
    at = [(e.kind, e.request_id) for e in execution.events if e.time_us == 6]
    assert at.index(("retained", "a")) < at.index(("arrival", "b")) < at.index(("arrival", "c"))
    assert at.index(("arrival", "c")) < at.index(("admitted", "b"))
    assert row(execution, "b")[0] == 1  # what a left at this instant is used at this instant


def test_transfers_overlap_with_the_service_of_others():
    lines = [("a", 0, "aaaa", 1), ("b", 50, "bbbb", 1), ("x", 100, "xx", 8), ("a2", 101, "aaaa", 1)]
    execution = run(system(device=140, host=60), Toy(), arrivals(*lines))
    moved = [e.time_us for e in execution.events if e.request_id == "a2" and "transfer" in e.kind]
    served = [e.time_us for e in execution.events if e.request_id == "x" and "compute" in e.kind]
    assert moved == [116, 124]
    assert served[0] == 108
    assert any(moved[0] < time < moved[1] for time in served)


def test_times_are_exact():
    config = system()
    lines = [(f"r{n}", Fraction(n, 7), "abc", 2) for n in range(5)]
    execution = run(config, Toy(), arrivals(*lines))
    assert all(isinstance(event.time_us, Fraction) for event in execution.events)
    # An idle start at 0, and every computation after it back to back.
    positions = sum(e.positions for e in execution.events if e.kind == "compute_completed")
    assert execution.ended_us == positions * 3


def test_work_bound_by_memory_takes_the_time_of_its_bytes():
    config = system()
    slow = replace(config, compute_service=ComputeServiceConfig(Fraction(2), Fraction(1, 2)))
    execution = run(slow, Toy(), arrivals(("r", 0, "a", 1)))
    assert execution.ended_us == 4 / Fraction(1, 2)
