"""A release on the Hugging Face Hub: one commit, or none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashrt_runtime.reason import Reason, Refusal

_REPO = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
_OURS = ("receipts/", "calibration/", "plans/", "tables/")


@dataclass(frozen=True)
class HubTarget:
    """A model repository, ``org/name``."""

    repo: str

    @classmethod
    def parse(cls, text: str) -> HubTarget:
        """From ``hf:org/name``. Raises :class:`Refusal` for anything else."""
        repo = text.removeprefix("hf:")
        if not _REPO.match(repo):
            raise Refusal(Reason.CONFLICT, "not a repository", subject=text, do="write hf:org/name")
        return cls(repo)


def offline_because(environ: Mapping[str, str]) -> str | None:
    """Why nothing can be uploaded from here: no network wanted, or no token. ``None`` if it can."""
    if environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "HF_HUB_OFFLINE is set"
    from huggingface_hub import get_token

    return None if get_token() else "there is no Hub token (`hf auth login`)"


def upload(target: HubTarget, files: Mapping[str, bytes], message: str, api: Any) -> str:
    """Commit the files at the repository's root, and remove an earlier release's; the commit's URL.

    ``api`` is a ``huggingface_hub.HfApi``. A repository that is not there is made, private. The
    commit names its parent, so that of two writers one is refused. Raises :class:`Refusal`
    (STORAGE) when the Hub says no; then nothing was published.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete
    from huggingface_hub.errors import HfHubHTTPError

    try:
        api.create_repo(target.repo, repo_type="model", private=True, exist_ok=True)
        parent = api.repo_info(target.repo, repo_type="model").sha
        there = api.list_repo_files(target.repo, repo_type="model", revision=parent)
        stale = [p for p in there if p.startswith(_OURS) and p not in files]
        if "release.dsse.json" in there and "release.dsse.json" not in files:
            stale.append("release.dsse.json")
        operations: list[Any] = [CommitOperationAdd(p, data) for p, data in files.items()]
        operations += [CommitOperationDelete(p) for p in sorted(stale)]
        done = api.create_commit(
            target.repo,
            operations,
            commit_message=message,
            repo_type="model",
            parent_commit=parent,
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        text = str(error).strip().partition("\n")[0]
        raise Refusal(
            Reason.STORAGE,
            f"the Hub refused: {text or type(error).__name__}",
            subject=f"hf:{target.repo}",
            do="nothing was published; mend the cause and run the same command again",
        ) from error
    return str(done.commit_url)
