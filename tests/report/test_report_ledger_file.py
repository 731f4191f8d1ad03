"""Reading a ledger: bad lines by number, and what is not clean."""

import json

import pytest

from flashrt.document.problem import InputError
from flashrt.report.ledger_file import adapter_table, judge, read_ledger, seam_table, stage_table
from flashrt_runtime.ledger import RunLine
from flashrt_runtime.reason import Reason

RUN = {
    "schema": "flashrt.ledger/1", "kind": "run", "release": "sha256:" + "a" * 64,
    "policy": "refuse", "state": "certified_fast", "reasons": [],
}  # fmt: skip
SEAM = {
    "schema": "flashrt.ledger/1", "kind": "seam", "seam": "layers.0.mlp",
    "structure": "decoder_ffn@1", "backend": "cpu_fp16", "form": "decode", "calls": 3,
    "dispatched": 1, "fallbacks": 0, "replayed": 5, "last_reason": None,
}  # fmt: skip
STAGE = {
    "schema": "flashrt.ledger/1", "kind": "stage", "stage": "decode", "form": ["compile"],
    "replays": 5, "operators": {"layers.0.mlp": 1},
}  # fmt: skip


@pytest.fixture
def ledger(tmp_path):
    def write(*records):
        path = tmp_path / "ledger.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return path

    return write


def found(path):
    return [(p.line, p.reason) for p in judge(path, read_ledger(path))]


def test_clean_run(ledger):
    path = ledger(RUN, SEAM, STAGE)
    runs = read_ledger(path)
    assert found(path) == []
    assert seam_table(runs).rows[0] == (
        "1", "layers.0.mlp", "decoder_ffn@1 cpu_fp16/decode", "3", "5", "1", "0", "",
    )  # fmt: skip
    assert stage_table(runs).rows == [("1", "decode", "compile", "5", "1", "1")]


OUTSIDE = "an eager call is outside the recorded form, which is captured [FRT011 FORM]"
ADAPTER = {
    "schema": "flashrt.ledger/1", "kind": "adapter", "seam": "layers.0.attn", "member": "self",
    "host": "LlamaAttention", "calls": 2, "dispatched": 0, "fallbacks": 0, "replayed": 0,
    "last_reason": None,
}  # fmt: skip


def test_a_call_that_is_the_hosts_by_design_carries_no_refusals_code(ledger):
    path = ledger(RUN, {**SEAM, "last_reason": OUTSIDE})
    assert found(path) == []
    told = seam_table(read_ledger(path)).rows[0][-1]
    assert told == "by design: an eager call is outside the recorded form, which is captured"
    fell = ledger(RUN, {**SEAM, "last_reason": OUTSIDE, "fallbacks": 1})
    assert seam_table(read_ledger(fell)).rows[0][-1] == OUTSIDE


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"fallbacks": 2, "last_reason": "its mask"}, [(3, Reason.FALLBACK)]),
        ({"calls": 0, "dispatched": 3}, [(3, Reason.NEVER_CALLED)]),
        ({"calls": 0, "replayed": 3}, []),
    ],
)
def test_adapters_are_rows_and_are_judged(ledger, change, expected):
    path = ledger(RUN, SEAM, {**ADAPTER, **change}, STAGE)
    assert found(path) == expected
    (row,) = adapter_table(read_ledger(path)).rows
    assert row[:4] == ("1", "layers.0.attn", "self", "LlamaAttention")


def test_an_adapter_row_that_lacks_a_count_is_refused(ledger):
    body = {key: value for key, value in ADAPTER.items() if key != "fallbacks"}
    with pytest.raises(InputError, match="'fallbacks' is a required property"):
        read_ledger(ledger(RUN, body))


def test_replays_alone_are_calls(ledger):
    assert found(ledger(RUN, {**SEAM, "calls": 0})) == []


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([RUN, {**SEAM, "fallbacks": 1}], [(2, Reason.FALLBACK)]),
        ([RUN, {**SEAM, "calls": 0, "replayed": 0, "dispatched": 9}], [(2, Reason.NEVER_CALLED)]),
        (
            [RUN, {**SEAM, "calls": 0, "replayed": 0}, {**SEAM, "fallbacks": 2}],
            [(3, Reason.FALLBACK), (2, Reason.NEVER_CALLED)],
        ),
        ([RUN, SEAM, {**STAGE, "replays": 0}], [(3, Reason.NEVER_CALLED)]),
        ([RUN], [(1, Reason.NEVER_CALLED)]),
        ([{**RUN, "policy": "host", "state": "host"}], []),
        ([RUN, SEAM, {**RUN, "state": "host"}, RUN], [(4, Reason.NEVER_CALLED)]),
    ],
)
def test_what_is_not_clean(ledger, records, expected):
    assert found(ledger(*records)) == expected


def test_a_kept_host_is_no_seam_that_failed(ledger):
    (run,) = read_ledger(ledger({**RUN, "policy": "host", "state": "host"}))
    assert run.kept_host


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        ({"calls": -1}, "$.calls"),
        ({"calls": 1.5}, "$.calls"),
        ({"kind": "other"}, "$.kind"),
        ({"schema": "flashrt.ledger/2"}, "$.schema"),
        ({"surprise": 1}, "$"),
        ({"last_reason": 3}, "$.last_reason"),
        ({"structure": "decoder_ffn"}, "$.structure"),
    ],
)
def test_bad_lines_are_named(ledger, edit, path):
    with pytest.raises(InputError) as refused:
        read_ledger(ledger(RUN, SEAM, {**SEAM, **edit}))
    problem = refused.value.problems[0]
    assert (problem.line, problem.path) == (3, path)


def test_every_bad_line_is_named(ledger):
    path = ledger(RUN)
    path.write_text(path.read_text() + '{"a": NaN}\n\n[1]\n{"a":1,"a":1}\n{"kind"')
    with pytest.raises(InputError) as refused:
        read_ledger(path)
    assert sorted({p.line for p in refused.value.problems}) == [2, 4, 5, 6]


def test_seam_before_any_run(ledger):
    with pytest.raises(InputError, match="before any run"):
        read_ledger(ledger(SEAM, RUN))


def test_nothing_ran(ledger, tmp_path):
    with pytest.raises(InputError, match="nothing ran"):
        read_ledger(ledger())
    with pytest.raises(InputError, match="there is no ledger here; write one"):
        read_ledger(tmp_path / "absent")
    with pytest.raises(InputError):
        read_ledger(tmp_path)


def test_what_the_runtime_writes_is_read(ledger):
    path = ledger(RunLine().record(), SEAM, RunLine(policy="host", state="host").record())
    assert [run.kept_host for run in read_ledger(path)] == [False, True]
    assert found(path) == []
