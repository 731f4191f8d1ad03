"""Structures: what a region or a pipeline is, its versions, its reference and its dims."""

from flashrt.spec.model import Gates, Kind, StructureSpec, TensorSpec
from flashrt.spec.reference import Cost, Reference, load_reference
from flashrt.spec.registry import catalog_root, check_lock, load

__all__ = [
    "Cost",
    "Gates",
    "Kind",
    "Reference",
    "StructureSpec",
    "TensorSpec",
    "catalog_root",
    "check_lock",
    "load",
    "load_reference",
]
