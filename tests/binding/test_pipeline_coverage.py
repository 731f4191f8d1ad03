"""Every hot-path name in exactly one segment: each violation at its own line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flashrt.binding import load_binding
from flashrt.document.problem import InputError

SEGMENTS = "$.pipeline.segments"
VIOLATIONS = [
    ("covers: [ffn]", "covers: [lm_head]", "$.pipeline.hot_path[13]", "ffn is in no segment"),
    ("covers: [ffn]", "covers: [ffn, o_proj]", f"{SEGMENTS}.feed_forward.covers[1]", "owned by"),
    ("covers: [ffn]", "covers: [ffn, mlp]", f"{SEGMENTS}.feed_forward.covers[1]", "not on the hot"),
    ("covers: [ffn]", "covers: [ffn, ffn]", f"{SEGMENTS}.feed_forward.covers[1]", "owned by feed"),
    ("    - ffn\n", "    - ffn\n    - ffn\n", "$.pipeline.hot_path[14]", "named twice"),
    (
        "classification: control",
        "classification: kernel",
        f"{SEGMENTS}.layers.classification",
        "'kernel' is not a classification",
    ),
    ("regions: [ffn]", "regions: [mlp]", f"{SEGMENTS}.feed_forward.regions[0]", "no region mlp"),
    ("regions: [ffn]", "regions: [o]", "$.regions.ffn", "owns nothing on the hot path"),
    (
        "      regions: [ffn]\n",
        "",
        f"{SEGMENTS}.feed_forward",
        "a structure segment must say its regions",
    ),
    (
        "      owner: argmax",
        "      regions: [o]\n      owner: argmax",
        f"{SEGMENTS}.choose.regions",
        "a host_stage segment has no regions",
    ),
    (
        "      state: the next position, one integer\n",
        "",
        f"{SEGMENTS}.positions",
        "a state_region segment must say its state",
    ),
    (
        "stages: [prefill, decode, selection]",
        "stages: [prefill, decode, selecting]",
        "$.pipeline.stages[2]",
        "has no stage selecting",
    ),
    (
        "stages: [prefill, decode, selection]",
        "stages: [prefill, decode]",
        "$.pipeline.stages",
        "requires the stage selection",
    ),
    (
        "stages: [prefill, decode, selection]",
        "stages: [modality, prefill, decode, selection]",
        "$.pipeline.stages[0]",
        "no segment runs in modality",
    ),
    (
        "      stages: [selection]",
        "      stages: [modality]",
        f"{SEGMENTS}.choose.stages[0]",
        "does not bind the stage modality",
    ),
]


@pytest.mark.parametrize(("old", "new", "path", "words"), VIOLATIONS)
def test_a_violation_is_refused_at_load(
    edit: Callable[[str, str], Path], old: str, new: str, path: str, words: str
) -> None:
    file = edit(old, new)
    with pytest.raises(InputError) as caught:
        load_binding(file)
    found = [p for p in caught.value.problems if p.path == path]
    assert found, [str(p) for p in caught.value.problems]
    assert words in found[0].what
    assert found[0].line > 1
    assert str(caught.value).startswith(f"{file}:")
