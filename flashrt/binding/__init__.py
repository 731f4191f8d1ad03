"""Bindings: where one host holds each structure's slots and points, and who owns its hot path."""

from flashrt.binding.model import BindingSpec, Coverage, RegionBinding
from flashrt.binding.reader import binding_names, bindings_root, load_binding
from flashrt.binding.resolver import resolve

__all__ = [
    "BindingSpec",
    "Coverage",
    "RegionBinding",
    "binding_names",
    "bindings_root",
    "load_binding",
    "resolve",
]
