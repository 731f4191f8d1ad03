"""A receipt and a table that contradict themselves, sealed again by whoever edited them."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from flashrt.calibration import load_receipt
from flashrt.calibration.receipt import seams_digest
from flashrt.calibration.table import FORMAT
from flashrt.document.canonical import seal, sha256
from flashrt.document.problem import InputError
from flashrt_runtime.reason import Reason, Refusal


def _no_calls(body: Any) -> None:
    body["points"][0].update(observed=None, calls=0)


def _swapped(body: Any) -> None:
    frames = body["workload"]["frames"]
    frames[0], frames[1] = frames[1], frames[0]


def _one_content(body: Any, part: str = "frames") -> None:
    frames = body["workload"][part]
    frames[1]["digest"] = frames[0]["digest"]


CONTRADICTIONS: dict[str, Callable[[Any], object]] = {
    "nothing observed in no calls": _no_calls,
    "fewer calls than frames": lambda b: b["points"][0].update(calls=1),
    "no calls": lambda b: b["points"][0].update(calls=0),
    "rows fall": lambda b: b["points"][0]["observed"].update(rows=[99, 1]),
    "no rows": lambda b: b["points"][0]["observed"].update(rows=[0, 16]),
    "no such dtype": lambda b: b["points"][0]["observed"].update(dtype="float32x"),
    "frames not by id": _swapped,
    "one content twice": _one_content,
    "one content twice, held out": lambda b: _one_content(b, "held_out"),
    "a shorter frame": lambda b: b["workload"]["frames"][0].update(positions=3),
    "a longer frame, held out": lambda b: b["workload"]["held_out"][0].update(positions=99),
}


@pytest.mark.parametrize("how", CONTRADICTIONS)
def test_facts_that_contradict_each_other_are_refused_though_sealed(job: Any, how: str) -> None:
    made = job.run()
    body = copy.deepcopy(made.body)
    CONTRADICTIONS[how](body)
    with pytest.raises(Refusal) as caught:
        load_receipt(seal(body), made.table, **job.expected)
    assert caught.value.reason is Reason.STATISTIC


@pytest.mark.parametrize("how", ["format", "trailing", "unseen", "extra"])
def test_a_table_in_another_form_is_refused_though_named(job: Any, how: str) -> None:
    made = job.run()
    tensors = {name: value.copy() for name, value in load(made.table).items()}
    metadata = {"format": "other/9" if how == "format" else FORMAT}
    if how == "unseen":
        tensors["seen"][0, 0] = 0
    if how == "extra":
        tensors["foo"] = np.ones(3)
    data = save(tensors, metadata=metadata) + (b"\0" if how == "trailing" else b"")
    with pytest.raises(InputError) as caught:
        load_receipt(seal({**made.body, "table": sha256(data)}), data, **job.expected)
    assert caught.value.reason is Reason.DIGEST


def test_two_points_of_one_name_are_not_loaded(job: Any) -> None:
    made = job.run()
    seams = (*job.seams, replace(next(s for s in job.seams if s.points), structure="linear_proj@9"))
    body = seal({**made.body, "seams_digest": seams_digest(seams)})
    with pytest.raises(Refusal) as caught:
        load_receipt(body, made.table, **(job.expected | {"seams": seams}))
    assert caught.value.reason is Reason.CONFLICT
