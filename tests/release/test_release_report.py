"""``report RECEIPT``: which record is meant, what page it becomes, and how it ends."""

from __future__ import annotations

import json

import pytest

from flashrt.document.problem import InputError
from flashrt.report.chosen import choose
from flashrt_cli import main
from flashrt_runtime.reason import Reason, Refusal


@pytest.fixture
def run(make, verifier, tmp_path, monkeypatch, capsys):
    """Run ``report`` over this store; its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("flashrt_cli.report.open_verifier", lambda: verifier)

    def call(*args: str):
        code = main.run(["report", *args, "--store", str(make.store.root)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_receipt_is_named_by_digest_cell_or_file(run, make, tmp_path):
    digest = make.receipt()
    make.receipt("w8a16_decode")
    body = make.store.get("qualification", digest)
    file = str(make.store.path("qualification", digest))
    for subject in (digest, digest[7:19], body["cell_digest"], file):
        code, out, _ = run(subject, "-o", "page.html", "--format", "json")
        assert code == 0
        assert json.loads(out)["receipt"] == digest
        page = (tmp_path / "page.html").read_text()
        assert digest in page
        assert page.count("<figure") == 6
        assert "every claim holds" in page


def test_markdown_has_the_tables(run, make, tmp_path):
    assert run(make.receipt(), "-o", "page.md")[0] == 0
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("# llama")
    assert "| outputs rewritten |" in text


def test_an_edited_receipt_is_drawn_and_ends_as_a_failed_gate(run, make, tmp_path):
    digest = make.receipt(speedup=1.0)
    body = make.store.get("qualification", digest)
    edited = {**body, "verdict": {**body["verdict"], "state": "certified_fast"}}
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    code, out, _ = run("edited.json", "-o", "page.html")
    assert code == 1
    assert "claims do not hold" in out
    assert "do NOT hold" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("subject", ["nothing", "f" * 64, "sha256:" + "f" * 64])
def test_what_nothing_is_named_is_refused(run, make, subject):
    make.receipt()
    code, _, err = run(subject)
    assert code == 2
    assert "no receipt is named" in err


def test_what_is_no_receipt_is_refused(run, make, tmp_path):
    plan = make.plan()
    code, _, err = run(str(make.store.path("plan", plan)))
    assert code == 2
    assert "nothing to draw" in err
    (tmp_path / "bad.json").write_text('{"kind": "qualification"}')
    code, _, err = run("bad.json")
    assert code == 2
    assert "bad.json" in err


@pytest.mark.parametrize("name", ["page.png", "page", "page.pdf"])
def test_a_page_of_another_kind_is_refused_before_it_is_made(run, make, tmp_path, name):
    for args in ([make.receipt()], []):
        code, _, err = run(*args, "-o", name)
        assert code == 2
        assert ".html or .md" in err
        assert not (tmp_path / name).exists()


def test_a_cell_with_two_live_receipts_and_digits_of_several_are_ambiguous(make, monkeypatch):
    first = make.receipt()
    make.receipt(speedup=1.4)
    cell = make.store.get("qualification", first)["cell_digest"]
    with pytest.raises(Refusal) as caught:
        choose(make.store, cell)
    assert caught.value.reason is Reason.AMBIGUOUS
    monkeypatch.setattr("flashrt.report.chosen.matches", lambda digest, asked: True)
    with pytest.raises(Refusal, match="records begin so"):
        choose(make.store, "12345678")


def test_a_superseded_cell_is_drawn_by_its_live_receipt(make):
    older = make.receipt()
    newer = make.receipt(supersedes=older)
    cell = make.store.get("qualification", older)["cell_digest"]
    assert choose(make.store, cell)["digest"] == newer
    assert choose(make.store, older)["digest"] == older
    with pytest.raises(InputError):
        choose(make.store, "1234")


def test_a_receipt_that_the_store_remembers_as_withdrawn_is_not_the_cells(run, make, tmp_path):
    gone = make.receipt()
    cell = make.store.get("qualification", gone)["cell_digest"]
    make.store.revoke([gone], "2026-02-01T00:00:00Z")
    with pytest.raises(InputError):
        choose(make.store, cell)
    assert run("-o", "all.html")[0] == 0
    assert "not live (the receipt was withdrawn)" in (tmp_path / "all.html").read_text()
