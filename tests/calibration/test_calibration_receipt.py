import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.calibration import load_receipt
from flashrt.calibration.receipt import load_from_store
from flashrt.calibration.run import choose
from flashrt.document.canonical import canonical_bytes, seal
from flashrt.document.problem import InputError
from flashrt.host.frames import Split
from flashrt_runtime.contract import Seam
from flashrt_runtime.reason import Reason, Refusal

OTHER = "sha256:" + "4" * 64


def test_a_receipt_and_its_table_round_trip(job: Any, tmp_path: Path) -> None:
    made = job.run()
    receipt, table = tmp_path / "r.json", tmp_path / "t.safetensors"
    receipt.write_bytes(canonical_bytes(made.body))
    table.write_bytes(made.table)
    loaded = load_receipt(receipt, table, **job.expected)
    assert loaded.digest == made.digest
    assert dict(loaded.points) == dict(made.points)
    assert loaded.of(job.seams[0]).keys() == job.seams[0].points.keys()


def test_the_same_inputs_have_the_same_digest(job: Any) -> None:
    first = job.run()
    assert job.run().digest == first.digest
    backwards = job.split.calibration[::-1]
    job.split = Split(**{**vars(job.split), "calibration": backwards})
    assert job.run().digest == first.digest


def test_a_receipt_holds_what_it_was_made_of(job: Any) -> None:
    body = job.run(percentile=50.0).body
    frames = {f["id"] for f in body["workload"]["frames"]}
    assert frames == {f.id for f in job.split.calibration}
    assert not frames & {f["id"] for f in body["workload"]["held_out"]}
    assert body["percentile"] == {"asked": 50.0, "effective": 50.0, "method": "linear"}
    assert body["samples"] == 6
    assert body["software"]["torch"] == torch.__version__
    assert len(body["points"]) == sum(len(s.points) for s in job.seams)


def test_it_goes_through_a_store(job: Any, tmp_path: Path) -> None:
    from flashrt.receipt.store import Store

    store = Store(tmp_path / "store")
    made = job.run()
    assert made.save(store) == made.digest
    assert made.save(store) == made.digest
    assert load_from_store(store, made.digest, **job.expected).body == made.body


@pytest.mark.parametrize("which", ["first", "last"])
def test_one_weight_more_or_less_is_another_checkpoint(job: Any, which: str) -> None:
    made = job.run()
    name = sorted(job.model.state_dict())[0 if which == "first" else -1]
    flat = job.model.state_dict()[name].view(-1)
    flat[0 if which == "first" else -1] += 1e-3
    with pytest.raises(Refusal, match="calibrated on") as caught:
        load_receipt(made.body, made.table, **job.expected)
    assert caught.value.reason is Reason.CHECKPOINT


@pytest.mark.parametrize("at", ["64 KiB in", "the end"])
def test_a_weight_far_from_the_beginning_is_another_checkpoint(job: Any, at: str) -> None:
    made = job.run()
    state = job.model.state_dict()
    names = sorted(state)
    offset, name, place = 64 * 1024, names[-1], -1
    if at == "64 KiB in":
        for name in names:
            size = state[name].numel() * state[name].element_size()
            if offset < size:
                break
            offset -= size
        place = offset // state[name].element_size()
    flat = state[name].view(-1).view(torch.int32)
    flat[place] ^= 1  # one bit
    with pytest.raises(Refusal, match="the weights are others") as caught:
        load_receipt(made.body, made.table, **job.expected)
    assert caught.value.reason is Reason.CHECKPOINT
    flat[place] ^= 1
    assert load_receipt(made.body, made.table, **job.expected).digest == made.digest


@pytest.mark.parametrize("then", [None, "sha256:" + "6" * 64])
def test_another_architecture_over_the_same_weights_is_refused(job: Any, then: str | None) -> None:
    made = job.run()
    old = dict(made.body["model_artifact"]) | ({"architecture_digest": then} if then else {})
    body = seal({**made.body, "model_artifact": old})
    now = job.artifact | {"architecture_digest": "sha256:" + "7" * 64}
    with pytest.raises(Refusal, match="config or a module's class") as caught:
        load_receipt(body, made.table, **(job.expected | {"model_artifact": now}))
    assert caught.value.reason is Reason.CHECKPOINT
    same = job.expected | {"model_artifact": now}
    fresh = seal({**made.body, "model_artifact": now})
    assert load_receipt(fresh, made.table, **same).digest == fresh["digest"]


@pytest.mark.parametrize("how", ["id", "content", "document", "twice"])
def test_a_held_out_frame_that_was_calibrated_on_is_refused_though_sealed(
    job: Any, how: str
) -> None:
    made = job.run()
    workload = copy.deepcopy(made.body["workload"])
    first, held = workload["frames"][0], workload["held_out"]
    if how == "id":
        held[0] = dict(first)
    elif how == "content":
        held[0]["digest"] = first["digest"]
    elif how == "document":
        held[0]["id"] = first["id"].rpartition("#")[0] + "#99999"
    else:
        held.append(dict(held[0]))
    with pytest.raises(Refusal) as caught:
        load_receipt(seal({**made.body, "workload": workload}), made.table, **job.expected)
    assert caught.value.reason is Reason.CONFLICT


def test_numbers_of_seams_and_samples_that_do_not_follow_are_refused(job: Any) -> None:
    made = job.run()
    for change in ({"seams": made.body["seams"] + 1}, {"max_samples": made.body["samples"] - 1}):
        with pytest.raises(Refusal) as caught:
            load_receipt(seal({**made.body, **change}), made.table, **job.expected)
        assert caught.value.reason is Reason.STATISTIC


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda was: {"binding": {**was["binding"], "digest": OTHER}}, Reason.BINDING),
        (lambda was: {"binding": None}, Reason.BINDING),
        (lambda was: {"specs": {**was["specs"], "qkv_pack@1": OTHER}}, Reason.STALE_SPEC),
        (lambda was: {"specs": dict([*was["specs"].items()][:1])}, Reason.STALE_SPEC),
        (lambda was: {"specs": {**was["specs"], "vision_ffn@1": OTHER}}, Reason.STALE_SPEC),
    ],
)
def test_another_binding_or_spec_is_refused(
    job: Any, change: Callable[[dict[str, Any]], dict[str, Any]], reason: Reason
) -> None:
    made = job.run()
    with pytest.raises(Refusal) as caught:
        load_receipt(made.body, made.table, **(job.expected | change(job.expected)))
    assert caught.value.reason is reason


def test_other_seams_dtypes_and_tokenizers_are_refused(job: Any) -> None:
    made = job.run()
    cases = [
        ({"seams": job.seams[1:]}, Reason.BINDING),
        ({"model_artifact": job.artifact | {"dtype": "bfloat16"}}, Reason.DTYPE),
        (
            {"model_artifact": job.artifact | {"tokenizer_digest": "sha256:" + "5" * 64}},
            Reason.CHECKPOINT,
        ),
    ]
    for change, reason in cases:
        with pytest.raises(Refusal) as caught:
            load_receipt(made.body, made.table, **(job.expected | change))
        assert caught.value.reason is reason


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in leaves(v, (*path, k))]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in leaves(v, (*path, i))]
    return [path]


def edited(body: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    out = copy.deepcopy(body)
    at: Any = out
    for part in path[:-1]:
        at = at[part]
    value = at[path[-1]]
    if isinstance(value, bool) or value is None:
        at[path[-1]] = 1
    elif isinstance(value, (int, float)):
        at[path[-1]] = value + 1
    else:
        at[path[-1]] = value[:-1] + ("0" if value[-1:] != "0" else "1")
    return out


def test_every_edited_leaf_is_caught(job: Any) -> None:
    made = job.run()
    paths = leaves(made.body)
    assert len(paths) > 200
    for path in paths:
        with pytest.raises(Refusal):
            load_receipt(edited(made.body, path), made.table, **job.expected)


def test_derived_leaves_are_caught_even_when_sealed_again(job: Any) -> None:
    made = job.run()
    free = {"workload", "software", "max_samples", "model_artifact", "seams", "digest"}
    facts = {"rows", "width", "dtype", "calls"}  # what was seen, which only a signature holds
    derived = [p for p in leaves(made.body) if p[0] not in free and not facts & set(p)]
    assert len(derived) > 100
    for path in derived:
        with pytest.raises(Refusal):
            load_receipt(seal(edited(made.body, path)), made.table, **job.expected)


def test_addresses_that_were_edited_and_sealed_again_are_caught(job: Any) -> None:
    made = job.run()
    for path in (("points", 0, "module"), ("points", 3, "seam"), ("points", 2, "point")):
        with pytest.raises(Refusal):
            load_receipt(seal(edited(made.body, path)), made.table, **job.expected)


def test_a_table_that_was_edited_swapped_or_lost_is_refused(job: Any, tmp_path: Path) -> None:
    made = job.run()
    with pytest.raises(Refusal) as caught:
        load_receipt(made.body, made.table[:-1] + b"\x7f", **job.expected)
    assert caught.value.reason is Reason.DIGEST
    with pytest.raises(InputError):
        load_receipt(made.body, tmp_path / "absent.safetensors", **job.expected)
    from flashrt.document.canonical import sha256

    for data in (b"", b"not a table", made.table[:200]):
        with pytest.raises(InputError, match="not a calibration table"):
            load_receipt(seal({**made.body, "table": sha256(data)}), data, **job.expected)


def test_a_table_of_another_shape_is_refused(job: Any) -> None:
    from flashrt.document.canonical import sha256

    made = job.run()
    fewer = job.run(max_samples=3)
    body = seal({**made.body, "table": sha256(fewer.table)})
    with pytest.raises(InputError, match="its shape is"):
        load_receipt(body, fewer.table, **job.expected)


def test_a_file_that_is_no_receipt_is_refused(job: Any, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for text in ("{", "[]", '{"schema": 1}', '{"amax": NaN}', '{"a": 1, "a": 2}'):
        path.write_text(text)
        with pytest.raises(InputError):
            load_receipt(path, b"", **job.expected)


def test_max_samples_stratifies_anew(job: Any) -> None:
    few = job.run(max_samples=4)
    assert few.body["samples"] == 4
    assert few.body["max_samples"] == 4
    ids = [f["id"] for f in few.body["workload"]["frames"]]
    categories = [i.partition("/")[0] for i in ids]
    all_news = sum(f.category == "news" for f in job.split.calibration)
    assert abs(categories.count("news") - 4 * all_news / 6) < 1
    ordered = choose(job.split.calibration, None, 0)
    assert [f.id for f in ordered][:4] != sorted(ids)
    with pytest.raises(Refusal) as caught:
        choose(job.split.calibration, 0, 0)
    assert caught.value.reason is Reason.CONFLICT


def test_a_frame_cannot_be_calibrated_on_and_held_out(job: Any) -> None:
    shared = (*job.split.calibration, job.split.held_out[0])
    job.split = Split(**{**vars(job.split), "calibration": shared})
    with pytest.raises(Refusal, match="held-out set") as caught:
        job.run()
    assert caught.value.reason is Reason.CONFLICT


def test_a_bad_percentile_is_refused_before_anything_runs(job: Any) -> None:
    def never(_frame: Any) -> None:
        raise AssertionError("it ran")

    with pytest.raises(Refusal) as caught:
        job.run(percentile=0.0, run=never)
    assert caught.value.reason is Reason.PERCENTILE


def test_verbose_reports_every_point(job: Any) -> None:
    said: list[str] = []

    def tell(stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
        if stage == "point":
            said.append(note)

    made = job.run(verbose=True, tell=tell)
    assert len(said) == len(made.points)
    assert any(note.startswith("model.layers.0.mlp:act_after_mul amax ") for note in said)


def test_a_point_that_is_never_reached_has_no_scale_and_a_warning(job: Any) -> None:
    spare = nn.Linear(4, 4).eval()
    job.model.add_module("spare", spare)
    from flashrt_runtime.contract import Point

    point = {"x": Point("spare", "input")}
    unreached = Seam("spare", "linear_proj@1", {"self": "spare"}, {}, {}, {}, point)
    job.seams = (*job.seams, unreached)
    made = job.run()
    assert made.points[("spare", "x")].amax is None
    assert any(w.reason is Reason.UNCALIBRATED and w.subject == "spare:x" for w in made.warnings)


def test_a_dead_point_has_no_scale(job: Any) -> None:
    job.model.get_submodule("model.layers.0.mlp.up_proj").weight.data.zero_()
    made = job.run()
    record = made.points[("model.layers.0.mlp", "act_after_mul")]
    assert (record.amax, record.verdict.value) == (None, "dead")
    assert load_receipt(made.body, made.table, **job.expected).digest == made.digest
