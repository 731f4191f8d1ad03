from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.calibration.sampling import allocate, stratify
from flashrt_runtime.reason import Reason, Refusal

SIZES = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 40), min_size=1)


@given(SIZES, st.data())
def test_shares_add_up_and_are_within_one_of_proportion(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    total = sum(sizes.values())
    count = data.draw(st.integers(0, total))
    shares = allocate(sizes, count)
    assert sum(shares.values()) == count
    for name, size in sizes.items():
        assert 0 <= shares[name] <= size
        if total:
            assert abs(shares[name] * total - count * size) < total


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(Refusal) as caught:
        allocate({"a": 2}, 3)
    assert caught.value.reason is Reason.EMPTY_CORPUS


def test_every_level_has_its_share() -> None:
    strata = [(c, f"{c}{d}") for c, n in (("x", 6), ("y", 3)) for d in range(n) for _ in range(10)]
    picked = stratify(strata, 18, seed=0)
    assert len(set(picked)) == 18
    assert Counter(strata[i][0] for i in picked) == {"x": 12, "y": 6}
    assert set(Counter(strata[i] for i in picked).values()) == {2}


def test_items_of_one_stratum_are_spread_not_cut_off() -> None:
    for seed in range(5):
        picked = stratify([("a",)] * 100, 10, seed)
        assert [i // 10 for i in picked] == list(range(10))


def test_the_seed_decides_which() -> None:
    strata = [(c,) for c in "abcdefgh" for _ in range(9)]
    assert stratify(strata, 11, 1) == stratify(strata, 11, 1)
    assert len({tuple(stratify(strata, 11, seed)) for seed in range(6)}) > 1
    assert stratify(strata, len(strata), 0) == list(range(len(strata)))
