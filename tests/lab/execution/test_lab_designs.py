"""What the designs answer: each claim that docs/lab.md makes is asserted here."""

from fractions import Fraction

import pytest

from flashrt.lab.execution import compare, explain, find_design, list_designs, wrong_with

ARMS = [(found.design.name, arm) for found in list_designs() for arm in found.arms]


def total(stored, field):
    return sum(getattr(row, field) for row in stored.record.ledger)


def latency(stored, request):
    return next(r.latency_us for r in stored.record.ledger if r.request_id == request)


def ended(stored):
    return {name: one.stop_reason for name, one in stored.outcomes.items()}


@pytest.mark.parametrize(("design", "arm"), ARMS)
def test_each_record_follows_from_its_evidence_and_each_chain_sums_exactly(ran, design, arm):
    stored = ran(design, arm)
    assert wrong_with(stored) == []
    for row in stored.record.ledger:
        chain = explain(stored, row.request_id)
        assert isinstance(chain.total_us, Fraction)
        assert chain.total_us == chain.latency_us == row.latency_us
        assert sum(chain.spent().values(), Fraction(0)) == row.latency_us


@pytest.mark.parametrize(
    "design", sorted({name for name, _ in ARMS} - {"cancellation", "refusals"})
)
def test_settings_change_time_and_never_an_answer(ran, design):
    arms = find_design(design).arms
    for arm in arms[1:]:
        found = compare(ran(design, arms[0]), ran(design, arm))
        assert found.outputs_identical
        same, made = found.scores
        assert same == made > 0


def test_an_identical_prompt_hits(ran):
    none, kept = (ran("repeated_prompt", arm) for arm in ("none", "exact_prefix_lru"))
    assert total(none, "reused_positions") == 0
    reused = {row.request_id: row.reused_positions for row in kept.record.ledger}
    assert reused["again"] == reused["third"] > 20
    assert reused["first"] == reused["other"] == 0
    assert latency(kept, "again") < latency(none, "again") / 3


def test_a_shared_beginning_does_not(ran):
    kept = ran("shared_beginning", "exact_prefix_lru")
    assert total(kept, "reused_positions") == 0
    assert total(kept, "recomputed_positions") > 0


def test_rotation_costs_the_mean_and_moves_no_end(ran):
    one, two, four = (ran("rotation", arm) for arm in ("one", "two", "four"))
    means = [total(s, "latency_us") for s in (one, two, four)]
    assert means == sorted(means)
    assert len(set(means)) == 3
    ends = {s.record.execution.virtual.ended_us for s in (one, two, four)}
    assert len(ends) == 1


def test_a_transfer_beats_recomputing_down_to_some_rate(ran):
    arms = ["recompute", "link_1000", "link_100", "link_25", "link_10"]
    times = {arm: latency(ran("transfer_or_recompute", arm), "a_2") for arm in arms}
    assert times["link_1000"] < times["link_100"] < times["recompute"]
    assert times["recompute"] < times["link_25"] < times["link_10"]


def test_a_host_tier_saves_what_it_can_hold(ran):
    none, one, every = (ran("host_tier", arm) for arm in ("none", "one_state", "all_states"))
    assert total(none, "reused_positions") == total(one, "reused_positions") == 0
    assert total(one, "latency_us") > total(none, "latency_us")  # moved out, and never used
    assert total(every, "reused_positions") == total(every, "transferred_positions") > 100
    assert total(every, "latency_us") < total(none, "latency_us")


def test_a_smaller_device_evicts_more(ran):
    arms = [ran("device_budget", arm) for arm in ("one_state", "two_states", "all_states")]
    evicted = [sum(e.kind == "evicted" for e in s.record.events) for s in arms]
    reused = [total(s, "reused_positions") for s in arms]
    assert evicted == sorted(evicted, reverse=True)
    assert evicted[-1] == 0
    assert reused == sorted(reused)
    assert reused[0] == 0


def test_full_reservation_bounds_how_many_are_active(ran):
    def most(arm):
        active, peak = 0, 0
        for event in ran("full_reservation", arm).record.events:
            active += (event.kind == "admitted") - (event.kind == "released")
            peak = max(peak, active)
        return peak

    assert [most(arm) for arm in ("tight", "half", "wide")] == [1, 2, 4]


def test_continuing_a_state_changes_no_bit(ran):
    full, cached = (ran("cached_or_full_prefix", arm) for arm in ("full_prefix", "cached"))
    assert total(full, "reused_positions") == 0
    assert total(cached, "reused_positions") > 0  # a miss is exact too
    assert compare(full, cached).scores == (12, 12)
    assert total(cached, "latency_us") < total(full, "latency_us") / 5


def test_memory_traffic_bounds_row_serial_service(ran):
    arms = ("baseline", "compute_x10", "memory_x10", "both_x10")
    times = {arm: total(ran("compute_or_memory", arm), "latency_us") for arm in arms}
    assert times["compute_x10"] == times["baseline"]
    assert times["memory_x10"] < times["baseline"]
    assert times["both_x10"] * 10 == times["baseline"]


def test_a_slow_reader_holds_up_who_is_behind(ran):
    arms = ("unbounded", "four_tokens", "one_token")
    times = [latency(ran("slow_reader", arm), "behind") for arm in arms]
    assert times == sorted(times)
    assert len(set(times)) == 3
    chain = explain(ran("slow_reader", "one_token"), "slow")
    assert chain.spent()["wait for the customer"] > chain.latency_us / 2


def test_a_cancellation_meets_a_request_where_it_is(ran):
    one, two = (ran("cancellation", arm) for arm in ("one_active", "two_active"))
    assert ended(one)["queued"] == ended(two)["queued"] == "cancelled"
    assert explain(two, "served").spent().keys() == {"service", "wait for its turn"}
    waiting, working = explain(one, "queued"), explain(two, "queued")
    assert waiting.end.time_us == 2400  # in the queue: at once
    assert working.end.time_us > 2400  # in service: when its work ends
    assert working.segments[-2].last.kind == "compute_completed"
    assert ended(two)["served"] == "cancelled"
    assert ended(one)["kept"] == "budget"  # too late
    assert [e.message for e in one.record.errors] == ["it was not"]  # before it was sent


def test_two_hops_save_and_stream_at_the_slowest_rate(ran):
    none, host = (ran("two_hops", arm) for arm in ("no_host", "host"))
    assert latency(host, "a_2") < latency(none, "a_2")
    chain = explain(host, "a_2")
    moved = next(row for row in host.record.ledger if row.request_id == "a_2").transferred_bytes
    assert chain.spent()["transfer"] == 40 + Fraction(moved, 500)


def test_each_refusal_names_subject_and_rule(ran):
    plain, ceilings = (ran("refusals", arm) for arm in ("no_ceiling", "ceilings"))
    said = {name: one.error.subject for name, one in plain.outcomes.items() if one.error}
    assert said == {
        "long_prompt": "InferenceRequest.text",
        "large_budget": "KVCacheConfig.device_kv_bytes",
    }
    said = {name: one.error.subject for name, one in ceilings.outcomes.items() if one.error}
    assert set(said) == {"long_prompt", "large_budget", "also_fits"}
    assert ended(plain)["fits"] == ended(plain)["also_fits"] == "budget"
