"""NVFP4 layers: e2m1 two a byte, e4m3 scales of 16, a global scale, activations likewise."""

from __future__ import annotations

from flashrt.doors.packed.source import Form, Source, differs, linear, refuse

_FORMAT = {
    "num_bits": (4,),
    "type": ("float",),
    "strategy": ("tensor_group",),
    "group_size": (16,),
    "symmetric": (True,),
}
_SLOTS = ("weight_packed", "weight_scale", "weight_global_scale", "input_global_scale", "bias")


def convert(source: Source) -> Form:
    """The tensors as they are, for ``nvfp4_dynamic``. Raises :class:`Refusal` (FORM)."""
    scheme = source.scheme
    wrong = differs(scheme.weights, _FORMAT | {"dynamic": (False,)})
    if wrong:
        raise refuse(source, f"weights: {wrong}")
    if scheme.input_activations is None:
        raise refuse(source, "its activations stay unquantised, and the form would round them")
    wrong = differs(scheme.input_activations, _FORMAT | {"dynamic": ("local",)})
    if wrong:
        raise refuse(source, f"activations: {wrong}")
    slots = {name: source.tensors[name] for name in _SLOTS if name in source.tensors}
    return Form(linear("nvfp4_dynamic", "dynamic"), slots)
