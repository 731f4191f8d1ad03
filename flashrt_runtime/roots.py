"""What a model with implementations attached refuses at its root, before anything is mutated.

Every module of the tree gets instance methods that refuse training, migration and loading, and
the root a hook that refuses a second thread. All of it is taken away again by :meth:`remove`.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from torch import nn
from torch.compiler import is_compiling

from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.seat import thread_refusal

MARK = "flashrt_attached"
_NAMES = ("train", "_apply", "load_state_dict", "__reduce_ex__", MARK)
_DETACH = "detach() first, then attach again"


def _train(module: nn.Module, path: str) -> Callable[..., nn.Module]:
    def train(mode: bool = True) -> nn.Module:
        if mode:
            what = "the model cannot train while implementations are attached"
            raise Refusal(Reason.TRAINING, what, subject=path, do=_DETACH)
        return type(module).train(module, False)

    return train


def _apply(path: str) -> Callable[..., nn.Module]:
    def refuse(*args: Any, **named: Any) -> nn.Module:
        what = "the device or dtype cannot change while implementations are attached"
        raise Refusal(Reason.MIGRATION, what, subject=path, do=_DETACH)

    return refuse


def _load(path: str) -> Callable[..., Any]:
    def refuse(*args: Any, **named: Any) -> Any:
        what = "weights cannot be loaded while implementations are attached"
        raise Refusal(Reason.LOAD_STATE, what, subject=path, do=_DETACH)

    return refuse


def _reduce(module: nn.Module, hook_id: Callable[[], int | None]) -> Callable[[Any], Any]:
    # Copies and pickles hold the host's modules (seats reduce to theirs) and none of our guards.
    def reduce(protocol: Any) -> Any:
        reduced: Any = type(module).__reduce_ex__(module, max(protocol, 2))
        make, args, state, *rest = reduced
        if isinstance(state, dict):
            state = {k: v for k, v in state.items() if k not in _NAMES}
            hooks = state["_forward_pre_hooks"]
            kept = [(key, hook) for key, hook in hooks.items() if key != hook_id()]
            state["_forward_pre_hooks"] = type(hooks)(kept)
        return make, args, state, *rest

    return reduce


class ThreadOwner:
    """The thread that first called the root."""

    def __init__(self) -> None:
        self._owner: int | None = None

    def claim(self) -> None:
        """Make this thread the owner, or refuse. Raises :class:`Refusal` (THREAD)."""
        if self._owner is None:
            self._owner = get_ident()
        elif self._owner != get_ident():
            raise thread_refusal("the attached model")


class RootGuards:
    """The guards of one attached model. ``install`` and ``remove`` are exact inverses."""

    def __init__(self, root: nn.Module, owner: ThreadOwner) -> None:
        self._root = root
        self._owner = owner
        self._kept: list[tuple[nn.Module, dict[str, Any]]] = []
        self._hook: Any = None

    def _hook_id(self) -> int | None:
        return None if self._hook is None else self._hook.id

    def install(self) -> None:
        """Guard every module of the tree (the hosts', not the seats: seats refuse by type)."""
        for path, module in self._root.named_modules():
            kept = {name: module.__dict__[name] for name in _NAMES if name in module.__dict__}
            self._kept.append((module, kept))
            shown = path or type(module).__name__
            module.__dict__.update(
                {
                    "train": _train(module, shown),
                    "_apply": _apply(shown),
                    "load_state_dict": _load(shown),
                    "__reduce_ex__": _reduce(module, self._hook_id),
                    MARK: True,
                }
            )
        self._hook = self._root.register_forward_pre_hook(self._before, prepend=True)

    def _before(self, module: nn.Module, args: Any) -> None:
        if not is_compiling():
            self._owner.claim()

    def remove(self) -> None:
        """Give every module its own attributes back."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        for module, kept in self._kept:
            for name in _NAMES:
                module.__dict__.pop(name, None)
            module.__dict__.update(kept)
        self._kept.clear()
