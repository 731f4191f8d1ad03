"""What only a signature protects: sealed again it passes the verifier, but no signature holds."""

from __future__ import annotations

import copy
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from flashrt.document.canonical import canonical_bytes, seal, sha256
from flashrt.gate.judge import judge
from flashrt.release.build import ENVELOPE, MANIFEST, Request, build
from flashrt.release.check import check_release
from flashrt.release.envelope import seal_envelope
from flashrt.release.folder import write_folder
from flashrt.release.route import ranked, route_of
from flashrt.release.signing_key import public_of
from flashrt_runtime.reason import Reason

KEY = Ed25519PrivateKey.generate()
TRUST = [public_of(KEY)]


def faster_samples(body):
    """Every sample of the treated arm three per cent faster, and everything derived from it."""
    for run in body["evidence"]["processes"]:
        for pair in run["race"]["pairs"]:
            pair[1] = pair[1] * 97 // 100
    body["verdict"] = judge(body["evidence"], body["thresholds"])


def another_kernel(body):
    body["evidence"]["environment"]["kernel"] = "9.9"


def another_command(body):
    body["execution"]["command"] = ["flashrt", "qualify", "--carefully"]


FORGERIES = pytest.mark.parametrize("forge", [faster_samples, another_kernel, another_command])


@pytest.fixture
def folder(make, verifier, tmp_path):
    make.receipt()
    request = Request("r1", "2026-01-02T03:04:05Z")
    write_folder(tmp_path / "r1", build(make.store, request, verifier, KEY, frozenset()).files)
    return tmp_path / "r1"


def forged(folder, forge):
    """The release's receipt, forged, sealed again, and listed in a manifest that fits it."""
    (path,) = (folder / "receipts").iterdir()
    old = json.loads(path.read_bytes())
    body = copy.deepcopy(old)
    forge(body)
    new = seal(body)
    assert new["digest"] != old["digest"]
    path.unlink()
    data = canonical_bytes(new)
    (folder / "receipts" / f"{new['digest'][7:]}.json").write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    for entry in manifest["files"]:
        if entry["path"] == f"receipts/{path.name}":
            entry |= {
                "path": f"receipts/{new['digest'][7:]}.json",
                "sha256": sha256(data),
                "bytes": len(data),
            }
    manifest["files"].sort(key=lambda entry: entry["path"])
    (plan,) = (folder / "plans").iterdir()
    manifest["routes"] = ranked([route_of(new, json.loads(plan.read_bytes()))])
    (folder / MANIFEST).write_bytes(canonical_bytes(manifest))
    return new


@FORGERIES
def test_the_verifier_alone_cannot_tell(folder, verifier, forge):
    assert verifier(forged(folder, forge)) == []
    assert check_release(folder, None, verifier)[1] == []


@FORGERIES
def test_the_signature_does_not_hold_over_what_was_sealed_again(folder, verifier, forge):
    forged(folder, forge)
    manifest, problems = check_release(folder, TRUST, verifier)
    assert manifest is None
    assert {p.reason for p in problems} == {Reason.SIGNATURE}


@FORGERIES
def test_a_forger_s_own_signature_is_not_trusted(folder, verifier, forge):
    forged(folder, forge)
    data = (folder / MANIFEST).read_bytes()
    envelope = seal_envelope(data, Ed25519PrivateKey.generate())
    (folder / ENVELOPE).write_bytes(canonical_bytes(envelope))
    manifest, problems = check_release(folder, TRUST, verifier)
    assert manifest is None
    assert {p.reason for p in problems} == {Reason.SIGNATURE}


def test_the_release_itself_holds(folder, verifier):
    assert check_release(folder, TRUST, verifier)[1] == []
