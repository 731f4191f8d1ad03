import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.calibration.sampling import allocate, hold_out, quotas, stratify
from flashrt_runtime.reason import Reason, Refusal

SIZES = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 40), min_size=1)
EPISODES = st.dictionaries(  # task -> lengths of its episodes
    st.sampled_from("uvwxyz"),
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    min_size=1,
)
Row = tuple[tuple[str, str], int]


def rows_of(episodes: dict[str, list[int]]) -> list[Row]:
    return [
        ((task, f"{task}{number}"), position)
        for task, lengths in sorted(episodes.items())
        for number, length in enumerate(lengths)
        for position in range(length)
    ]


def drawn(rows: list[Row], count: int, seed: int, **settings) -> list[Row]:
    strata, positions = [r[0] for r in rows], [r[1] for r in rows]
    return [rows[i] for i in stratify(strata, count, seed, positions=positions, **settings)]


@given(SIZES, st.data())
def test_shares_add_up_and_are_within_one_of_their_quota(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, sum(sizes.values())))
    shares, quota = allocate(sizes, count), quotas(sizes, count)
    assert sum(shares.values()) == count == sum(quota.values())
    for name, size in sizes.items():
        assert 0 <= shares[name] <= size
        assert abs(shares[name] - quota[name]) < 1


@given(SIZES, st.data())
def test_a_quota_is_the_proportion_and_one_where_that_is_less(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    held = {name: size for name, size in sizes.items() if size}
    count = data.draw(st.integers(0, sum(sizes.values())))
    quota = quotas(sizes, count)
    above = {n for n in held if quota[n] > 1} if count >= len(held) else set(held)
    rates = {quota[n] / held[n] for n in above}
    assert len(rates) <= 1
    assert all(quota[n] == 1 for n in held.keys() - above)
    assert all(rate * held[n] <= 1 for rate in rates for n in held.keys() - above)


@given(SIZES, st.data())
def test_every_stratum_is_hit_when_there_are_enough(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    held = {name for name, size in sizes.items() if size}
    count = data.draw(st.integers(len(held), sum(sizes.values())))
    assert {name for name, share in allocate(sizes, count).items() if share} == held


def test_the_largest_remainders_round_up() -> None:
    assert allocate({"a": 60, "b": 30, "c": 10}, 2) == {"a": 1, "b": 1, "c": 0}
    assert allocate({"a": 50, "b": 31, "c": 19}, 10) == {"a": 5, "b": 3, "c": 2}
    assert allocate({"big": 1000, "b": 1, "c": 1, "none": 0}, 5) == {
        "big": 3,
        "b": 1,
        "c": 1,
        "none": 0,
    }


@pytest.mark.parametrize("count", [3, -1])
def test_more_than_there_are_is_refused(count: int) -> None:
    with pytest.raises(Refusal) as caught:
        allocate({"a": 2}, count)
    assert caught.value.reason is Reason.EMPTY_CORPUS
    with pytest.raises(Refusal) as caught:
        stratify([("a",), ("a",)], count, 0)
    assert caught.value.reason is Reason.EMPTY_CORPUS


@given(EPISODES, st.integers(0, 9), st.data())
def test_every_task_is_hit_and_no_share_is_off_by_more_than_one(
    episodes: dict[str, list[int]], seed: int, data: st.DataObject
) -> None:
    rows = rows_of(episodes)
    count = data.draw(st.integers(0, len(rows)))
    chosen = drawn(rows, count, seed)
    assert len(set(chosen)) == len(chosen) == count
    tasks = Counter(path[0] for path, _ in chosen)
    quota = quotas({task: sum(lengths) for task, lengths in episodes.items()}, count)
    assert all(abs(tasks[task] - quota[task]) < 1 for task in episodes)
    if count >= len(episodes):
        assert set(tasks) == set(episodes)
    for task, lengths in episodes.items():
        shares = Counter(path[1] for path, _ in chosen if path[0] == task)
        inner = quotas({f"{task}{n}": size for n, size in enumerate(lengths)}, tasks[task])
        assert all(abs(shares[name] - inner[name]) < 1 for name in inner)


@given(EPISODES, st.integers(0, 9), st.randoms(use_true_random=False), st.data())
def test_the_order_of_the_rows_changes_nothing(
    episodes: dict[str, list[int]], seed: int, shuffler: random.Random, data: st.DataObject
) -> None:
    rows = rows_of(episodes)
    count = data.draw(st.integers(0, len(rows)))
    mixed = rows[:]
    shuffler.shuffle(mixed)
    assert drawn(mixed, count, seed) == drawn(rows, count, seed)


@given(EPISODES, st.integers(0, 9), st.data())
def test_what_is_excluded_is_never_drawn(
    episodes: dict[str, list[int]], seed: int, data: st.DataObject
) -> None:
    rows = rows_of(episodes)
    exclude = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    left = [row for i, row in enumerate(rows) if i not in exclude]
    count = data.draw(st.integers(0, len(left)))
    chosen = drawn(rows, count, seed, exclude=exclude)
    assert chosen == drawn(left, count, seed)
    assert set(chosen) <= set(left)


@given(EPISODES, st.integers(0, 9), st.data())
def test_no_episode_is_on_both_sides(
    episodes: dict[str, list[int]], seed: int, data: st.DataObject
) -> None:
    strata = [path for path, _ in rows_of(episodes)]
    spare = sum(len(lengths) - 1 for lengths in episodes.values())
    count = data.draw(st.integers(0, spare))
    calibration, judged = hold_out(strata, count, seed)
    assert sorted(calibration + judged) == list(range(len(strata)))
    sides = [{strata[i] for i in side} for side in (calibration, judged)]
    assert not sides[0] & sides[1]
    assert len(sides[1]) == count
    assert {task for task, _ in sides[0]} == set(episodes)
    able = {task for task, lengths in episodes.items() if len(lengths) > 1}
    if count >= len(able):
        assert {task for task, _ in sides[1]} == able


def test_an_episode_of_two_tasks_is_on_one_side() -> None:
    strata = [("x", "shared"), ("y", "shared"), ("x", "a"), ("y", "b"), ("x", "c")]
    for seed in range(8):
        calibration, judged = hold_out(strata, 1, seed)
        assert not {strata[i][1] for i in calibration} & {strata[i][1] for i in judged}
        assert judged


def test_more_than_can_be_spared_is_not_held_out() -> None:
    with pytest.raises(Refusal) as caught:
        hold_out([("x", "a"), ("y", "b"), ("y", "c")], 2, 0)
    assert caught.value.reason is Reason.EMPTY_CORPUS


def test_every_level_has_its_share() -> None:
    strata = [(c, f"{c}{d}") for c, n in (("x", 6), ("y", 3)) for d in range(n) for _ in range(10)]
    picked = stratify(strata, 18, seed=0)
    assert len(set(picked)) == 18
    assert Counter(strata[i][0] for i in picked) == {"x": 12, "y": 6}
    assert set(Counter(strata[i] for i in picked).values()) == {2}


def test_items_of_one_stratum_are_the_middles_of_equal_stretches() -> None:
    for seed in range(5):
        assert stratify([("a",)] * 9, 3, seed) == [1, 4, 7]
        picked = stratify([("a",)] * 100, 10, seed)
        assert all(i - 10 * k in (4, 5) for k, i in enumerate(picked))


def test_lone_frames_come_from_beginning_middle_and_end_in_turn() -> None:
    strata = [("t", f"e{n}") for n in range(6) for _ in range(9)]
    for seed in range(5):
        places = [i % 9 for i in stratify(strata, 6, seed)]
        assert Counter(places) == {1: 2, 4: 2, 7: 2}


def test_fewer_frames_than_episodes_reach_the_last_ones_whatever_their_length() -> None:
    strata = [("t", f"e{n:02d}") for n in range(20) for _ in range(30 - n)]
    reached = [{strata[i][1] for i in stratify(strata, 4, seed)} for seed in range(30)]
    assert all(len(episodes) == 4 for episodes in reached)
    assert all(max(episodes) >= "e10" and min(episodes) <= "e09" for episodes in reached)
    assert len(set.union(*reached)) > 15


def test_the_seed_decides_which() -> None:
    strata = [(c,) for c in "abcdefgh" for _ in range(9)]
    assert stratify(strata, 11, 1) == stratify(strata, 11, 1)
    assert len({tuple(stratify(strata, 11, seed)) for seed in range(6)}) > 1
    assert stratify(strata, len(strata), 0) == list(range(len(strata)))


def test_strata_of_different_depth_are_refused() -> None:
    with pytest.raises(Refusal) as caught:
        stratify([("a", "b"), ("a",)], 1, 0)
    assert caught.value.reason is Reason.CONFLICT
