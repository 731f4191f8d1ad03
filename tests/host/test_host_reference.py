from pathlib import Path

import pytest

from flashrt.host.reference import FolderHost, HubHost, PackagedHost, parse
from flashrt_runtime.reason import Reason, Refusal

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_the_three_kinds_of_host_are_told_apart(tmp_path: Path) -> None:
    assert parse("smollm2") == PackagedHost("smollm2")
    assert parse(f"transformers:{tmp_path}") == FolderHost(tmp_path)
    assert parse(f"transformers:org/name@{COMMIT}") == HubHost("org/name", COMMIT)


@pytest.mark.parametrize("text", ["", "llama", "transformers:", "hub:org/name"])
def test_other_words_are_refused_with_what_to_type(text: str) -> None:
    with pytest.raises(Refusal, match="type smollm2, tiny_gpt, transformers:FOLDER") as caught:
        parse(text)
    assert caught.value.reason is Reason.HOST


@pytest.mark.parametrize("suffix", ["", "@main", "@0123abc", f"@{COMMIT.upper()}", f"@{COMMIT}0"])
def test_a_hub_id_without_a_whole_commit_is_refused(suffix: str) -> None:
    with pytest.raises(Refusal, match=r"type transformers:org/name@") as caught:
        parse(f"transformers:org/name{suffix}")
    assert caught.value.reason is Reason.HOST


def test_an_unpinned_id_is_told_the_commit_that_the_cache_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    refs = tmp_path / "models--org--name" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(Refusal, match=f"org/name@{COMMIT} .found in the local Hub cache"):
        parse("transformers:org/name")


@pytest.mark.parametrize("path", ["/no/such/folder", "./nowhere", "~/nowhere-at-all", "a/b/c"])
def test_a_path_that_is_not_there_is_not_taken_for_an_id(path: str) -> None:
    with pytest.raises(Refusal, match="no such folder"):
        parse(f"transformers:{path}")


def test_a_commit_that_cannot_be_fetched_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    from flashrt.host.hub import fetch

    def absent(*_args: object, **_kwargs: object) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", absent)
    with pytest.raises(Refusal, match="not in the local Hub cache") as caught:
        fetch(HubHost("org/name", COMMIT))
    assert caught.value.reason is Reason.HOST


def test_a_cached_commit_is_used_without_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    from flashrt.host.hub import fetch

    (tmp_path / "model.safetensors").write_bytes(b"")
    asked = []

    def local(repo: str, *, local_files_only: bool, revision: str, **_kwargs: object) -> str:
        asked.append((repo, revision, local_files_only))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", local)
    assert fetch(HubHost("org/name", COMMIT)) == tmp_path
    assert asked == [("org/name", COMMIT, True)]


def test_a_tiny_host_is_not_loaded_and_the_refusal_says_who_takes_it() -> None:
    with pytest.raises(Refusal, match=r"host\.tiny\.build\('qwen3'\)") as caught:
        parse("tiny:qwen3")
    assert caught.value.reason is Reason.HOST
