"""Which schema a document says it satisfies."""

from __future__ import annotations

import json
from functools import lru_cache

from flashrt.document import schema
from flashrt.document.problem import InputError
from flashrt.document.yaml_source import Document


def kind_of(document: Document) -> str:
    """The name of the schema a document says it satisfies, by its ``schema`` and ``kind`` fields.

    Raises :class:`InputError` for a document that names none of ours.
    """
    value = document.value
    claim = value.get("schema") if isinstance(value, dict) else None
    known = _claims()
    fits = [name for name, (const, kinds) in known.items() if const == claim]
    if len(fits) > 1:
        kind = value.get("kind")
        fits = [name for name in fits if kind in known[name][1]]
    if len(fits) == 1:
        return fits[0]
    consts = sorted({const for const, _ in known.values()})
    what = (
        "it does not say which schema it satisfies"
        if claim is None
        else (f"{claim!r} is not a schema that flashrt knows")
    )
    do = "add schema: one of " + ", ".join(consts)
    if len(fits) > 1 or (claim in consts):
        what, do = f"no schema of {claim!r} has kind {value.get('kind')!r}", "check kind"
    raise InputError(document.file, document.line("$.schema"), "$.schema", what, do)


@lru_cache(maxsize=1)
def _claims() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Each schema's own ``schema`` constant and the kinds it is for."""
    found = {}
    for name in schema.schema_names():
        fields = json.loads(schema.schema_text(name)).get("properties", {})
        const = fields.get("schema", {}).get("const")
        kind = fields.get("kind", {})
        if const:
            kinds = kind.get("enum", [kind["const"]] if "const" in kind else [])
            found[name] = (const, tuple(kinds))
    return found
