"""A Hub repository at one commit, as a local folder."""

from __future__ import annotations

from pathlib import Path

from flashrt.host.reference import HubHost
from flashrt_runtime.reason import Reason, Refusal

_WANTED = ["*.safetensors", "*.json", "*.jinja", "tokenizer*", "*.model", "merges.txt"]


def fetch(host: HubHost) -> Path:
    """The folder of a pinned commit, from the local cache or else from the Hub.

    Only safetensors weights, configuration and tokenizer files are fetched. Raises
    :class:`Refusal` (HOST) when the commit is neither cached nor reachable.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    for offline in (True, False):
        try:
            path = Path(
                snapshot_download(
                    host.repo,
                    revision=host.revision,
                    allow_patterns=_WANTED,
                    local_files_only=offline,
                )
            )
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
            last: Exception = error
            continue
        # A cache that another tool filled may hold the configuration without the weights.
        if not offline or any(path.glob("*.safetensors")):
            return path
    raise Refusal(
        Reason.HOST,
        f"not in the local Hub cache, and fetching failed: {str(last).splitlines()[0]}",
        subject=f"{host.repo}@{host.revision}",
        do="check the id and the commit, or fetch it on a machine with a connection and pass "
        "the folder as transformers:FOLDER",
    ) from last
