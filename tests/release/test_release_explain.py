"""``explain``: every receipt, the first fact that differs, and words that mean nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flashrt.release.asked import Words, named
from flashrt.release.explain import consider, differ, table
from flashrt.release.facts import Fact, facts_of
from flashrt_cli import main
from flashrt_runtime.reason import Because, Reason, Refusal


@pytest.fixture
def run(make, verifier, tmp_path, monkeypatch, capsys):
    """Run ``explain`` over this store; its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("flashrt_cli.explain.open_verifier", lambda: verifier)
    make.store.root.mkdir(exist_ok=True)

    def call(*args: str):
        code = main.run(["explain", *args, "--store", str(make.store.root)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def receipts(make) -> list[dict[str, Any]]:
    return list(make.store.list("qualification"))


def body_of(make, *args: Any, **changes: Any) -> dict[str, Any]:
    return dict(make.store.get("qualification", make.receipt(*args, **changes)))


def test_a_cells_own_facts_all_hold_and_its_digest_is_the_last(make):
    body = body_of(make)
    facts = facts_of(body["cell"], body["cell_digest"])
    assert all(fact.holds(body) for fact in facts)
    assert facts[-1].name == "cell_digest"
    assert Fact("cell.calibration", None, stated=True) in facts
    assert "cell.structures.0.spec_digest" in [fact.name for fact in facts]


def test_a_fact_that_only_one_side_has_is_a_mismatch(make):
    body = body_of(make)
    more = {**body["cell"], "software": {**body["cell"]["software"], "torchao": "1"}}
    (seen,) = consider([body], facts_of(more, "sha256:other"))
    assert seen.mismatch == Fact("cell.software.torchao", "1", stated=True)
    assert seen.mismatch.found_in(body) is None
    less = {**body["cell"], "software": {"torch": "2.13.0"}}
    (seen,) = consider([body], facts_of(less, "sha256:other"))
    assert seen.mismatch.name == "cell_digest"


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"software": {"torch": "2.13.0", "flashrt": "0.1.0", "zlib": "1"}},
         ("cell.software.zlib", "1", None)),
        ({"form": ["aot"]}, ("cell.form", ["aot"], ["compile"])),
        ({"calibration": "sha256:" + "c" * 64},
         ("cell.calibration", "sha256:" + "c" * 64, None)),
        ({"shape": {"phase": "decode", "batch": 2, "rows": 1, "context": 64}},
         ("cell.shape.batch", 2, 1)),
    ],
)  # fmt: skip
def test_a_cells_digest_lists_every_receipt_with_its_first_mismatch(run, make, changes, differs):
    first, wanted = make.receipt(), body_of(make, cell=changes)
    for subject in (wanted["cell_digest"], wanted["digest"][7:19]):
        code, out, _ = run(subject, "--format", "json")
        assert code == 0
        mine, other = json.loads(out)["considered"]
        assert (mine["receipt"], mine["mismatch"]) == (wanted["digest"], None)
        assert other["receipt"] == first
        assert other["mismatch"] == dict(zip(("fact", "expected", "found"), differs, strict=True))


def test_an_unknown_digest_still_lists_every_receipt(run, make):
    make.receipt(), make.receipt("w8a16_decode")
    code, out, _ = run("sha256:" + "f" * 64, "--format", "json")
    assert code == 3
    seen = json.loads(out)["considered"]
    assert len(seen) == 2
    assert {s["mismatch"]["fact"] for s in seen} == {"cell_digest"}


def test_an_empty_store_has_no_receipt(run):
    code, out, _ = run("f" * 12)
    assert code == 3
    assert "there is no receipt" in out


def test_a_cell_may_be_said_as_it_is_asked_for(run, make):
    digest = make.receipt()
    make.receipt("w8a16_decode")
    code, out, _ = run("fp16_weight@decode")
    assert code == 0
    assert f"receipt {digest} answers" in out
    assert "precision.scheme" in out
    assert run("fp16_weight@prefill:16")[0] == 3


def test_two_live_receipts_answer_nothing_and_are_named(run, make):
    both = {make.receipt(), make.receipt(speedup=1.4)}
    code, out, _ = run("fp16_weight@decode", "--format", "json")
    assert code == 3
    data = json.loads(out)
    assert data["answers"] is False
    assert {s["receipt"] for s in data["considered"]} == both
    assert {s["dead"]["name"] for s in data["considered"]} == {"AMBIGUOUS"}
    title = run("fp16_weight@decode")[1].splitlines()[0]
    assert all(digest[7:19] in title for digest in both)
    assert "--revoke" in title
    assert run("w8a16_decode@decode")[1].startswith("unknown cell: none of 2 receipts")


def test_a_receipt_that_does_not_recompute_answers_nothing(run, make, monkeypatch):
    make.receipt()
    wrong = Because(Reason.VERDICT, "the samples say otherwise", "$.verdict")
    monkeypatch.setattr("flashrt_cli.explain.open_verifier", lambda: lambda body: [wrong])
    code, out, _ = run("fp16_weight@decode")
    assert code == 3
    assert "VERDICT: the samples say otherwise" in out


def test_superseded_receipts_say_by_what(run, make):
    older = make.receipt()
    newer = make.receipt(supersedes=older)
    code, out, _ = run(older)
    assert code == 0
    assert f"receipt {newer} answers" in out
    assert f"superseded by receipt {newer[7:19]}" in out


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["UNCAPTURABEL"], "did you mean UNCAPTURABLE"),
        (["frt0004"], "FRT004"),
        (["some words"], "no cell, digest or reason"),
        (["abc"], "no cell, digest or reason"),
        (["fp61_weight@decode"], "did you mean fp16_weight"),
        (["fp16_weight@decod"], "decode, prefill"),
        (["fp16_weight@decode:4"], "rows do not fit"),
        (["--scheme", "w8a16_decod"], "did you mean w8a16_decode"),
        (["--phase", "prefil"], "did you mean prefill"),
        (["--device", "cpuu"], "did you mean cpu"),
        (["--device", "sm9"], "no device"),
        (["--host", "smolm2"], "did you mean smollm2"),
        (["--rows", "0"], "--rows"),
        (["--batch", "-1"], "--batch"),
    ],
)
def test_a_misspelt_word_is_refused_and_is_no_unknown_cell(run, make, args, hint):
    make.receipt()
    code, out, err = run(*args)
    assert code == 2
    assert hint in err
    assert "unknown cell" not in out + err


def test_words_that_only_a_record_has_are_no_misspellings(run, make):
    make.receipt("my_own_scheme")
    code, out, _ = run("--host", "tiny", "--scheme", "my_own_scheme")
    assert code == 0
    assert "answers" in out


def test_digits_that_two_cells_begin_with_are_ambiguous(make):
    body = body_of(make)
    other = {**body, "cell_digest": body["cell_digest"][:-1] + "~"}
    with pytest.raises(Refusal, match="2 cells begin so") as caught:
        named(body["cell_digest"][7:19], [body, other])
    assert caught.value.reason is Reason.AMBIGUOUS


def test_a_measurement_that_ended_early_names_its_cell_too(make):
    body = body_of(make)
    record = {"cell": body["cell"], "cell_digest": body["cell_digest"], "digest": "sha256:ab"}
    assert named(body["cell_digest"], [record]) == facts_of(body["cell"], body["cell_digest"])
    nothing = {"cell": None, "cell_digest": None, "digest": "sha256:cd"}
    Words(scheme="fp16_weight", device="sm_90").check([nothing])
    assert Words(device="sm90").facts()[1] == Fact("cell.device.arch", "9.0")


def test_of_two_lists_only_what_differs_is_shown(make):
    assert differ(["avx2", "amx"], ["avx2"]) == ("amx", "(no more)")
    assert differ(["a", "b"], ["b", "a"]) == ("a b", "b a")
    assert differ(None, 3) == ("unknown", "3")
    body = body_of(make)
    (seen,) = consider([body], [Fact("cell.device.isa", ["avx2", "amx"])])
    assert table([seen]).rows[0][3:6] == ("device.isa", "amx", "(no more)")
