"""What INT8 W8A8 and FP8 layers have in common: one scale a row or a tensor, in both operands."""

from __future__ import annotations

from flashrt.doors.packed.source import Form, Source, differs, linear, refuse

_SLOTS = ("weight", "weight_scale", "bias")


def convert(source: Source, kind: str, backend: str) -> Form:
    """The tensors as they are. ``kind`` is the library's ``int`` or ``float``.

    Raises :class:`Refusal` (FORM): blocks, asymmetric levels, other bits, weights alone.
    """
    scheme = source.scheme
    both = {"num_bits": (8,), "type": (kind,), "symmetric": (True,)}
    fixed = {"dynamic": (False,), "strategy": ("channel", "tensor")}
    wrong = differs(scheme.weights, both | fixed)
    if wrong:
        raise refuse(source, f"weights: {wrong}")
    given = scheme.input_activations
    if given is None:
        raise refuse(source, "its activations stay unquantised, and the form would round them")
    static = given.dynamic is False
    strategy = ("tensor",) if static else ("token",)
    wrong = differs(given, both | {"dynamic": (True, False), "strategy": strategy})
    if wrong:
        raise refuse(source, f"activations: {wrong}")
    wanted = (*_SLOTS, "input_scale") if static else _SLOTS
    slots = {name: source.tensors[name] for name in wanted if name in source.tensors}
    form = linear(backend, "static" if static else "dynamic")
    return Form(form, slots)
