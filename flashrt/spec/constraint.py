"""What the dims of a structure must satisfy: ``R <= Dh``, ``Hq == G*Hkv``, ``2 divides Dh``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from flashrt.spec.expr import Expr, Operation, exact, names, single
from flashrt_runtime.reason import Reason, Refusal

_RELATION = re.compile(r"<=|==|\bdivides\b")


class Relation(Enum):
    """How the two sides stand to each other."""

    AT_MOST = "<="
    EQUAL = "=="
    DIVIDES = "divides"


@dataclass(frozen=True)
class Constraint:
    """``left relation right``; ``text`` is how the spec wrote it."""

    left: Expr
    relation: Relation
    right: Expr
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text or f"{self.left} {self.relation.value} {self.right}"

    @property
    def difference(self) -> Expr:
        """``left - right``, which is 0 where the two are equal."""
        return Operation("-", self.left, self.right)

    def names(self) -> frozenset[str]:
        """The dims that it relates."""
        return names(self.difference)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is so under ``sizes``, which have every name of it.

        Raises :class:`Refusal` (SHAPE) where a name is missing or something is divided by zero.
        """
        left, right = exact(self.left, sizes), exact(self.right, sizes)
        if self.relation is Relation.AT_MOST:
            return left <= right
        if self.relation is Relation.EQUAL:
            return left == right
        return left != 0 and (right / left).denominator == 1


def constraint(text: str) -> Constraint:
    """The constraint that a text says. Raises :class:`Refusal` (SCHEMA) for anything else."""
    found = list(_RELATION.finditer(text))
    if len(found) != 1:
        raise Refusal(
            Reason.SCHEMA,
            "a constraint has one of <=, == and divides",
            subject=repr(text),
            do="write EXPR <= EXPR, EXPR == EXPR or EXPR divides EXPR",
        )
    match = found[0]
    left, right = single(text[: match.start()]), single(text[match.end() :])
    return Constraint(left, Relation(match.group()), right, " ".join(text.split()))
