"""The commands over a store: what they print, write and exit with."""

import json

import pytest

from flashrt_cli import main
from flashrt_runtime.reason import Because, Reason


@pytest.fixture(autouse=True)
def here(make, verifier, tmp_path, monkeypatch):
    """Run in an empty folder, with the tests' catalog and outside any CI."""
    monkeypatch.chdir(tmp_path)
    for name in ("CI", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    for module in ("verify", "matrix", "publish_receipts", "explain"):
        monkeypatch.setattr(f"flashrt_cli.{module}.open_verifier", lambda: verifier)


@pytest.fixture
def run(make, capsys):
    """Run a command with this store; its exit code and what it printed."""

    def call(*args, store=True):
        extra = ["--store", str(make.store.root)] if store else []
        code = main.run([*args, *extra])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_keys(run, tmp_path):
    code, out, _ = run("keys", "new", "k", store=False)
    assert code == 0
    assert "keep k private" in out
    shown = json.loads(run("keys", "show", "k.pub", "--format", "json", store=False)[1])
    assert shown["keyid"] in out
    assert run("keys", "show", "k", store=False)[1].startswith("key id sha256:")
    code, _, err = run("keys", "new", "k", store=False)
    assert code == 2
    assert "never overwritten" in err
    (tmp_path / "p").write_text("secret")
    assert run("keys", "new", "locked", "--passphrase-file", "p", store=False)[0] == 0
    assert run("keys", "show", "locked", store=False)[0] == 2
    assert run("keys", "show", "locked", "--passphrase-file", "p", store=False)[0] == 0


def test_verify_holds(run, make):
    digest = make.receipt()
    for subjects in ([], [digest], [digest[7:17]], [str(make.store.path("qualification", digest))]):
        code, out, _ = run("verify", *subjects)
        assert code == 0
        assert "every claim holds" in out
    cell = make.store.get("qualification", digest)["cell_digest"]
    assert run("verify", cell)[0] == 0
    assert "1 receipts recomputed" in run("verify", str(make.store.root))[1]


def test_verify_catches_edits_as_they_are_and_resealed(run, make, tmp_path):
    digest = make.receipt(speedup=1.0)
    path = make.store.path("qualification", digest)
    body = make.store.get("qualification", digest)
    edited = {**body, "verdict": {**body["verdict"], "state": "certified_fast"}}
    path.write_text(json.dumps(edited))
    code, out, _ = run("verify")
    assert code == 1
    assert "$.digest" in out
    path.write_text(json.dumps(body))
    assert run("verify")[0] == 0
    make.replace("qualification", digest, edited)
    code, out, _ = run("verify", "--format", "json")
    assert code == 1
    assert json.loads(out)["verified"] is False
    assert "$.verdict.state" in out


def test_verify_unreadable_exits_2(run, make, tmp_path):
    (tmp_path / "x.json").write_text('{"kind": "qualification", "kind": 1}')
    assert run("verify", "x.json")[0] == 2
    (tmp_path / "x.json").write_text("{}")
    code, _, err = run("verify", "x.json")
    assert code == 2
    assert "x.json:1: $.kind" in err
    assert run("verify", "nothing")[0] == 2
    assert run("verify", "--store", "absent", store=False)[0] == 2


def test_verify_empty_store_measured_nothing(run):
    assert run("verify", store=False)[0] == 3


def test_publish_and_verify_a_signed_release(run, make):
    make.receipt()
    make.receipt("w8a16_decode", speedup=1.0)
    run("keys", "new", "k", store=False)
    code, out, err = run("publish-receipts", "--to", "out/r1", "--key", "k")
    assert (code, err) == (0, "")
    assert "2 cells, 1 certified fast" in out
    again = run("publish-receipts", "--to", "out/r1", "--key", "k")
    assert again[0] == 0
    assert "byte for byte" in again[1]
    checked = ["verify", "--release", "out/r1", "--trust", "k.pub"]
    code, out, _ = run(*checked)
    assert code == 0
    assert "signature by a trusted key" in out
    run("keys", "new", "other", store=False)
    code, out, _ = run("verify", "--release", "out/r1", "--trust", "other.pub")
    assert code == 1
    assert "FRT021" in out
    assert run("publish-receipts", "--to", "out/r1", "--key", "other")[0] == 2
    assert run(*checked)[0] == 0


def test_verify_release_needs_to_know_whom_to_trust(run, make):
    make.receipt()
    assert run("publish-receipts", "--to", "r", "--unsigned")[0] == 0
    code, _, err = run("verify", "--release", "r")
    assert code == 2
    assert "--trust" in err
    assert run("verify", "--release", "r", "--unsigned")[0] == 0
    assert run("verify", "x", "--release", "r", "--unsigned")[0] == 2
    assert run("verify", "--release", "absent", "--unsigned")[0] == 2


def test_publish_is_a_dry_run_without_a_target(run, make, tmp_path):
    make.receipt()
    code, out, _ = run("publish-receipts")
    assert code == 0
    assert "dry run, nothing was published: no target" in out
    assert "release.json" in out
    assert not (tmp_path / "out").exists()
    assert "--dry-run" in run("publish-receipts", "--to", "out", "--dry-run")[1]
    assert not (tmp_path / "out").exists()


def test_publish_needs_a_key_or_a_word(run, make):
    make.receipt()
    code, _, err = run("publish-receipts", "--to", "r")
    assert code == 2
    assert "flashrt keys new" in err
    run("keys", "new", "k", store=False)
    assert run("publish-receipts", "--to", "r", "--key", "k", "--unsigned")[0] == 2


def test_publish_says_when_nothing_is_certified(run, make):
    make.receipt(speedup=1.0)
    code, out, _ = run("publish-receipts", "--to", "r", "--unsigned")
    assert code == 0
    assert "no cell is certified fast" in out


def test_publish_nothing(run, make, tmp_path):
    assert run("publish-receipts", "--to", "r", "--unsigned", store=False)[0] == 3
    make.receipt(speedup=1.0)
    code, out, err = run(
        "publish-receipts", "--to", "r", "--unsigned", "--require", "certified_fast"
    )
    assert code == 1
    assert "no live receipt reaches certified_fast" in out
    assert "warning: receipt" in err
    assert not (tmp_path / "r").exists()


def test_publish_to_the_hub_is_dry_offline_and_one_commit_online(run, make, monkeypatch):
    make.receipt()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, _ = run("publish-receipts", "--to", "hf:org/name")
    assert code == 0
    assert "nothing was published: HF_HUB_OFFLINE" in out
    assert run("publish-receipts", "--to", "hf:oops")[0] == 2
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "t")
    monkeypatch.setattr("flashrt.release.hub.upload", lambda target, files, m, api: "URL")
    body = json.loads(
        run("publish-receipts", "--to", "hf:org/name", "--unsigned", "--format", "json")[1]
    )
    assert body["dry_run"] is None
    assert body["name"] == "name"


def test_publish_refuses_by_file_and_path(run, make):
    body = make.store.get("qualification", make.receipt())
    edited = {**body, "workload": {**body["workload"], "source": "/home/me/x"}}
    make.replace("qualification", body["digest"], edited)
    code, _, err = run("publish-receipts")
    assert code == 2
    assert "$.workload.source: holds an absolute path" in err


def test_publish_ambiguous_and_revoke(run, make):
    first = make.receipt()
    make.receipt(speedup=1.4)
    code, _, err = run("publish-receipts")
    assert code == 2
    assert "FRT001" in err
    assert run("publish-receipts", "--revoke", first)[0] == 0


def test_matrix(run, make, tmp_path):
    make.receipt()
    make.receipt("w8a16_decode", speedup=1.0)
    code, out, _ = run("matrix", "--html", "m.html", "--markdown", "m.md")
    assert code == 0
    assert "at most 0.02 false promotions" in out
    assert "<table>" in (tmp_path / "m.html").read_text()
    assert "| cell" in (tmp_path / "m.md").read_text()
    code, out, _ = run("matrix", "--require", "certified_fast")
    assert code == 1
    assert "supported_correct is below certified_fast" in out
    assert run("matrix", "--require", "supported_correct")[0] == 0
    assert run("matrix", "--expect", "certified_fast")[0] == 1
    assert run("matrix", "--require", "nonsense")[0] == 2
    junit = run("matrix", "--require", "certified_fast", "--format", "junit")[1]
    assert 'tests="2" failures="1"' in junit


def test_matrix_of_nothing(run):
    code, out, _ = run("matrix", store=False)
    assert code == 3
    assert "store holds no receipts" in out
    assert "store holds no receipts" in run("verify", store=False)[1]


def test_explain(run, make):
    digest = make.receipt()
    here = ["--anywhere", "--device", "cpu", "--host", "tiny", "--phase", "decode"]
    code, out, _ = run("explain", *here)
    assert code == 0
    assert digest in out
    code, out, _ = run("explain", *here, "--rows", "16", "--format", "json")
    assert code == 3
    (only,) = json.loads(out)["considered"]
    assert only["mismatch"] == {"fact": "cell.shape.rows", "expected": 16, "found": 1}
    code, out, _ = run("explain", "--anywhere", "--device", "sm90")
    assert code == 3
    assert "device.class" in out
    assert run("explain", digest[7:19])[0] == 0
    code, out, _ = run("explain", "f" * 64)
    assert code == 3
    assert "flashrt qualify" in out


def test_explain_uses_this_machines_facts(run, make):
    make.receipt()
    code, out, _ = run("explain", "--device", "cpu", "--format", "json")
    assert code == 3
    mismatch = json.loads(out)["considered"][0]["mismatch"]
    assert mismatch["fact"].startswith(("cell.device.", "cell.software."))
    assert mismatch["found"] == "A CPU" or mismatch["expected"] != mismatch["found"]


def test_explain_a_release(run, make):
    digest = make.receipt()
    make.receipt("w8a16_decode")
    cell = make.store.get("qualification", digest)["cell_digest"]
    assert run("publish-receipts", "--to", "r", "--unsigned", "--cell", cell)[0] == 0
    asked = ["explain", "--anywhere", "--release", "r", "--scheme"]
    assert run(*asked, "fp16_weight")[0] == 0
    code, out, _ = run(*asked, "w8a16_decode")
    assert code == 3
    assert "none of 1 receipts" in out
    assert run("explain", "--release", "absent")[0] == 2


def test_explain_lists_what_was_not_measured(run, make):
    body = make.store.get("qualification", make.receipt())
    record = {
        "schema": "flashrt.receipt/1", "kind": "preflight", "cell_digest": None, "cell": None,
        "request": {"device": "sm90"}, "execution": body["execution"], "checks": [],
        "verdict": {
            "state": "unknown", "band": "none",
            "reasons": [Because(Reason.ARCH_ABSENT, "no such device", "sm90").record()],
        },
        "environment": body["evidence"]["environment"],
    }  # fmt: skip
    make.store.put("preflight", record)
    code, out, _ = run("explain", "--anywhere", "--device", "sm90")
    assert code == 3
    assert "not measured: device=sm90: sm90: no such device [FRT010 ARCH_ABSENT]" in out
    assert run("verify")[0] == 0


@pytest.mark.parametrize("name", ["FRT004", "frt004", "UNCAPTURABLE", "uncapturable"])
def test_explain_a_reason(run, name):
    code, out, _ = run("explain", name, store=False)
    assert code == 0
    assert Reason.UNCAPTURABLE.sentence in out


def test_report(run, make, tmp_path):
    assert run("report", store=False)[0] == 3
    make.receipt()
    assert run("report", "--out", "p.html")[0] == 0
    assert run("report", "--out", "p.md")[0] == 0
    assert "<svg" in (tmp_path / "p.html").read_text()
    assert (tmp_path / "p.md").read_text().startswith("# ")


RUN = {
    "schema": "flashrt.ledger/1", "kind": "run", "release": None, "policy": "refuse",
    "state": "certified_fast", "reasons": [],
}  # fmt: skip
SEAM = {
    "schema": "flashrt.ledger/1", "kind": "seam", "seam": "layers.0.mlp",
    "structure": "decoder_ffn@1", "backend": "cpu_fp16", "form": "decode", "calls": 0,
    "dispatched": 0, "fallbacks": 0, "replayed": 5, "last_reason": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("records", "code", "says"),
    [
        ([RUN, SEAM], 0, "clean: every seam"),
        ([RUN, {**SEAM, "fallbacks": 1, "last_reason": "width"}], 1, "fell back to the host 1"),
        ([RUN, {**SEAM, "replayed": 0}], 1, "never ran"),
        ([{**RUN, "policy": "host", "state": "host"}], 3, "not clean"),
        ([{**RUN, "state": "host"}, RUN, {**SEAM, "replayed": 0}], 1, "never ran"),
        ([SEAM], 2, ""),
    ],
)
def test_ledger(run, tmp_path, records, code, says):
    path = tmp_path / ".flashrt" / "ledger.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    got, out, _ = run("ledger", store=False)
    assert got == code
    assert says in out


def test_ledger_in_ci(run, tmp_path, monkeypatch):
    monkeypatch.setenv("CI", "true")
    hostile = {**SEAM, "seam": "a\n::error::forged", "fallbacks": 1, "last_reason": "##[error]x"}
    (tmp_path / "l.jsonl").write_text(f"{json.dumps(RUN)}\n{json.dumps(hostile)}\n")
    code, out, _ = run("ledger", "l.jsonl", store=False)
    assert code == 1
    commands = [line for line in out.splitlines() if line.lstrip().startswith("::")]
    assert len(commands) == 1
    assert commands[0].startswith("::error file=l.jsonl,line=2,title=FRT008 FALLBACK::")
    assert "##[" not in out


def test_no_ledger_says_how_to_make_one(run):
    code, _, err = run("ledger", store=False)
    assert code == 2
    assert "active.export" in err
