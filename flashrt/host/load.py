"""Loads a host: evaluation mode, no gradients, weights from safetensors only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt.document.names import text_name
from flashrt.host.reference import FolderHost, HubHost, PackagedHost, parse
from flashrt.record import ModelArtifact
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

CACHE = Path(".flashrt")
DTYPES = ("float32", "bfloat16", "float16")
_TOKENIZER_FILES = (
    "chat_template.jinja",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


@dataclass(frozen=True)
class Host:
    """A loaded host.

    ``model`` is in evaluation mode with ``requires_grad`` off everywhere. ``tokenizer`` is
    ``None`` when the folder has none. ``artifact`` identifies the weights, free of paths.
    ``binding_name`` is the in-tree binding written for this host, if there is one. ``folder`` is
    where the weights lie on this machine.
    """

    name: str
    model: torch.nn.Module
    tokenizer: Any
    artifact: ModelArtifact
    binding_name: str | None
    folder: Path
    sources: tuple[str, ...]

    @property
    def model_artifact(self) -> dict[str, Any]:
        """JSON form of ``artifact``."""
        return self.artifact.record()


def load(reference: str, dtype: str | torch.dtype = "float32", cache: Path = CACHE) -> Host:
    """Load ``smollm2``, ``tiny_gpt`` or ``transformers:PATH_OR_ID[@COMMIT]``.

    ``dtype`` is one of :data:`DTYPES` or torch's own; ``cache`` is the folder of converted hosts.
    Raises :class:`Refusal` or :class:`InputError` before anything is loaded when the reference,
    the folder or its files are not acceptable, and after loading when a weight is missing.
    """
    named = str(dtype).removeprefix("torch.")
    if named not in DTYPES:
        raise Refusal(
            Reason.DTYPE, f"{named!r} is not a host dtype", do=f"one of {', '.join(DTYPES)}"
        )
    match parse(reference):
        case PackagedHost("tiny_gpt"):
            from flashrt.host.lab import load_lab

            return load_lab(named)
        case PackagedHost(name):
            from flashrt.host.packaged import HOSTS, prepare

            folder, provenance = prepare(HOSTS[name], cache)
            provenance += " dequantised to float32 and saved as safetensors"
            return _load(folder, name, named, provenance, HOSTS[name].binding)
        case HubHost(repo, revision) as hub:
            from flashrt.host.hub import fetch

            provenance = f"Hub {repo} at {revision}"
            return _load(fetch(hub), repo.rpartition("/")[2], named, provenance, None)
        case FolderHost(path):
            name = text_name(path.resolve().name, path)
            return _load(path, name, named, f"local folder {name}", None)


def _load(folder: Path, name: str, dtype: str, provenance: str, binding: str | None) -> Host:
    import torch

    from flashrt.host.folder import check_folder
    from flashrt_runtime.identity import architecture_digest, checkpoint_digest

    config = check_folder(folder)
    model = _model(folder, name, getattr(torch, dtype))
    artifact = ModelArtifact(
        name=name,
        family=str(config.get("model_type", "unknown")),
        checkpoint_digest=checkpoint_digest(model.state_dict().items()),
        architecture_digest=architecture_digest(model),
        dtype=dtype,
        tokenizer_digest=_tokenizer_digest(folder),
        parameters=sum(p.numel() for p in model.parameters()),
        provenance=provenance,
    )
    return Host(name, model, _tokenizer(folder), artifact, binding, folder, (provenance,))


def _model(folder: Path, name: str, dtype: torch.dtype) -> torch.nn.Module:
    try:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError as error:
        raise Refusal(
            Reason.HOST,
            "transformers is not installed",
            subject=name,
            do="run `make setup`, or install the `host` extra",
        ) from error
    progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        loader: Any = AutoModelForCausalLM.from_pretrained
        model, info = loader(
            folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as error:  # what a config says wrongly, the library meets in any way
        lines = str(error).strip().splitlines() or [type(error).__name__]
        said = " ".join(line.strip() for line in lines[:2]) if lines[0].endswith(":") else lines[0]
        what = f"transformers cannot load it: {said}"
        raise Refusal(Reason.HOST, what, subject=name) from error
    finally:
        if progress:
            logging.enable_progress_bar()
    absent = sorted(info["missing_keys"])
    if absent:
        raise Refusal(
            Reason.HOST,
            f"{len(absent)} weights are not in the files and would be random, first {absent[0]!r}",
            subject=name,
            do="use a folder that holds every weight of this architecture",
        )
    model.eval()
    model.requires_grad_(False)
    return model


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return None
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the tokenizer library raises bare Exception for a broken file
        lines = str(error).strip().splitlines() or [type(error).__name__]
        what = f"the tokenizer cannot be loaded: {lines[0]}"
        raise Refusal(Reason.HOST, what, subject=folder.name) from error


def _tokenizer_digest(folder: Path) -> str | None:
    from flashrt.document.canonical import canonical_bytes, sha256

    files = {
        name: sha256((folder / name).read_bytes())
        for name in _TOKENIZER_FILES
        if (folder / name).is_file()
    }
    return sha256(canonical_bytes(files)) if files else None
