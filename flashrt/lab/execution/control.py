"""Controls: what a spec may set. Each is one field of the system's settings, found by its type."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import lru_cache

from flashrt.lab.records import KVResidencySystemConfig, Says
from flashrt.lab.records.codec import fields_of
from flashrt_runtime.reason import Reason, Refusal

# Owners whose settings' class has another name than theirs with Config behind it.
_SUBJECTS = {"SystemCeilings": "InferenceSystem"}
_MANY_DIGITS = 400


@dataclass(frozen=True)
class Control:
    """One control: its path, the owner whose setting it is, and what the field says of itself.

    A ``needed`` control has no default: a spec that leaves it out describes no system.
    """

    path: str
    subject: str
    says: Says
    needed: bool


@lru_cache(maxsize=1)
def controls() -> dict[str, Control]:
    """Every control by its path, ``group.field``, in the order of the fields."""
    found = {}
    needed = {f.name for f in fields(KVResidencySystemConfig) if f.default is MISSING}
    for name, group, _ in fields_of(KVResidencySystemConfig):
        plain = group.__name__
        subject = _SUBJECTS.get(plain, plain.removesuffix("Config"))
        for part, _, says in fields_of(group):
            path = f"{name}.{part}"
            found[path] = Control(path, subject, says, name in needed)
    return found


def control(path: str) -> Control:
    """The control of a path. Raises :class:`Refusal` (SCHEMA) that names the nearest ones."""
    known = controls()
    if path not in known:
        from difflib import get_close_matches

        near = get_close_matches(path, known) or list(known)
        do = f"write {' or '.join(near)}"
        raise Refusal(Reason.SCHEMA, "no control has this path", subject=path, do=do)
    return known[path]


def read_setting(text: str) -> int | str:
    """A setting that a person wrote: an integer where it is one, else the text itself."""
    digits = text.removeprefix("-")
    whole = digits.isascii() and digits.isdigit() and len(digits) < _MANY_DIGITS
    return int(text) if whole else text
