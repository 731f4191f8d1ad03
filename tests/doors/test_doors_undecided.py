"""A race that other processes disturbed decides nothing, and says that it was they."""

from types import SimpleNamespace

import pytest

from flashrt.doors import decide
from flashrt.race.series import Series, Stopped
from flashrt_runtime.reason import Reason


def test_too_few_quiet_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed = Series((), (), next(iter(Stopped)))
    monkeypatch.setattr("flashrt.race.measure.race", lambda *_, **__: disturbed)
    swap = SimpleNamespace(seam=SimpleNamespace(structure="decoder_ffn@1"))
    interval, because = decide._raced(None, None, [swap], 2.0)
    assert interval is None
    assert because.reason is Reason.NOISE
    assert because.detail == (
        "other processes left 0 of 0 blocks undisturbed in 2 s, too few to decide"
    )
