"""Templates of a structure, a binding and an impl; each is valid as written."""

from __future__ import annotations

import re
from pathlib import Path

from flashrt.spec.model import suggest
from flashrt.spec.registry import load
from flashrt_runtime.reason import Reason, Refusal

KINDS = ("structure", "binding", "impl")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

_STRUCTURE = """\
# yaml-language-server: $schema=../../schemas/structure.schema.json
schema: flashrt.structure/1
name: {name}
version: 1
kind: region
summary: >-
  Say in one paragraph which region of a model this is and where its boundary lies.
dims:
  M: rows, the product of every leading dim
  D: model width
boundary:
  rows: M
  inputs:
    x: {{dims: [M, D], dtype: "@binding"}}
  outputs:
    y: {{dims: [M, D], dtype: "@binding", role: value}}
weights:
  gain: {{dims: [D], layout: vector}}
variants: {{}}
calibration:
  points:
    x_in: {{dims: [M, D], meaning: what the region reads}}
gates:
  metric: cosine
  report: [max_abs, norm_ratio, nonfinite]
  bands: {{pass: 0.999, warn: 0.995}}
  margin: 1.02
reference: reference.py
"""

_REFERENCE = '''\
"""{name} in plain torch, computed in float32 whatever the boundary's dtype, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def reference(
    inputs: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    variant: Mapping[str, str],
) -> dict[str, torch.Tensor]:
    """Every output and every calibration point by name."""
    x = inputs["x"]
    y = x.float() * weights["gain"].float()
    return {{"y": y.to(x.dtype), "x_in": x}}


def cost(
    dims: Mapping[str, int],
    variant: Mapping[str, str],
    weight_bytes: float = 4.0,
    activation_bytes: float = 4.0,
) -> tuple[float, float]:
    """Fewest floating-point operations and bytes of one call over ``M`` rows."""
    elements = dims["M"] * dims["D"]
    return float(elements), dims["D"] * weight_bytes + 2.0 * elements * activation_bytes
'''

_BINDING = """\
# yaml-language-server: $schema=../schemas/region_binding.schema.json
schema: flashrt.binding/1
name: {name}
summary: >-
  Say which host this is and what stays in it. `flashrt discover` lists the seams it has.
host:
  family: llama
  loader: transformers
  packages: {{transformers: ">=5.17,<6"}}
regions:
  head:
    structure: {structure}
    spec_digest: "{digest}"
    module: lm_head
    members: {{self: lm_head}}
    variant: {{bias: none, epilogue: none}}
    weights:
      weight: {{at: lm_head.weight, layout: out_in, tied: model.embed_tokens.weight}}
    points:
      x: {{module: lm_head, capture: input}}
    boundary: {{dtype: float32}}
"""

_IMPL = '''\
"""{structure} by {backend}."""

from __future__ import annotations

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal


def bind(request: BindRequest) -> BoundSeam:
    """One body per role of ``request.seam.members``, each run by the operator {operator}."""
    raise Refusal(
        Reason.FORM,
        f"{backend} does not build the form {{request.form}} yet",
        subject=request.seam.id,
        do="pack request.weights, register the operator and return its bodies",
    )
'''

_MANIFEST = """\
{{
  "schema": "flashrt.impl/1",
  "structure": "{structure}",
  "backend": "{backend}",
  "version": "1",
  "operator": "{operator}",
  "device": "cpu",
  "archs": [],
  "forms": [
    {{
      "name": "decode",
      "schemes": ["none"],
      "input_dtype": ["float32"],
      "rows": [1, 1],
      "captures": ["compile"],
      "points": {{{points}}},
      "weights": "float32",
      "activations": "float32",
      "variants": {{}}
    }}
  ]
}}
"""


def files(kind: str, name: str) -> dict[Path, str]:
    """Relative path to text of each file of a skeleton.

    ``kind`` is structure, binding or impl; an impl's name is STRUCTURE/BACKEND. Raises
    :class:`Refusal` (CONFLICT) for another kind or a name that cannot be one, STRUCTURE for an
    impl of a structure that does not exist.
    """
    if kind == "structure":
        folder = Path("catalog") / _named(name)
        return {
            folder / "structure.yaml": _STRUCTURE.format(name=name),
            folder / "reference.py": _REFERENCE.format(name=name),
        }
    if kind == "binding":
        spec = load("linear_proj@1")
        text = _BINDING.format(name=_named(name), structure=spec.id, digest=spec.digest)
        return {Path("bindings") / f"{name}.yaml": text}
    if kind == "impl":
        return _impl(name)
    raise Refusal(
        Reason.CONFLICT, "there is no skeleton of this kind", subject=kind, do=suggest(kind, KINDS)
    )


def _impl(name: str) -> dict[Path, str]:
    structure, slash, backend = name.partition("/")
    if not slash:
        raise Refusal(
            Reason.CONFLICT,
            "an impl is named by its structure and its backend",
            subject=name,
            do="type STRUCTURE/BACKEND, e.g. decoder_ffn/my_kernel",
        )
    spec = load(_named(structure))
    words = {
        "structure": spec.id,
        "backend": _named(backend),
        "operator": f"flashrt::{structure}_{backend}",
        "points": ", ".join(f'"{point}": "none"' for point in spec.points),
    }
    folder = Path("impls") / structure
    return {
        folder / f"{backend}.py": _IMPL.format(**words),
        folder / f"{backend}.json": _MANIFEST.format(**words),
    }


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Refusal(
            Reason.CONFLICT,
            "this cannot be a name",
            subject=name,
            do="use lower-case letters, digits and _, beginning with a letter",
        )
    return name


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Write a skeleton below ``folder`` and return its files.

    Nothing is ever overwritten: Raises :class:`Refusal` (CONFLICT) before anything is written when
    one of the files exists, STORAGE when the folder cannot be written.
    """
    wanted = {folder / path: text for path, text in files(kind, name).items()}
    for path in wanted:
        if path.exists() or path.is_symlink():
            raise Refusal(
                Reason.CONFLICT, "the file exists", subject=str(path), do="choose another name"
            )
    made: list[Path] = []
    try:
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", encoding="utf-8") as handle:
                made.append(path)
                handle.write(text)
    except FileExistsError as error:
        _undo(made)
        raise Refusal(
            Reason.CONFLICT, "the file exists", subject=str(error.filename), do="try again"
        ) from error
    except OSError as error:
        _undo(made)
        raise Refusal(
            Reason.STORAGE,
            f"cannot write: {error.strerror or error}",
            subject=str(folder),
            do="choose a writable folder",
        ) from error
    return made


def _undo(made: list[Path]) -> None:
    for path in made:
        path.unlink(missing_ok=True)
