"""What both arms run under is read by name, and a change of any of it is told."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.overrides import TorchFunctionMode

from flashrt.qualify.settings import altered, settings

Undo = Callable[[], object]


class Idle(TorchFunctionMode):
    """Changes nothing, and costs every call of torch."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _threads() -> Undo:
    was = torch.get_num_threads()
    torch.set_num_threads(was + 1)
    return lambda: torch.set_num_threads(was)


def _denormals() -> Undo:
    torch.set_flush_denormal(True)
    return lambda: torch.set_flush_denormal(False)


def _mode() -> Undo:
    mode = Idle()
    mode.__enter__()
    return lambda: mode.__exit__(None, None, None)


def _profiler() -> Undo:
    was = sys.getprofile()
    sys.setprofile(lambda *_: None)
    return lambda: sys.setprofile(was)


def _collector() -> Undo:
    was = gc.get_threshold()
    gc.set_threshold(1)
    return lambda: gc.set_threshold(*was)


def _scheduler() -> Undo:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    return lambda: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _hook() -> Undo:
    return torch.nn.modules.module.register_module_forward_hook(lambda *_: None).remove


CHANGES = {
    "threads": _threads,
    "denormals": _denormals,
    "torch modes": _mode,
    "profiler": _profiler,
    "garbage collector": _collector,
    "scheduler": _scheduler,
    "hooks of every module": _hook,
}


@pytest.fixture
def held() -> Iterator[dict[str, object]]:
    before = settings()
    yield before
    assert altered(before) == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_that_was_changed_is_told_by_name(held, name):
    undo = CHANGES[name]()
    try:
        told = altered(held)
    finally:
        undo()
    assert [sentence.partition(" were ")[0] for sentence in told] == [name]


def test_nothing_is_told_of_what_was_not_read():
    assert altered({}) == []
    assert altered({"threads": 1}, {}) == []
    assert altered({"threads": 1}, {"threads": 2}) == ["threads were 1, then 2"]
