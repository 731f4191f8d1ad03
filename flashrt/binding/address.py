"""Where one boundary tensor is seen during one forward of a host, and how it becomes the spec's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Capture(Enum):
    """What of a module is seen."""

    INPUT = "input"
    OUTPUT = "output"
    SDPA = "sdpa"  # the scaled_dot_product_attention called while the module runs
    CALL = "call"  # a callable attribute of the module


@dataclass(frozen=True)
class Step:
    """One step from the host's tensor to the spec's: an operation of the schema and its operand."""

    op: str
    operand: Any

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Step:
        """The step an entry that satisfies the schema says; ``plus`` holds an :class:`Address`."""
        op, operand = next(iter(entry.items()))
        return cls(op, Address.of(operand) if op == "plus" else operand)

    def other(self) -> Iterator[Address]:
        """The further address the step reads, if it reads one, and those inside that."""
        if self.op == "plus":
            yield self.operand
            for step in self.operand.then:
                yield from step.other()

    def record(self) -> dict[str, Any]:
        """JSON form."""
        return {self.op: self.operand.record() if self.op == "plus" else self.operand}

    def key(self) -> str:
        """The state-dict key (template) the step reads, empty where it reads none."""
        return str(self.operand) if self.op in ("add", "minus") else ""

    def attributes(self) -> Iterator[str]:
        """Attributes of the module from which the step takes a size."""
        if self.op in ("chunk", "narrow", "unflatten"):
            yield from (value for value in self.operand if isinstance(value, str))


@dataclass(frozen=True)
class Address:
    """A module (template), what of it is seen, and the steps that follow.

    ``name`` is a parameter of the module's forward (input), of the callable (call) or one of
    ``query key value attn_mask output`` (sdpa); empty: the first argument, or what came back.
    ``slot`` is the module's attribute that is called (call). ``nth`` counts the attentions of one
    run of the module from 0 (sdpa).
    """

    module: str
    capture: Capture
    name: str = ""
    slot: str = ""
    then: tuple[Step, ...] = ()
    nth: int = 0

    @property
    def part(self) -> str:
        """What is seen of the module, where there may be several: the slot, or the attention."""
        return str(self.nth) if self.capture is Capture.SDPA else self.slot

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Address:
        """The address an entry that satisfies the schema says."""
        return cls(
            module=entry["module"],
            capture=Capture(entry["capture"]),
            name=entry.get("name", ""),
            slot=entry.get("slot", ""),
            then=tuple(Step.of(step) for step in entry.get("then", ())),
            nth=entry.get("nth", 0),
        )

    def record(self) -> dict[str, Any]:
        """JSON form."""
        said: dict[str, Any] = {"module": self.module, "capture": self.capture.value}
        said |= {"nth": self.nth} if self.nth else {}
        said |= {"name": self.name} if self.name else {}
        said |= {"slot": self.slot} if self.slot else {}
        said |= {"then": [step.record() for step in self.then]} if self.then else {}
        return said
