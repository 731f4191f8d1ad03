"""The run: plans in, processes, receipts that verify; and what is stored when it goes wrong."""

from __future__ import annotations

import errno
import json
import os

import pytest

from flashrt.qualify.merge import merge
from flashrt.qualify.request import CellRequest
from flashrt.qualify.run import plan_cells, qualify
from flashrt.receipt.spec_gates import catalog_gates
from flashrt.receipt.store import Store
from flashrt.receipt.verify import verify
from flashrt_runtime.reason import Because, Reason, Refusal

DECODE = CellRequest.parse("fp16_weight@decode")
BYTES = CellRequest.parse("w8a16_decode@decode")
LONG = CellRequest.parse("w8a16_decode@prefill:256")


def quiet(text):
    """Progress that nobody reads."""


def names(receipt):
    return [Reason.of(b["code"]).name for b in receipt["verdict"]["reasons"]]


def test_receipts_are_stored_and_hold_against_the_catalog(run_of, fake):
    run = run_of(command=("flashrt", "qualify"))
    said = []
    results = qualify(run, (DECODE, BYTES, DECODE), said.append, fake)
    assert [result.request for result in results] == [DECODE, BYTES]
    assert [result.state for result in results] == ["certified_fast"] * 2
    stored = list(run.store.list("qualification"))
    assert {body["digest"] for body in stored} == {r.receipt["digest"] for r in results}
    for body in stored:
        assert verify(body, catalog_gates) == []
        plan = run.store.get("plan", body["plan"])
        assert plan["scheme"] == body["cell"]["precision"]["scheme"]
        assert body["execution"]["processes"] == 3
        assert body["attempts"] == []
    assert [job.process for job in fake.jobs] == [0, 1, 2]
    assert any("process 3 of 3" in text for text in said)
    assert any("[2/3" in text and "measured 2 cells" in text for text in said)


def test_two_processes_are_refused_before_anything_runs(run_of, fake):
    with pytest.raises(Refusal) as caught:
        qualify(run_of(processes=2), (DECODE,), quiet, fake)
    assert caught.value.reason is Reason.THRESHOLD
    assert fake.jobs == []


@pytest.mark.parametrize(
    ("stated", "subject"),
    [
        ({"margin": 1.0}, "margin"),
        ({"margin": float("nan")}, "margin"),
        ({"floors": {"beauty": 1.0}}, "floors.beauty"),
    ],
)
def test_what_lowers_a_gate_or_is_no_metric_is_refused_and_stores_nothing(
    run_of, fake, stated, subject
):
    run = run_of(**stated)
    with pytest.raises(Refusal) as caught:
        qualify(run, (DECODE,), quiet, fake)
    assert (caught.value.reason, caught.value.subject) == (Reason.THRESHOLD, subject)
    assert fake.jobs == []
    assert list(run.store.list("plan")) == list(run.store.list("incomplete")) == []


def test_a_margin_above_the_specs_and_a_floor_are_in_the_receipt(run_of, fake):
    run = run_of(margin=1.10, floors={"top1_agreement": 0.9})
    (result,) = qualify(run, (DECODE,), quiet, fake)
    assert result.receipt["thresholds"]["margin"] == 1.10
    assert result.receipt["thresholds"]["floors"] == {"top1_agreement": 0.9}
    assert verify(result.receipt, catalog_gates) == []
    (strict,) = qualify(run_of(floors={"top1_agreement": 0.99}), (DECODE,), quiet, fake)
    assert (strict.state, set(names(strict.receipt))) == ("unknown", {"FLOOR"})
    assert strict.gate_failed


def test_a_cell_that_no_form_serves_is_refused_naming_form_and_size(run_of, fake):
    results = qualify(run_of(), (DECODE, LONG), quiet, fake)
    measured, refused = results
    assert refused.receipt is None
    assert refused.because[0].reason is Reason.FORM
    assert "form decode" in refused.because[0].detail
    assert "256" in refused.because[0].detail
    assert measured.state == "certified_fast"
    assert all(job.cells == (DECODE,) for job in fake.jobs)


def test_nothing_runs_when_every_cell_is_refused(run_of, fake):
    run = run_of()
    unknown = CellRequest.parse("fp3_magic@decode")
    results = qualify(run, (LONG, unknown), quiet, fake)
    assert [r.because[0].reason for r in results] == [Reason.FORM, Reason.CONFLICT]
    assert fake.jobs == []
    assert list(run.store.list("plan")) == []


def test_an_interrupt_leaves_a_record_for_every_cell_and_goes_on(run_of, fake):
    def interrupt(job):
        if job.process == 1:
            raise KeyboardInterrupt

    run = run_of()
    fake.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        qualify(run, (DECODE, BYTES), quiet, fake)
    records = list(run.store.list("incomplete"))
    assert {body["request"]["cell"] for body in records} == {DECODE.text, BYTES.text}
    for body in records:
        assert verify(body, catalog_gates) == []
        assert body["verdict"]["state"] == "unknown"
        assert names(body) == ["INCOMPLETE"]
        assert body["verdict"]["reasons"][0]["subject"] == "process 2"
        assert body["execution"]["processes"] == 1
    assert list(run.store.list("qualification")) == []


def test_any_end_is_an_attempt_that_leaves_its_record(run_of, fake):
    def broken_pipe(job):
        raise BrokenPipeError("whoever read the progress went away")

    run = run_of()
    fake.before = broken_pipe
    with pytest.raises(BrokenPipeError):
        qualify(run, (DECODE,), quiet, fake)
    (record,) = run.store.list("incomplete")
    assert names(record) == ["INCOMPLETE"]


def test_a_process_that_dies_leaves_its_last_words(run_of, fake):
    def die(job):
        raise Refusal(Reason.INCOMPLETE, "ended with code -9: out of memory", subject="process 0")

    run = run_of()
    fake.before = die
    with pytest.raises(Refusal) as caught:
        qualify(run, (DECODE,), quiet, fake)
    assert caught.value.reason is Reason.INCOMPLETE
    (record,) = run.store.list("incomplete")
    assert "out of memory" in record["verdict"]["reasons"][0]["detail"]
    assert verify(record, catalog_gates) == []


def test_every_later_attempt_lists_the_earlier_ones_and_may_spend_less(run_of, fake):
    run = run_of()
    fake.ratio = 0.9
    (first,) = qualify(run, (DECODE,), quiet, fake)
    assert first.state == "supported_correct"
    assert "LOSS" in names(first.receipt)

    def interrupt(job):
        raise KeyboardInterrupt

    fake.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        qualify(run, (DECODE,), quiet, fake)
    fake.before, fake.ratio = (lambda job: None), 1.5
    (third,) = qualify(run, (DECODE,), quiet, fake)
    (stopped,) = run.store.list("incomplete")
    assert {a["digest"] for a in third.receipt["attempts"]} == {
        first.receipt["digest"],
        stopped["digest"],
    }
    assert third.receipt["supersedes"] == first.receipt["digest"]
    assert third.receipt["thresholds"]["attempt"] == 3
    assert verify(third.receipt, catalog_gates) == []
    live = run.store.live(third.receipt["cell_digest"])
    assert live is not None
    assert live["digest"] == third.receipt["digest"]
    alphas = [plan_cells(r, (DECODE,))[0][0].thresholds.alpha_series for r in (run_of(), run)]
    assert alphas[0] == alphas[1]  # the same store: both see all three attempts
    other = run_of(store=Store(run.store.root / "other"))
    assert plan_cells(other, (DECODE,))[0][0].thresholds.alpha_series == 8 * alphas[0]


def test_two_that_wrote_at_once_are_superseded_and_revoked_by_the_next(run_of, fake):
    store = run_of().store

    def write_another(job):
        if job.process == 0:
            fake.before = lambda job: None
            qualify(run_of(store=store), (DECODE,), quiet, fake)

    fake.before = write_another
    (late,) = qualify(run_of(store=store), (DECODE,), quiet, fake)
    heads = [body["digest"] for body in store.heads(late.receipt["cell_digest"])]
    assert len(heads) == 2
    with pytest.raises(Refusal) as caught:
        store.live(late.receipt["cell_digest"])
    assert caught.value.reason is Reason.AMBIGUOUS
    (healed,) = qualify(run_of(store=store), (DECODE,), quiet, fake)
    assert healed.receipt["supersedes"] == heads[-1]
    assert healed.receipt["revokes"] == heads[:-1]
    assert store.live(healed.receipt["cell_digest"])["digest"] == healed.receipt["digest"]
    assert all(verify(body, catalog_gates) == [] for body in store.list("qualification"))


def test_a_full_disk_is_said_and_earlier_receipts_are_untouched(run_of, fake, monkeypatch):
    run = run_of()
    qualify(run, (DECODE,), quiet, fake)
    before = {p: p.read_bytes() for p in run.store.root.rglob("*") if p.is_file()}

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill(job):
        monkeypatch.setattr(os, "fsync", full)

    fake.before = fill
    with pytest.raises(Refusal) as caught:
        qualify(run, (DECODE,), quiet, fake)
    assert caught.value.reason is Reason.STORAGE
    assert "No space left" in caught.value.what
    assert {p: p.read_bytes() for p in run.store.root.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("processes", [(0, 1, 2), (1,)])
def test_a_cell_that_could_not_be_captured_gets_a_receipt_that_holds(run_of, fake, processes):
    because = Because(Reason.UNCAPTURABLE, "a graph break in attention", "decode/1")
    shared = ("process", "empty_control", "null", "dtype_hosts", "judged")

    def refuse(fragment):
        if fragment["process"] in processes:
            kept = {key: fragment[key] for key in shared}
            fragment.clear()
            fragment.update(kept, refused=because.record())

    fake.change = refuse
    (result,) = qualify(run_of(), (DECODE,), quiet, fake)
    assert result.state == "unknown"
    assert result.because[0].reason is Reason.INCOMPLETE
    assert "UNCAPTURABLE: a graph break in attention" in result.because[0].detail
    assert not result.measured
    assert result.receipt["execution"]["processes"] == 3 - len(processes)
    assert verify(result.receipt, catalog_gates) == []


SPOILED = {
    "EMPTY_CONTROL": lambda f, d: f["empty_control"].update(digests=[d("a"), d("b")]),
    "ROLLBACK": lambda f, d: f["rollback"].update(digests=[d("a"), d("b")]),
    "FALLBACK": lambda f, d: f["path"].update(fallbacks=3),
    "NEVER_CALLED": lambda f, d: f["path"]["graph_calls"].update(
        {next(iter(f["path"]["graph_calls"])): 0}
    ),
    "CONSTANT": lambda f, d: f["poison"].update(inputs_honoured=False),
}


@pytest.mark.parametrize("reason", SPOILED)
def test_one_process_with_a_failed_control_is_a_failed_gate(run_of, fake, factory, reason):
    def spoil(fragment):
        if fragment["process"] == 2:
            SPOILED[reason](fragment, factory.digest)

    fake.change = spoil
    (result,) = qualify(run_of(), (DECODE,), quiet, fake)
    assert (result.state, names(result.receipt)) == ("unknown", [reason])
    assert result.gate_failed
    assert verify(result.receipt, catalog_gates) == []


def test_evidence_is_json_and_holds_no_path_of_this_machine(run_of, fake, home):
    (result,) = qualify(run_of(), (DECODE,), quiet, fake)
    text = json.dumps(result.receipt, allow_nan=False)
    assert str(home) not in text
    assert merge([], {}, {}, "held_out")["processes"] == []
