"""``from flashrt import swap``: the runtime's attach, under the name the doors use."""

from flashrt_runtime.handle import Handle
from flashrt_runtime.swap import Swap, attach

__all__ = ["Handle", "Swap", "attach"]
