"""A host's module tree as a binding sees it: modules and tensors by path, and who shares memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

NO_INDEX = -1


def expand(template: str, index: int) -> str:
    """The path at one index; a template without ``{i}`` is the path itself."""
    return template.replace("{i}", str(index))


def index_of(template: str, path: str) -> int | None:
    """The index at which a template names this path, ``NO_INDEX`` for one without ``{i}``."""
    pattern = re.escape(template).replace(re.escape("{i}"), "(?P<i>0|[1-9][0-9]*)", 1)
    pattern = pattern.replace(re.escape("{i}"), "(?P=i)")
    found = re.fullmatch(pattern, path)
    if found is None:
        return None
    return int(found["i"]) if "{i}" in template else NO_INDEX


@dataclass(frozen=True)
class Tree:
    """Modules and tensors (parameters and buffers) by path; a tied tensor has several paths."""

    modules: Mapping[str, torch.nn.Module]
    tensors: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, model: torch.nn.Module) -> Tree:
        """The tree of a host."""
        tensors: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
        tensors |= dict(model.named_buffers(remove_duplicate=False))
        return cls(dict(model.named_modules(remove_duplicate=False)), tensors)

    def indices(self, template: str) -> list[int]:
        """Every index at which the tree has the template, in order."""
        found = (index_of(template, path) for path in self.modules)
        return sorted(i for i in found if i is not None)

    def sharers(self, path: str) -> list[str]:
        """Other paths of the same tensor."""
        tensor = self.tensors[path]
        return [
            other
            for other, value in self.tensors.items()
            if other != path
            and (value is tensor or (tensor.data_ptr() and value.data_ptr() == tensor.data_ptr()))
        ]

    def inside(self, module: str) -> list[str]:
        """Paths of every tensor in a module's subtree."""
        return [path for path in self.tensors if path.startswith(f"{module}.")]
