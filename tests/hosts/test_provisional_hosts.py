"""Hosts that no installable package ships: bound from published keys, and never called covered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt.binding import bindings_root, load_binding, resolve
from flashrt.document.problem import InputError
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason

Keys = dict[str, tuple[int, ...]]
VERSIONS = {"torch": "2.13.0", "transformers": "5.24.0", "diffusers": "0.42.0"}
SEAMS = {"smolvla": 317, "gr00t": 529, "motus": 619}
# tree, prefix: tensors and parameters that the checkpoint's publishers or readers counted
COUNTED = {
    ("smolvla", "model"): (500, "450046176"),
    ("smolvla", "model.vlm_with_expert.vlm"): (345, "350165184"),
    ("smolvla", "model.vlm_with_expert.lm_expert"): (145, "98245840"),
    ("gr00t", "action_head.model"): (456, "1091.7M"),
    ("gr00t", "action_head.action_encoder"): (6, "232.9M"),
    ("gr00t", "action_head.action_decoder"): (4, "37.8M"),
    ("gr00t", "action_head.state_encoder"): (4, "54.6M"),
    ("gr00t", "backbone.model.language_model"): (179, "1426.7M"),
    ("gr00t", "backbone.model.mlp1"): (6, "13.6M"),
    ("motus", "video_model"): (None, "4999.8M"),
    ("motus", "action_expert"): (None, "641.5M"),
    ("motus", "und_expert"): (None, "253.5M"),
}


@pytest.fixture(scope="module", params=list(SEAMS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _seams(name: str, key_tree: Any, keys: Keys) -> list[Seam]:
    return resolve(load_binding(name), key_tree.grow(keys), versions=VERSIONS)


@pytest.mark.parametrize(("name", "prefix"), list(COUNTED))
def test_a_tree_holds_what_was_counted(
    name: str, prefix: str, key_tree: Any, published: Callable[[str], Keys]
) -> None:
    tensors, numbers = key_tree.sizes(published(name), prefix)
    counted, parameters = COUNTED[name, prefix]
    assert counted in (None, tensors)
    said = f"{numbers / 1e6:.1f}M" if parameters.endswith("M") else str(numbers)
    assert said == parameters


def test_every_path_resolves_at_full_size(
    name: str, key_tree: Any, published: Callable[[str], Keys]
) -> None:
    found = _seams(name, key_tree, published(name))
    assert len(found) == len({seam.id for seam in found}) == SEAMS[name]
    static = [seam for seam in found if seam.structure == "cadence_static@1"]
    assert static
    assert all(size > 0 for seam in found for size in seam.dims.values())


def test_layers_that_differ_in_turn_are_bound_in_turn(
    key_tree: Any, published: Callable[[str], Keys]
) -> None:
    found = _seams("smolvla", key_tree, published("smolvla"))
    cross = [s for s in found if s.structure == "cadence_static@1"]
    packed = [s for s in found if s.structure == "qkv_pack@1" and "lm_expert" in s.id]
    assert {s.dims["C"] for s in cross} == {320}
    assert {s.dims["D"] for s in packed} == {720}
    assert len(cross) == 16
    assert len(packed) == 8


def test_it_is_provisional_and_cites_what_it_rests_on(name: str) -> None:
    binding = load_binding(name, require_pipeline_coverage=True)
    assert binding.provisional is not None
    assert len(binding.provisional.sources) >= 4
    assert "package" in binding.provisional.reason or "lerobot" in binding.provisional.reason
    assert binding.manifest()["provisional"]["sources"] == list(binding.provisional.sources)


def test_its_pipeline_says_who_owns_every_step_and_what_is_missing(name: str) -> None:
    pipeline = load_binding(name, require_pipeline_coverage=True).pipeline
    assert pipeline is not None
    assert pipeline.spec.id == "vla_tick_pipeline@1"
    assert pipeline.stages == ("condition", "init", "step", "readout")
    covered = [part for segment in pipeline.segments for part in segment.covers]
    assert sorted(covered) == sorted(pipeline.hot_path)
    assert any(segment.gap for segment in pipeline.segments)


def test_a_key_that_the_checkpoint_lacks_is_refused(
    name: str, key_tree: Any, published: Callable[[str], Keys]
) -> None:
    lost = {"smolvla": "action_out_proj.bias", "gr00t": "vlln.weight", "motus": "head.head.weight"}
    with pytest.raises(InputError, match="no tensor") as caught:
        _seams(name, key_tree, dict(key_tree.without(published(name), lost[name])))
    assert {p.reason for p in caught.value.problems} == {Reason.BINDING}


def test_a_width_that_contradicts_another_is_refused(
    name: str, key_tree: Any, published: Callable[[str], Keys]
) -> None:
    part = {
        "smolvla": "text_model.layers.3.mlp.up_proj.weight",
        "gr00t": "transformer_blocks.4.attn1.to_v.weight",
        "motus": "blocks.7.cross_attn.v.weight",
    }
    keys = published(name)
    key = next(key for key in keys if key.endswith(part[name]))
    out, into = keys[key]
    with pytest.raises(InputError) as caught:
        _seams(name, key_tree, keys | {key: (out, into + 1)})
    assert Reason.SHAPE in {p.reason for p in caught.value.problems}


def test_indices_need_a_list_of_layers(tmp_path: Path) -> None:
    text = (bindings_root() / "smolvla.yaml").read_text()
    old = "    module: model.action_out_proj\n"
    file = tmp_path / "smolvla.yaml"
    file.write_text(text.replace(old, f"{old}    indices: {{from: 0, step: 2}}\n", 1))
    with pytest.raises(InputError, match="no indices to choose from") as caught:
        load_binding(file)
    assert caught.value.problems[0].path == "$.regions.action_out.indices"
