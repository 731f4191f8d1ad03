"""Values of the lab's records, drawn from the types of their fields."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Literal, get_args, get_origin

from hypothesis import strategies as st

from flashrt.lab.ontology import packaged_code
from flashrt.lab.records import RequestArrival
from flashrt.lab.records.codec import fields_of
from flashrt.lab.records.readers import UNIONS
from flashrt.lab.records.shared import SHARED
from flashrt.record import (
    ExecutionBackend,
    ExperimentExecution,
    ModelArtifact,
    Provenance,
    VirtualClock,
    Workload,
)
from flashrt.record.exact import LARGEST

# Every record class of the lab's own, by name.
OWN = {name: cls for name, cls in packaged_code().records.items() if hasattr(cls, "tagged")}
BACKEND = ExecutionBackend("cpu", "process memory", "process memory", "torch 2.13.0", "float32")
EXAMPLES: dict[type, Any] = {
    ModelArtifact: ModelArtifact("m", "tiny_gpt", "sha256:0", None, "float32", None, 1, "trained"),
    ExecutionBackend: BACKEND,
    ExperimentExecution: ExperimentExecution(
        "e", "0", ("flashrt", "lab", "run"), BACKEND, 0,
        virtual=VirtualClock(Fraction(0), Fraction(7, 2)),
        provenance=Provenance("sha256:0", "3.11", None),
    ),
    Provenance: Provenance("sha256:0", "3.11", None),
    VirtualClock: VirtualClock(Fraction(0), Fraction(7, 2)),
}  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    str: TEXT,
    bytes: st.binary(max_size=12),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
}


@cache
def values(cls: Any) -> st.SearchStrategy[Any]:
    """Records of a class, each field by its type and bounds."""
    if cls in EXAMPLES:
        return st.just(EXAMPLES[cls])
    if cls is Workload:
        return st.lists(values(RequestArrival), max_size=2).map(lambda r: Workload(tuple(r)))
    assert cls not in SHARED
    parts = {
        name: st.none() if says and says.held else _of(hint, says)
        for name, hint, says in fields_of(cls)
    }
    return st.builds(cls, **parts)


def _of(hint: Any, says: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in UNIONS:
        return st.one_of([_of(part, says) for part in arguments])
    if origin is tuple:
        return _several(arguments, says)
    if is_dataclass(origin or hint):
        return values(origin or hint)
    return _number(hint, says) if hint in (int, Fraction) else PLAIN[hint]


def _several(arguments: tuple[Any, ...], says: Any) -> st.SearchStrategy[Any]:
    if arguments[-1] is Ellipsis:
        return st.lists(_of(arguments[0], says), max_size=2).map(tuple)
    return st.tuples(*(_of(part, says) for part in arguments))


def _number(hint: Any, says: Any) -> st.SearchStrategy[Any]:
    least = says.least if says.above is None else says.above + 1
    if hint is int:
        return st.integers(min_value=-LARGEST if least is None else least, max_value=LARGEST)
    whole = st.integers(min_value=0 if least is None else least, max_value=2**70)
    return st.builds(lambda n, q: n + Fraction(1, q), whole, st.integers(1, 10**6))


def needed(cls: Any) -> list[str]:
    """Fields without a default."""
    return [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
