"""Finds impls by their manifests and binds them. Standard library only until an impl is imported.

An impl is ``impls/<structure>/<backend>.py`` beside ``<backend>.json``. Names from a release or a
plan are looked up among the installed manifests before anything is imported, so that no document
can make the runtime import anything else.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from flashrt_runtime import arch
from flashrt_runtime.contract import BindRequest, BoundSeam, Seam
from flashrt_runtime.reason import Reason, Refusal

PACKAGE = "flashrt_runtime.impls"
_NAME = re.compile(r"[a-z0-9_]{1,64}")


@dataclass(frozen=True)
class Form:
    """One executable form. ``rows`` is an inclusive band; an upper end of None is no limit."""

    name: str
    schemes: tuple[str, ...]
    input_dtype: tuple[str, ...]
    rows: tuple[int, int | None]
    captures: tuple[str, ...]
    points: Mapping[str, str]
    weights: str
    activations: str
    variants: Mapping[str, tuple[str, ...]]
    weight_scales: str = "none"  # what one scale of a packed weight stands for
    wire_in: Mapping[str, str] = field(default_factory=dict)
    wire_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether it stands in for the host by itself: what it returns is what the host returns.

        Another one emits its output already quantised (``wire_out``) for readers that take it so
        (``wire_in``), and is bound only as part of a chain.
        """
        return not self.wire_out

    def serves_rows(self, rows: int) -> bool:
        """Whether the number of rows is inside the band."""
        low, high = self.rows
        return rows >= low and (high is None or rows <= high)

    def band(self) -> str:
        """The band for people: ``1 to 16 rows``, ``17 rows and more``, ``any number of rows``."""
        low, high = self.rows
        if high is None:
            return f"{low} rows and more" if low > 1 else "any number of rows"
        return f"{low} row{'s' if low > 1 else ''}" if low == high else f"{low} to {high} rows"


@dataclass(frozen=True)
class Manifest:
    """One impl: its operator, the device it runs on and its forms."""

    structure: str
    backend: str
    version: str
    operator: str
    device: str
    archs: tuple[str, ...]
    forms: tuple[Form, ...]

    @property
    def id(self) -> str:
        """``decoder_ffn@1/cpu_int8``."""
        return f"{self.structure}/{self.backend}"


@dataclass(frozen=True)
class ImplForm:
    """One form of one impl: what :func:`select` chooses and :func:`bind` executes."""

    manifest: Manifest
    spec: Form

    @property
    def structure(self) -> str:
        """``name@version``."""
        return self.manifest.structure

    @property
    def backend(self) -> str:
        """The impl's name."""
        return self.manifest.backend

    @property
    def form(self) -> str:
        """The form's name."""
        return self.spec.name

    @property
    def rows(self) -> tuple[int, int | None]:
        """The band of rows it serves, inclusive; None is no limit."""
        return self.spec.rows

    def record(self) -> dict[str, str]:
        """JSON form: ``{"structure", "backend", "form"}``."""
        return {"structure": self.structure, "backend": self.backend, "form": self.form}

    def __str__(self) -> str:
        return f"{self.manifest.id} form {self.form}"


def manifests(root: Path | None = None) -> tuple[Manifest, ...]:
    """Every installed impl's manifest, ordered by structure and backend.

    ``root`` is a folder laid out like ``impls/``; the installed package when None. Raises
    :class:`Refusal` (SCHEMA) for a manifest that cannot be read.
    """
    return _installed() if root is None else _read(root)


@lru_cache(maxsize=1)
def _installed() -> tuple[Manifest, ...]:
    return _read(Path(str(resources.files(PACKAGE))))


def _read(root: Path) -> tuple[Manifest, ...]:
    return tuple(_manifest(path) for path in sorted(root.glob("*/*.json")))


def _manifest(path: Path) -> Manifest:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        found = Manifest(
            structure=str(raw["structure"]),
            backend=str(raw["backend"]),
            version=str(raw["version"]),
            operator=str(raw["operator"]),
            device=str(raw["device"]),
            archs=tuple(raw["archs"]),
            forms=tuple(_form(form) for form in raw["forms"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error}") from error
    folder, _, version = found.structure.partition("@")
    for name in (folder, found.backend):
        if _NAME.fullmatch(name) is None:
            raise _unreadable(path, f"{name!r} is not a name of [a-z0-9_]")
    if (path.parent.name, path.stem) != (folder, found.backend) or not version.isdigit():
        raise _unreadable(path, f"it names {found.id}, which is not where it stands")
    return found


def _form(raw: Mapping[str, Any]) -> Form:
    low, high = raw["rows"]
    return Form(
        name=str(raw["name"]),
        schemes=tuple(raw["schemes"]),
        input_dtype=tuple(raw["input_dtype"]),
        rows=(int(low), None if high is None else int(high)),
        captures=tuple(raw["captures"]),
        points=dict(raw["points"]),
        weights=str(raw["weights"]),
        activations=str(raw["activations"]),
        variants={axis: tuple(values) for axis, values in raw["variants"].items()},
        weight_scales=str(raw.get("weight_scales", "none")),
        wire_in=dict(raw.get("wire_in", {})),
        wire_out=dict(raw.get("wire_out", {})),
    )


def _unreadable(path: Path, what: str) -> Refusal:
    return Refusal(
        Reason.SCHEMA,
        f"the manifest cannot be used: {what}",
        subject=f"{path.parent.name}/{path.name}",
        do="run `flashrt validate`",
    )


def structures() -> frozenset[str]:
    """Structures (``name@version``) that an installed form executes by itself."""
    return frozenset(m.structure for m in manifests() if any(form.alone for form in m.forms))


def emitters(wire: str) -> frozenset[str]:
    """Structures with an installed form that emits ``wire`` (``fp8_e4m3``) for its readers."""
    every = _of(manifests())
    return frozenset(one.structure for one in every if wire in one.spec.wire_out.values())


def _of(known: Iterable[Manifest]) -> list[ImplForm]:
    return [ImplForm(manifest, form) for manifest in known for form in manifest.forms]


def _names(options: Iterable[ImplForm], what: str) -> str:
    found: set[str] = set()
    for option in options:
        found |= set(option.spec.schemes if what == "scheme" else [option.structure])
    return ", ".join(sorted(found))


def select(
    structure: str,
    scheme: str,
    device: str,
    rows: int,
    variant: Mapping[str, str] | None = None,
    *,
    dtype: str | None = None,
    wire: str | None = None,
    known: Iterable[Manifest] | None = None,
) -> ImplForm:
    """The one form that executes the scheme's decision for this call.

    ``device`` is ``"cpu"`` or a CUDA/ROCm architecture (``"sm90"``, ``"gfx942"``); ``rows`` is the
    number of rows in one call; ``variant`` the seam's; ``dtype`` the boundary's (any, when None).
    ``wire`` asks for a form that emits it; without it, forms that stand alone are meant.
    Raises :class:`Refusal`: STRUCTURE when no impl has the structure, ARCH when none is built for
    the device, FORM when none has the scheme or the variant or the rows (naming the form and the
    size), DTYPE when none takes the dtype, AMBIGUOUS when two fit.
    """
    every = _of(manifests() if known is None else known)
    every = [
        o for o in every if (o.spec.alone if wire is None else wire in o.spec.wire_out.values())
    ]
    options = [o for o in every if o.structure == structure]
    if not options:
        raise Refusal(
            Reason.STRUCTURE,
            "no impl executes this structure",
            subject=structure,
            do=f"installed impls execute {_names(every, 'structure')}",
        )
    options = _on_device(options, structure, device)
    with_scheme = [o for o in options if scheme in o.spec.schemes]
    if not with_scheme:
        raise Refusal(
            Reason.FORM,
            f"no impl on {device} executes the scheme {scheme!r}",
            subject=structure,
            do=f"impls there execute {_names(options, 'scheme')}",
        )
    taking = [o for o in with_scheme if dtype is None or dtype in o.spec.input_dtype]
    if not taking:
        takes = " or ".join(sorted({d for o in with_scheme for d in o.spec.input_dtype}))
        raise Refusal(
            Reason.DTYPE, f"its forms take {takes}; the host is {dtype}", subject=structure
        )
    fitting = [o for o in taking if variant is None or not misfit(o.spec, variant)]
    if not fitting:
        first = taking[0]
        raise Refusal(Reason.FORM, misfit(first.spec, variant or {}), subject=str(first))
    chosen = [o for o in fitting if o.spec.serves_rows(rows)]
    if not chosen:
        bands = ", ".join(f"form {o.form} serves {o.spec.band()}" for o in fitting)
        raise Refusal(
            Reason.FORM,
            f"{bands}; the call has {rows}",
            subject=fitting[0].manifest.id,
            do="the host keeps this size",
        )
    if len(chosen) > 1:
        raise Refusal(
            Reason.AMBIGUOUS,
            f"{len(chosen)} forms fit {rows} rows under {scheme}: {', '.join(map(str, chosen))}",
            subject=structure,
            do="narrow the manifests until one fits",
        )
    return chosen[0]


def _on_device(options: list[ImplForm], structure: str, device: str) -> list[ImplForm]:
    wanted = "cpu" if device == "cpu" else "cuda"
    there = [o for o in options if o.manifest.device == wanted]
    served = [o for o in there if wanted == "cpu" or arch.any_serves(o.manifest.archs, device)]
    if there and not served:
        arch.require(there[0].manifest.archs, device, there[0].manifest.id)
    if not served:
        raise Refusal(Reason.ARCH, f"no impl of it runs on {device}", subject=structure)
    return served


def misfit(form: Form, variant: Mapping[str, str]) -> str:
    """The first axis whose value the form does not execute, as a sentence; empty when it fits.

    An axis that the manifest does not list is not this form's concern only when the structure's
    other axes switch it off, so a listed ``host`` norm passes over ``eps``.
    """
    for axis, allowed in form.variants.items():
        value = variant.get(axis)
        if value not in allowed:
            return f"form {form.name} executes {axis} {' or '.join(allowed)}; the seam has {value}"
    for axis in variant:
        if axis not in form.variants and axis not in _SWITCHED:
            return f"form {form.name} does not execute the axis {axis}"
    return ""


_SWITCHED = ("eps",)


def find(record: Mapping[str, str], known: Iterable[Manifest] | None = None) -> ImplForm:
    """The installed form that a record ``{"structure", "backend", "form"}`` names.

    Raises :class:`Refusal` (FORM) when it is not installed.
    """
    wanted = tuple(str(record.get(key, "")) for key in ("structure", "backend", "form"))
    for option in _of(manifests() if known is None else known):
        if (option.structure, option.backend, option.form) == wanted:
            return option
    raise Refusal(
        Reason.FORM,
        f"no installed impl is {wanted[0]}/{wanted[1]} with a form {wanted[2]!r}",
        do="install the flashrt version that the release was made with",
    )


def bind(impl: ImplForm | Mapping[str, str], request: BindRequest) -> BoundSeam:
    """Bind one seam with one impl form.

    Checks structure, form, variant and the dtype of the host's weights, then imports the impl and
    calls its ``bind``, which checks weights and scales and launches once. Raises
    :class:`Refusal`: FORM, DTYPE, and whatever the impl refuses; nothing is mutated.
    """
    chosen = impl if isinstance(impl, ImplForm) else find(impl)
    _fits(chosen, request)
    for slot, tensor in request.weights.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in chosen.spec.input_dtype:
            raise Refusal(
                Reason.DTYPE,
                f"the slot {slot!r} is {dtype}; {chosen} takes "
                f"{' or '.join(chosen.spec.input_dtype)}",
                subject=request.seam.id,
            )
    return _as_declared(chosen, request.seam, _module(chosen.manifest).bind(request))


def bind_packed(impl: ImplForm | Mapping[str, str], request: BindRequest) -> BoundSeam:
    """Bind one seam whose weights are in the impl's packed form already.

    The slots, dtypes and layouts are the impl's own (its ``bind_packed`` says which), and it checks
    them. Raises :class:`Refusal`: FORM when the impl takes no packed weights, and as :func:`bind`.
    """
    chosen = impl if isinstance(impl, ImplForm) else find(impl)
    _fits(chosen, request)
    entry = getattr(_module(chosen.manifest), "bind_packed", None)
    if entry is None:
        raise Refusal(
            Reason.FORM,
            f"{chosen} packs dense weights and takes no packed ones",
            subject=request.seam.id,
        )
    return _as_declared(chosen, request.seam, entry(request))


def _fits(chosen: ImplForm, request: BindRequest) -> None:
    seam = request.seam
    if (seam.structure, request.form) != (chosen.structure, chosen.form):
        raise Refusal(
            Reason.FORM,
            f"{chosen} was asked to bind {seam.structure} in form {request.form!r}",
            subject=seam.id,
        )
    wrong = misfit(chosen.spec, seam.variant)
    if wrong:
        raise Refusal(Reason.FORM, f"{chosen.manifest.id}: {wrong}", subject=seam.id)


def _as_declared(chosen: ImplForm, seam: Seam, bound: BoundSeam) -> BoundSeam:
    if bound.operator != chosen.manifest.operator or set(bound.bodies) != set(seam.members):
        raise Refusal(
            Reason.FORM,
            f"{chosen} bound {bound.operator} for {sorted(bound.bodies)}; its manifest says "
            f"{chosen.manifest.operator}, the seam has {sorted(seam.members)}",
            subject=seam.id,
        )
    return bound


def _module(manifest: Manifest) -> Any:
    folder = manifest.structure.partition("@")[0]
    for name in (folder, manifest.backend):
        if _NAME.fullmatch(name) is None:
            raise Refusal(Reason.FORM, f"{name!r} is not an impl's name", subject=manifest.id)
    try:
        return importlib.import_module(f"{PACKAGE}.{folder}.{manifest.backend}")
    except ImportError as error:
        raise Refusal(
            Reason.FORM, f"the impl cannot be imported: {error}", subject=manifest.id
        ) from error
