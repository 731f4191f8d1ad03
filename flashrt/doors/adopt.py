"""``adopt_prequantized``: a packed checkpoint becomes impls' packed forms once, for good."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt_runtime.contract import BindRequest, BoundSeam
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

    from flashrt.doors.packed.errors import OutputError
    from flashrt.doors.packed.source import Form, Source

# A conversion changes no bit. What the library unpacks is rounded to bfloat16 (2**-9 at most); a
# layout that is read wrongly is off by far more.
CONVERSION_LIMIT = 2.0**-7


class AdoptionWarning(UserWarning):
    """Said whenever a model is adopted: there is no way back."""


@dataclass(frozen=True)
class LayerReport:
    """One adopted layer.

    ``relative_error`` is ‖ours − theirs‖ / ‖theirs‖ of the matrix, theirs as the library unpacks
    it. ``bytes_before`` is the checkpoint's packing, ``bytes_after`` what the impl holds, both with
    the bias. ``output`` is there when a ``forward`` was given and called the layer.
    """

    path: str
    format: str
    impl: str
    relative_error: float
    bytes_before: int
    bytes_after: int
    output: OutputError | None = None

    def __str__(self) -> str:
        line = (
            f"{self.path}: {self.format} -> {self.impl}, weight error {self.relative_error:.2e}, "
            f"{self.bytes_before} -> {self.bytes_after} bytes"
        )
        return line if self.output is None else f"{line}, {self.output}"


@dataclass(frozen=True)
class Adopted:
    """The model, changed in place, and what became of each packed layer."""

    model: torch.nn.Module
    report: tuple[LayerReport, ...]

    def detach(self) -> None:
        """Always refused (FORM): a packed source cannot execute, so no host is there to give."""
        raise Refusal(
            Reason.FORM,
            "an adoption cannot be undone: nothing was kept that could run in its place",
            subject=type(self.model).__name__,
            do="load the checkpoint again",
        )

    def __str__(self) -> str:
        return "\n".join(map(str, self.report))


def adopt_prequantized(
    model_or_folder: torch.nn.Module | str | Path,
    fmt: str | None = None,
    *,
    forward: Callable[[torch.nn.Module], Any] | None = None,
) -> Adopted:
    """Put every packed layer of a compressed-tensors checkpoint into an impl that executes it.

    ``model_or_folder`` is a model that transformers loaded (packed, before its first forward), in
    evaluation mode, or the folder, which is loaded in float32. ``fmt`` (``nvfp4``, ``int8``,
    ``fp8``, or the library's own name) demands one format. ``forward(model)`` is called once on the
    adopted model, to report each layer's output error on that input.

    The model is changed in place, and **there is no detach**: undoing it is loading the checkpoint
    again. Every layer is converted or none; what ``forward`` raises is raised after that. Raises
    :class:`Refusal`: HOST without the library, STRUCTURE for a model without packed layers, FORM
    for a format or arguments that no impl executes, CONFLICT when ``fmt`` is another, TRAINING,
    TIED, SHAPE, LAYOUT, and what an impl refuses. CONFLICT, too, for a model that is adopted or
    attached to already, and FORM for a layer that does more than its packed product (transforms,
    hooks, another class or forward), which adopting would drop.
    """
    from flashrt.doors.packed import form_of, full_name
    from flashrt.doors.packed.errors import output_errors
    from flashrt.doors.packed.load import load_packed, require_library
    from flashrt.doors.packed.module import refuse_taken
    from flashrt.doors.packed.source import packed_layers

    wanted = None if fmt is None else full_name(fmt)
    require_library()
    model = load_packed(model_or_folder)
    refuse_taken(model)
    if any(module.training for module in model.modules()):
        what = "the model is in training mode"
        raise Refusal(
            Reason.TRAINING, what, subject=type(model).__name__, do="call model.eval() first"
        )
    sources = packed_layers(model)
    for source in sources:
        if wanted is not None and source.format != wanted:
            what = f"{wanted} was asked for, the layer is packed as {source.format}"
            raise Refusal(Reason.CONFLICT, what, subject=source.path, do="leave fmt out")
    forms = [form_of(source) for source in sources]
    bound = [_bind(source, form) for source, form in zip(sources, forms, strict=True)]
    errors = [_conversion_error(s, b) for s, b in zip(sources, bound, strict=True)]
    _replace(model, sources, bound)
    outputs = {} if forward is None else output_errors(model, sources, forward)
    report = tuple(
        LayerReport(
            path=source.path,
            format=source.format,
            impl=f"{form.impl['structure']}/{form.impl['backend']}",
            relative_error=error,
            bytes_before=source.bytes,
            bytes_after=body.weight_bytes,
            output=outputs.get(source.path),
        )
        for source, form, body, error in zip(sources, forms, bound, errors, strict=True)
    )
    told = f"{len(report)} packed layers were replaced in place and cannot be put back"
    warnings.warn(f"{told}; to undo it, load the checkpoint again", AdoptionWarning, stacklevel=2)
    return Adopted(model, report)


def _bind(source: Source, form: Form) -> BoundSeam:
    from flashrt_runtime.impl_loader import bind_packed

    return bind_packed(form.impl, BindRequest(source.seam(), form.slots, {}, form.impl["form"]))


def _conversion_error(source: Source, bound: BoundSeam) -> float:
    """How far the impl's matrix is from the library's. Refuses (LAYOUT) another one."""
    from flashrt.doors.packed.errors import relative

    body: Any = bound.bodies["self"]
    ours, theirs = body.dense(), source.dense()
    if ours.shape != theirs.shape or tuple(ours.shape) != source.shape:
        what = f"{list(ours.shape)} was packed, {list(theirs.shape)} unpacked"
        raise Refusal(
            Reason.LAYOUT, f"{what}, the layer is {list(source.shape)}", subject=source.path
        )
    error = relative(ours, theirs)
    if not (error <= CONVERSION_LIMIT):
        raise Refusal(
            Reason.LAYOUT,
            f"the converted matrix is {error:.2e} from what {source.format} unpacks to",
            subject=source.path,
            do="use the version of compressed-tensors that this flashrt was tested with",
        )
    return error


def _replace(model: torch.nn.Module, sources: Sequence[Source], bound: Sequence[BoundSeam]) -> None:
    from flashrt.doors.packed.module import refuse_saving

    _put(model, [(s.path, _taken(s, one)) for s, one in zip(sources, bound, strict=True)])
    for module in model.modules():
        # The library's own hook would look for packed layers to unpack on the first forward.
        hook = module.__dict__.pop("ct_decompress_hook", None)
        if hook is not None:
            hook.remove()
        if hasattr(module, "save_pretrained"):
            vars(module)["save_pretrained"] = refuse_saving


def _taken(source: Source, bound: BoundSeam) -> torch.nn.Module:
    from flashrt.doors.packed.module import AdoptedLinear

    return AdoptedLinear(bound.bodies["self"], source.path, source.shape, source.dtype)


def _put(model: torch.nn.Module, taken: Sequence[tuple[str, torch.nn.Module]]) -> None:
    """Put each module at its path; none, when a holder takes one otherwise than it was given."""
    done: list[tuple[Any, str, torch.nn.Module]] = []
    try:
        for path, module in taken:
            parent, _, name = path.rpartition(".")
            holder = model.get_submodule(parent)
            done.append((holder, name, model.get_submodule(path)))
            setattr(holder, name, module)
            if model.get_submodule(path) is not module:
                what = f"{type(holder).__name__} does not hold what is set in this layer's place"
                raise Refusal(Reason.STRUCTURE, what, subject=path)
    except BaseException:
        for holder, name, host in reversed(done):
            holder._modules[name] = host
        raise
