"""What every record of the lab is: a frozen dataclass whose fields say what they mean.

A field is written ``Annotated[type, Says("what it is", "unit")]``. Its JSON form follows its type:
a tuple is an array, exact numbers are integers or ``"p/q"``, bytes are hexadecimal, and where one
of several records may stand each says its class under ``type``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from flashrt.lab.records import codec
from flashrt.lab.records.bounds import misfit
from flashrt_runtime.reason import Reason, Refusal

__all__ = ["Checked", "Record", "Says"]


@dataclass(frozen=True)
class Says:
    """What a field is, in a sentence, and its unit, ``""`` where it is no quantity.

    ``least`` is the smallest number allowed, ``above`` a number that must be exceeded. A ``held``
    field is a payload that is kept in memory or beside the record and never in its JSON.
    """

    text: str
    unit: str = ""
    least: int | None = None
    above: int | None = None
    held: bool = False


class Record:
    """A frozen dataclass with a JSON form.

    A ``tagged`` one says its class under ``type``; one that is a whole ``document`` says that kind
    and version under ``schema``.
    """

    __slots__ = ()
    tagged: ClassVar[bool] = False
    document: ClassVar[str] = ""

    def record(self) -> dict[str, Any]:
        """JSON form: every field by its name, without those that are only held."""
        return codec.encode(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`record`.

        Raises :class:`Refusal` (SCHEMA) that names the field: a key that is missing or unknown, or
        a value of another type.
        """
        made: Self = codec.decode(cls, record)
        return made


class Checked(Record):
    """A record whose types and bounds are checked when it is made: what people write.

    Raises :class:`Refusal` (CONFLICT) that names the field.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, hint, says in codec.fields_of(type(self)):
            wrong = misfit(getattr(self, name), hint, says)
            if wrong:
                subject = f"{type(self).__name__}.{name}"
                raise Refusal(Reason.CONFLICT, wrong, subject=subject, do="give another value")
