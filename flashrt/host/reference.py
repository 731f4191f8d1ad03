"""What a person types to name a host: a packaged one or ``transformers:PATH_OR_ID[@REVISION]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from flashrt_runtime.reason import Reason, Refusal

PACKAGED = ("smollm2", "tiny_gpt")
_REVISION = re.compile(r"[0-9a-f]{40}")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True)
class PackagedHost:
    """A host whose weights an installed Python package holds; the lab's are our own package's."""

    name: str


@dataclass(frozen=True)
class FolderHost:
    """A host in a local folder."""

    path: Path


@dataclass(frozen=True)
class HubHost:
    """A host on the Hub, at one commit."""

    repo: str
    revision: str


HostReference = PackagedHost | FolderHost | HubHost


def _unpinned(text: str, repo: str, revision: str) -> Refusal:
    what = f"{revision!r} is not a commit" if revision else "a Hub id needs a pinned commit"
    known = cached_revisions(repo)
    example = known[0] if known else "<the 40 hexadecimal digits of a commit>"
    found = " (found in the local Hub cache)" if known else ""
    return Refusal(
        Reason.HOST,
        f"{what}, and there is no folder of this name here",
        subject=text,
        do=f"type transformers:{repo}@{example}{found}, or the path of a folder",
    )


def parse(text: str) -> HostReference:
    """Read a host reference. Raises :class:`Refusal` (HOST) that says what to type instead."""
    if text in PACKAGED:
        return PackagedHost(text)
    kind, colon, rest = text.partition(":")
    if kind == "tiny" and rest:
        raise Refusal(
            Reason.HOST,
            "a tiny host has random weights and no checkpoint, so it is not loaded here",
            subject=text,
            do=f"`flashrt discover` and `calibrate` take it; in Python, host.tiny.build({rest!r})",
        )
    if kind != "transformers" or not colon or not rest:
        raise Refusal(
            Reason.HOST,
            "not a host",
            subject=text,
            do=f"type {', '.join(PACKAGED)}, transformers:FOLDER or transformers:ORG/NAME@COMMIT; "
            "`flashrt discover` and `calibrate` also take tiny:NAME, see docs/catalog.md",
        )
    path = Path(rest).expanduser()
    if path.is_dir():
        return FolderHost(path)
    repo, _, revision = rest.partition("@")
    if rest[0] in "./~" or not _HUB_ID.fullmatch(repo):
        raise Refusal(
            Reason.HOST, "no such folder", subject=text, do="check the path after transformers:"
        )
    if not _REVISION.fullmatch(revision):
        raise _unpinned(text, repo, revision)
    return HubHost(repo, revision)


def cached_revisions(repo: str) -> list[str]:
    """Commits of a repository that the local Hub cache holds, the newest reference first."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / ("models--" + repo.replace("/", "--"))
    named = sorted((folder / "refs").glob("*")) if folder.is_dir() else []
    commits = [ref.read_text(encoding="utf-8").strip() for ref in named if ref.is_file()]
    commits += sorted(p.name for p in (folder / "snapshots").glob("*"))
    return [c for c in dict.fromkeys(commits) if _REVISION.fullmatch(c)]
