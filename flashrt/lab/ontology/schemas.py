"""JSON Schemas of the lab's records, made from their classes: closed, and each field with owner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from fractions import Fraction
from typing import Any, Literal, TypeVar, get_args, get_origin

from flashrt.document.meta import DRAFT
from flashrt.document.schema import urn
from flashrt.lab.ontology.code import Code, classes_in, packaged_code, schema_name
from flashrt.lab.ontology.model import Ontology, Owner
from flashrt.lab.records import RequestArrival
from flashrt.lab.records.codec import fields_of, said_of
from flashrt.lab.records.shared import OMITTED, SHARED
from flashrt.record import ExperimentExecution
from flashrt.record.exact import LARGEST

Schema = dict[str, Any]
_PLAIN = {int: "integer", bool: "boolean", str: "string", float: "number", type(None): "null"}
_DIGITS = 801  # two numbers of 400 digits and the line between


def schemas(ontology: Ontology, code: Code | None = None) -> Iterator[tuple[str, Schema]]:
    """Name and schema of each owner that has records in the lab's JSON, in the file's order."""
    code = code or packaged_code()
    for owner in ontology.owners:
        yield schema_name(owner.name), _schema(owner, ontology, code)


def _schema(owner: Owner, ontology: Ontology, code: Code) -> Schema:
    classes = [code.records[name] for name, _ in owner.records]
    # Records that only calibration and qualification write have their schema elsewhere.
    classes = [cls for cls in classes if hasattr(cls, "document") or cls in SHARED]
    root = next((cls for cls in classes if getattr(cls, "document", "")), classes[0])
    const = {"schema": _const(said_of(root)["schema"], owner)} if _document(root) else {}
    return {
        "$schema": DRAFT,
        "$id": urn(schema_name(owner.name)),
        "title": owner.name,
        "description": owner.meaning,
        "x-owner": owner.name,
        "x-lifecycle": owner.lifecycle.kind,
        "$ref": f"#/$defs/{root.__name__}",
        **({"properties": const} if const else {}),
        "$defs": {cls.__name__: _record(cls, owner, ontology) for cls in classes},
    }


def _document(cls: Any) -> bool:
    return bool(getattr(cls, "document", ""))


def _const(text: str, owner: Owner) -> Schema:
    return {"description": "What this is.", "x-owner": owner.name, "const": text}


def _record(cls: Any, owner: Owner, ontology: Ontology) -> Schema:
    notes = SHARED.get(cls)
    properties: dict[str, Schema] = {}
    if notes is None:
        properties |= {key: _const(text, owner) for key, text in said_of(cls).items()}
    for name, hint, said in fields_of(cls):
        says = notes.get(name) if notes is not None else said
        if says is None or says.held:
            continue
        properties[name] = {
            "description": says.text,
            "x-owner": owner.name,
            **({"x-unit": says.unit} if says.unit else {}),
            **_type(_narrowed(cls, hint), says, owner, ontology),
        }
    return {
        "description": (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " "),
        "x-owner": owner.name,
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in _optional(cls)],
        "additionalProperties": False,
    }


def _optional(cls: Any) -> frozenset[str]:
    """Fields that a record's JSON form may lack. A shared record's is written whole."""
    if cls in SHARED:
        return frozenset(OMITTED)
    return frozenset(
        f.name for f in fields(cls) if f.default is not MISSING or f.default_factory is not MISSING
    )


def _narrowed(cls: Any, hint: Any) -> Any:
    """What an execution always has here, though a measured one does not."""
    if cls is ExperimentExecution and type(None) in get_args(hint):
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


def _type(hint: Any, says: Any, owner: Owner, ontology: Ontology) -> Schema:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return _array(arguments, says, owner, ontology)
    if origin is not None and not is_dataclass(origin):
        return {"anyOf": [_type(part, says, owner, ontology) for part in arguments]}
    return _leaf(hint, says) or {"$ref": _place(hint, owner, ontology)}


def _leaf(hint: Any, says: Any) -> Schema:
    """The schema of a type that is made of no others; empty for a record."""
    if hint is Fraction:
        return {"anyOf": [_bounded("integer", says), _ratio(says)]}
    if hint is bytes:
        return {"type": "string", "pattern": "^([0-9a-f]{2})*$"}
    return _bounded(_PLAIN[hint], says) if hint in _PLAIN else {}


def _bounded(kind: str, says: Any) -> Schema:
    if kind not in ("integer", "number"):
        return {"type": kind}
    least = {"minimum": says.least} if says.least is not None else {}
    above = {"exclusiveMinimum": says.above} if says.above is not None else {}
    whole = kind == "integer"
    if whole and not least and not above:
        least = {"minimum": -LARGEST}
    return {"type": kind, **least, **above, **({"maximum": LARGEST} if whole else {})}


def _ratio(says: Any) -> Schema:
    positive = says.least is not None or says.above is not None
    sign = "" if positive else "-?"
    pattern = f"^{sign}[1-9][0-9]*/[1-9][0-9]*$"
    return {"type": "string", "maxLength": _DIGITS, "pattern": pattern}


def _array(arguments: tuple[Any, ...], says: Any, owner: Owner, ontology: Ontology) -> Schema:
    if arguments[-1] is Ellipsis:
        return {"type": "array", "items": _item(arguments[0], says, owner, ontology)}
    items = [_item(part, says, owner, ontology) for part in arguments]
    size = len(items)
    return {
        "type": "array", "prefixItems": items, "items": False, "minItems": size, "maxItems": size
    }  # fmt: skip


def _item(hint: Any, says: Any, owner: Owner, ontology: Ontology) -> Schema:
    return {"description": "One of them.", **_type(hint, says, owner, ontology)}


def _place(hint: Any, owner: Owner, ontology: Ontology) -> str:
    """Where the schema of a record class is, from the schema of ``owner``."""
    cls = RequestArrival if isinstance(hint, TypeVar) else classes_in(hint)[0]
    name = cls.__name__
    other = ontology.owner_of(name)
    own: Mapping[str, Any] = dict(owner.records)
    address = "" if name in own or other is None else urn(schema_name(other))
    return f"{address}#/$defs/{name}"
