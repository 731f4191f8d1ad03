"""Bodies that run a host's attention with a given core in the place of the host's own arithmetic.

A *core* takes a structure's boundary inputs by name and returns its outputs by name, as the
structure's reference does. A body takes the arguments that the host gives its attention module
and returns what that module returns. Projections stay calls of the host's modules, looked up at
every call, so that what is swapped in there is what runs. Nothing here copies a tensor to make it
contiguous, and nothing here changes the host: placing a body is the business of ``swap``.

=====================  =====================================================
kind                   body
=====================  =====================================================
attention_processor    :func:`flashrt_runtime.adapters.core.attention_processor`
attention_interface    :func:`flashrt_runtime.adapters.core.attention_interface` and
                       :func:`flashrt_runtime.adapters.sequence.sequence_attention`
two_way_attention      :func:`flashrt_runtime.adapters.two_way.two_way_attention`
packed_vision_qkv      :func:`flashrt_runtime.adapters.vision.packed_vision_qkv`
gated_delta_slots      :func:`flashrt_runtime.adapters.gated_delta.gated_delta_slots`
=====================  =====================================================
"""

from __future__ import annotations

KINDS = (
    "attention_processor",
    "attention_interface",
    "two_way_attention",
    "packed_vision_qkv",
    "gated_delta_slots",
)

__all__ = ["KINDS"]
