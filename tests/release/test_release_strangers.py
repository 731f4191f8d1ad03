"""A store that holds a whole record of another shape: every command refuses it by name."""

import pytest

from flashrt.document.canonical import canonical_bytes, seal
from flashrt_cli import main

COMMANDS = (
    ["matrix"],
    ["explain", "--phase", "decode"],
    ["publish-receipts", "--unsigned"],
)


@pytest.fixture
def run(make, verifier, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in ("verify", "matrix", "publish_receipts", "explain"):
        monkeypatch.setattr(f"flashrt_cli.{module}.open_verifier", lambda: verifier)

    def call(*args):
        code = main.run([*args, "--store", str(make.store.root)])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def stranger(make, kind, body):
    sealed = seal(body)
    path = make.store.path(kind, sealed["digest"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(canonical_bytes(sealed))
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
@pytest.mark.parametrize("kind", ["qualification", "revocation"])
@pytest.mark.parametrize("body", [{}, {"verdict": 1}, {"cell": [], "revokes": None}])
def test_another_shape_is_refused_input_and_named(run, make, command, kind, body):
    make.receipt()
    path = stranger(make, kind, {"kind": kind, **body})
    code, said = run(*command)
    assert code == 2
    assert path.name in said.replace("\n", "")
    assert "required property" in said


@pytest.mark.parametrize("kind", ["qualification", "preflight", "incomplete", "revocation"])
def test_verify_says_that_it_does_not_hold(run, make, kind):
    make.receipt()
    path = stranger(make, kind, {"kind": kind})
    code, said = run("verify", str(path))
    assert code == 1
    assert "does not hold" in said


def test_a_calibration_of_another_shape_is_not_published(run, make):
    path = stranger(make, "calibration", {"points": 3})
    digest = "sha256:" + path.stem
    make.receipt(cell={"calibration": digest})
    code, said = run("publish-receipts", "--unsigned")
    assert code == 2
    assert path.name in said.replace("\n", "")
