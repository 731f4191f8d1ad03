"""A withdrawal given to one publication is remembered by the store, and by all that read it."""

import json
from pathlib import Path

import pytest

from flashrt_cli import main

AT = "2026-02-03T00:00:00Z"


@pytest.fixture
def run(make, verifier, capsys, tmp_path, monkeypatch):
    """Run a command over this store with the tests' catalog; its exit code and its JSON."""
    monkeypatch.chdir(tmp_path)
    for module in ("verify", "matrix", "publish_receipts", "explain"):
        monkeypatch.setattr(f"flashrt_cli.{module}.open_verifier", lambda: verifier)

    def call(*args):
        code = main.run([*args, "--store", str(make.store.root), "--format", "json"])
        return code, json.loads(capsys.readouterr().out)

    return call


def publish(run, target, *more):
    code, told = run("publish-receipts", "--unsigned", "--to", target, "--created-at", AT, *more)
    assert code == 0
    return told, json.loads((Path(target) / "release.json").read_text())


def test_the_next_release_does_not_carry_what_an_earlier_one_withdrew(run, make):
    first = make.receipt()
    second = make.receipt(speedup=1.4)
    _, manifest = publish(run, "one", "--revoke", first)
    assert manifest["revokes"] == [first]
    assert make.store.revoked() == {first}
    _, later = publish(run, "two")
    assert [route["receipt"] for route in later["routes"]] == [second]
    assert later["revokes"] == [first]


def test_a_dry_run_withdraws_nothing(run, make):
    first = make.receipt()
    make.receipt(speedup=1.4)
    assert run("publish-receipts", "--unsigned", "--revoke", first)[0] == 0
    assert (
        run("publish-receipts", "--unsigned", "--to", "x", "--revoke", first, "--dry-run")[0] == 0
    )
    assert make.store.revoked() == frozenset()


def test_the_matrix_and_explain_see_a_withdrawn_receipt_as_gone(run, make):
    first = make.receipt()
    second = make.receipt(speedup=1.4)
    publish(run, "one", "--revoke", first)
    code, matrix = run("matrix")
    assert code == 0
    assert [row["receipt"] for row in matrix["cells"]] == [second]
    cell = make.store.get("qualification", first)["cell_digest"]
    code, why = run("explain", cell)
    assert code == 0
    dead = {item["receipt"]: item["dead"] for item in why["considered"]}
    assert dead[second] is None
    assert dead[first]["name"] == "REVOKED"


def test_a_new_receipt_supersedes_what_is_still_live(run, make):
    first = make.receipt()
    second = make.receipt(speedup=1.4)
    publish(run, "one", "--revoke", first)
    cell = make.store.get("qualification", first)["cell_digest"]
    assert [body["digest"] for body in make.store.heads(cell)] == [second]
    assert len(make.store.attempts(cell)) == 2


def test_a_withdrawal_is_verified_like_any_record(run, make):
    first = make.receipt()
    make.receipt(speedup=1.4)
    publish(run, "one", "--revoke", first)
    (record,) = make.store.list("revocation")
    code, told = run("verify", record["digest"])
    assert code == 0
    assert told["receipts"][0]["digest"] == record["digest"]
    path = make.store.path("revocation", record["digest"])
    path.write_text(path.read_text().replace(first, "sha256:" + "1" * 64))
    assert run("verify", str(path))[0] == 1
