"""One turn of a conversation: who speaks, and the bytes that were said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from flashrt_runtime.reason import Reason, Refusal

Role = Literal["system", "user", "assistant"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Turn:
    """``text`` as str is its UTF-8; as bytes it is taken as it is, valid UTF-8 or not.

    Raises :class:`Refusal` (CONFLICT) for a role that does not exist, and for a str that has no
    UTF-8 (a lone surrogate).
    """

    role: Role
    text: str | bytes

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise Refusal(
                Reason.CONFLICT,
                "no such role",
                subject=repr(self.role),
                do="one of " + ", ".join(ROLES),
            )
        try:
            _ = self.data
        except UnicodeEncodeError as error:
            what = f"half a character at index {error.start} (a lone surrogate)"
            raise Refusal(Reason.CONFLICT, what, subject=f"{self.role} turn") from error

    @property
    def data(self) -> bytes:
        """The turn's bytes, as the encoder reads them."""
        return self.text if isinstance(self.text, bytes) else self.text.encode("utf-8")
