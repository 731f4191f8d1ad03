"""The module that an adapter puts in an attention module's place, and its account of declines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

from flashrt_runtime.reason import Because, Reason, Refusal

Core = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


class Account:
    """How often a core ran (``calls``), and how often and why the host's own code ran instead.

    ``dispatched`` are calls that are the host's by design (a prefill), ``declined`` those that
    broke the core's boundary. Counts are eager only: a compiler traces past them.
    """

    def __init__(self, subject: str, strict: bool) -> None:
        self.subject = subject
        self.strict = strict
        self.calls = 0
        self.dispatched = 0
        self.declined = 0
        self.last: Because | None = None

    def ran(self) -> None:
        """One call of the core."""
        if not is_dynamo_compiling():
            self.calls += 1

    def leave(self, because: Because) -> None:
        """One call that stays the host's by design."""
        if not is_dynamo_compiling():
            self.dispatched += 1
            self.last = because

    def decline(self, because: Because) -> None:
        """One call outside the boundary: counted, or raised as :class:`Refusal` when strict."""
        if self.strict:
            raise Refusal(because.reason, because.detail, subject=self.subject)
        if not is_dynamo_compiling():
            self.declined += 1
            self.last = because


def _itself(host: nn.Module) -> nn.Module:
    return host


class Body(nn.Module):
    """Runs ``run`` in the place of ``host``, which is retained and is no submodule of this.

    ``inner`` names the modules below ``host`` that are still called as modules, so that seams of
    their own may sit there. The core is made of this host's weights as they are: a copy of a body
    is a copy of the host's module, and another device or dtype is refused.
    """

    def __init__(
        self, host: nn.Module, run: Callable[..., Any], account: Account, inner: frozenset[str]
    ) -> None:
        super().__init__()
        # The host's parameters stay the host's: state_dict and parameters of a body are empty.
        self.__dict__["host"] = host
        self.run = run
        self.account = account
        self.inner = inner
        self.train(False)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Body:
        """Raise :class:`Refusal` (MIGRATION): what it runs would keep its device and dtype."""
        raise Refusal(
            Reason.MIGRATION,
            "the device or dtype cannot change while its attention is replaced",
            subject=self.account.subject,
            do="put the host's module back, move the model, then adapt it again",
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy or a pickle holds the host's module: the core's weights are this host's."""
        return _itself, (self.host,)

    def forward(self, *args: Any, **named: Any) -> Any:
        """What the host's module would return for these arguments."""
        return self.run(*args, **named)
