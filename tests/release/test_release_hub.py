"""Publishing to the Hub, with a client that only remembers."""

from types import SimpleNamespace

import pytest

from flashrt.release.hub import HubTarget, offline_because, upload
from flashrt_runtime.reason import Reason, Refusal

FILES = {"release.json": b"{}", "receipts/a.json": b"1"}


class FakeApi:
    """What of ``HfApi`` is used."""

    def __init__(self, there=(), error=None):
        self.there, self.error, self.commits, self.made = list(there), error, [], []

    def create_repo(self, repo, *, repo_type, private, exist_ok):
        self.made.append((repo, repo_type, private, exist_ok))

    def repo_info(self, repo, *, repo_type):
        return SimpleNamespace(sha="parent")

    def list_repo_files(self, repo, *, repo_type, revision):
        return self.there

    def create_commit(self, repo, operations, *, commit_message, repo_type, parent_commit):
        if self.error:
            raise self.error
        self.commits.append((repo, operations, commit_message, parent_commit))
        return SimpleNamespace(commit_url="https://hub.example/commit/1")


def test_one_atomic_commit_on_the_parent_that_was_seen():
    there = ["README.md", "receipts/old.json", "receipts/a.json", "release.dsse.json"]
    api = FakeApi(there)
    assert upload(HubTarget.parse("hf:org/name"), FILES, "m", api).endswith("/1")
    ((repo, operations, message, parent),) = api.commits
    assert (repo, message, parent) == ("org/name", "m", "parent")
    kinds = [(type(o).__name__, o.path_in_repo) for o in operations]
    assert kinds == [
        ("CommitOperationAdd", "release.json"),
        ("CommitOperationAdd", "receipts/a.json"),
        ("CommitOperationDelete", "receipts/old.json"),
        ("CommitOperationDelete", "release.dsse.json"),
    ]
    assert api.made == [("org/name", "model", True, True)]


@pytest.mark.parametrize("error", [OSError("no route"), ValueError("bad\nmore")])
def test_the_hub_says_no(error):
    with pytest.raises(Refusal) as refused:
        upload(HubTarget("org/name"), FILES, "m", FakeApi(error=error))
    assert refused.value.reason is Reason.STORAGE
    assert "\n" not in refused.value.what


@pytest.mark.parametrize("text", ["hf:", "hf:name", "hf:a/b/c", "hf:../x", "hf:org/na me"])
def test_not_a_repository(text):
    with pytest.raises(Refusal) as refused:
        HubTarget.parse(text)
    assert refused.value.reason is Reason.CONFLICT


def test_offline(monkeypatch):
    assert "HF_HUB_OFFLINE" in (offline_because({"HF_HUB_OFFLINE": "1"}) or "")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert "token" in (offline_because({}) or "")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "t")
    assert offline_because({}) is None
