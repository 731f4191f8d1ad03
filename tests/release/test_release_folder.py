"""A release folder: whole or absent, never written over, and checked leaf by leaf."""

import errno
import json
import os

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from flashrt.document.canonical import canonical_bytes
from flashrt.document.problem import InputError
from flashrt.release.build import ENVELOPE, MANIFEST, Request, build
from flashrt.release.check import check_release
from flashrt.release.envelope import seal_envelope
from flashrt.release.folder import Written, created_at, write_folder
from flashrt.release.signing_key import public_of
from flashrt_runtime.reason import Reason, Refusal

KEY = Ed25519PrivateKey.generate()
TRUST = [public_of(KEY)]


@pytest.fixture
def release(make, verifier):
    make.receipt()
    make.receipt("w8a16_decode", speedup=1.1)
    request = Request("r1", "2026-01-02T03:04:05Z")
    return build(make.store, request, verifier, KEY, frozenset())


@pytest.fixture
def folder(release, tmp_path):
    assert write_folder(tmp_path / "out" / "r1", release.files) is Written.NEW
    return tmp_path / "out" / "r1"


def test_written_whole_and_again_the_same(folder, release):
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert there == set(release.files)
    assert write_folder(folder, release.files) is Written.SAME
    assert [p.name for p in folder.parent.iterdir()] == ["r1"]
    assert created_at(folder) == "2026-01-02T03:04:05Z"


def test_empty_folder_is_filled_and_absent_release_has_no_time(release, tmp_path):
    assert created_at(tmp_path) is None
    target = tmp_path / "r1"
    target.mkdir()
    assert write_folder(target, release.files) is Written.NEW


def test_another_release_is_never_written_over(folder, release):
    files = {**release.files, MANIFEST: b"{}"}
    with pytest.raises(Refusal) as refused:
        write_folder(folder, files)
    assert refused.value.reason is Reason.CONFLICT
    assert (folder / MANIFEST).read_bytes() == release.files[MANIFEST]
    (folder / "extra").write_text("")
    with pytest.raises(Refusal):
        write_folder(folder, release.files)


def test_full_disk_leaves_nothing(release, tmp_path, monkeypatch):
    real, left = os.fsync, [3]

    def full(handle):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Refusal) as refused:
        write_folder(tmp_path / "r1", release.files)
    assert refused.value.reason is Reason.STORAGE
    assert not (tmp_path / "r1").exists()
    assert not list(tmp_path.glob(".r1*"))


def test_a_faster_writer_of_the_same_release_is_no_error(release, tmp_path, monkeypatch):
    target, real = tmp_path / "r1", os.rename

    def slow(source, to):
        monkeypatch.setattr(os, "rename", real)
        assert write_folder(target, release.files) is Written.NEW
        real(source, to)

    monkeypatch.setattr(os, "rename", slow)
    assert write_folder(target, release.files) is Written.SAME


def test_release_holds(folder, verifier):
    manifest, problems = check_release(folder, TRUST, verifier)
    assert problems == []
    assert len(manifest["routes"]) == 2
    assert check_release(folder, None, verifier)[1] == []


def signature_problem(folder, trust, verifier):
    manifest, (problem,) = check_release(folder, trust, verifier)
    assert manifest is None
    assert problem.reason is Reason.SIGNATURE
    return problem.what


def test_wrong_and_missing_signatures(folder, verifier):
    other = public_of(Ed25519PrivateKey.generate())
    assert "not trusted" in signature_problem(folder, [other], verifier)
    assert "no trusted key" in signature_problem(folder, [], verifier)
    envelope = (folder / ENVELOPE).read_bytes()
    (folder / ENVELOPE).write_bytes(canonical_bytes(seal_envelope(b"{}", KEY)))
    assert "not the bytes that were signed" in signature_problem(folder, TRUST, verifier)
    (folder / ENVELOPE).write_bytes(envelope.replace(b"payloadType", b"payloadTyp_"))
    assert check_release(folder, TRUST, verifier)[1][0].reason is Reason.SCHEMA
    (folder / ENVELOPE).unlink()
    assert "not signed" in signature_problem(folder, TRUST, verifier)


def test_no_release(tmp_path, verifier):
    with pytest.raises(InputError, match="name a release folder"):
        check_release(tmp_path, None, verifier)


def test_every_file_is_covered(folder, release, verifier):
    for name in sorted(set(release.files) - {MANIFEST, ENVELOPE}):
        path, data = folder / name, release.files[name]
        for edit in (data[:-1] + b" ", data + b" ", b""):
            path.write_bytes(edit)
            assert {p.reason for p in check_release(folder, TRUST, verifier)[1]} == {Reason.DIGEST}
        path.unlink()
        assert "not there" in check_release(folder, TRUST, verifier)[1][0].what
        path.write_bytes(data)
    (folder / "receipts" / "more.json").write_text("{}")
    assert "not listed" in check_release(folder, TRUST, verifier)[1][0].what
    (folder / "receipts" / "more.json").unlink()
    assert check_release(folder, TRUST, verifier)[1] == []


def test_a_link_is_not_a_file(folder, release, verifier, tmp_path):
    name = next(n for n in release.files if n.startswith("receipts/"))
    (tmp_path / "elsewhere").write_bytes(release.files[name])
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert check_release(folder, TRUST, verifier)[1][0].reason is Reason.DIGEST


def resigned(folder, manifest):
    """What someone with the key could publish: the signature holds."""
    data = canonical_bytes(manifest)
    (folder / MANIFEST).write_bytes(data)
    (folder / ENVELOPE).write_bytes(canonical_bytes(seal_envelope(data, KEY)))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda m: m["routes"][0].update(state="supported_correct"), Reason.VERDICT),
        (lambda m: m["routes"][0].update(rank=7), Reason.VERDICT),
        (lambda m: m["routes"][0]["seams"][0]["impl"].update(backend="other"), Reason.VERDICT),
        (lambda m: m["routes"][0]["seams"].pop(), Reason.VERDICT),
        (lambda m: m["revokes"].append(m["routes"][0]["receipt"]), Reason.REVOKED),
        (lambda m: m["routes"].append(m["routes"][0]), Reason.AMBIGUOUS),
    ],
)
def test_resigned_routes_still_have_to_follow(folder, verifier, edit, reason):
    manifest = json.loads((folder / MANIFEST).read_bytes())
    edit(manifest)
    resigned(folder, manifest)
    assert reason in {p.reason for p in check_release(folder, TRUST, verifier)[1]}


def test_resigned_edited_verdict_is_still_caught(make, verifier, tmp_path):
    slow = make.receipt(speedup=1.0)
    body = dict(make.store.get("qualification", slow))
    body["verdict"] = {**body["verdict"], "state": "certified_fast", "reasons": []}
    make.replace("qualification", slow, body)
    request = Request("r1", "2026-01-02T03:04:05Z")
    forged = build(make.store, request, lambda receipt: [], KEY, frozenset())
    write_folder(tmp_path / "r1", forged.files)
    found = check_release(tmp_path / "r1", TRUST, verifier)[1]
    assert {p.reason for p in found} == {Reason.VERDICT}


def test_manifest_that_is_not_canonical_or_breaks_its_schema(folder, verifier):
    manifest = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
    assert "canonical" in check_release(folder, None, verifier)[1][0].what
    for path in ("../evil.json", "receipts/../x.json", "/etc/x", "receipts/x.json"):
        bad = {**manifest, "files": [{**manifest["files"][0], "path": path}]}
        (folder / MANIFEST).write_bytes(canonical_bytes(bad))
        with pytest.raises(InputError):
            check_release(folder, None, verifier)
    (folder / MANIFEST).write_bytes(b'{"a":1,"a":2}')
    with pytest.raises(InputError, match="duplicate"):
        check_release(folder, None, verifier)


def test_the_runtime_reads_what_was_published(folder, release):
    from flashrt_runtime import load
    from flashrt_runtime.release_reader import read_release

    content = read_release(folder, [TRUST[0].raw])
    assert content.signed
    assert content.digest == release.digest
    assert [r.cell_digest for r in content.routes] == [
        r["cell_digest"] for r in release.manifest["routes"]
    ]
    assert content.routes[0].seams[0].rows == (1, 1)
    assert load(folder, trust=[TRUST[0].pem()]) is not None
    with pytest.raises(Refusal):
        load(folder, trust=[public_of(Ed25519PrivateKey.generate()).raw])


def test_what_only_the_runtime_refuses_is_reported(folder, verifier, monkeypatch):
    def refuse(*args, **kwargs):
        raise Refusal(Reason.SCHEMA, "too new", subject="release.json")

    monkeypatch.setattr("flashrt.release.check.read_release", refuse)
    assert [p.what for p in check_release(folder, TRUST, verifier)[1]] == ["too new"]
