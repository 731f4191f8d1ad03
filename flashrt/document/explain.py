"""The validator that explains: jsonschema's, with the two keywords made safe for hostile input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing import Registry, Resource


@lru_cache(maxsize=256)
def _whole(pattern: str) -> re.Pattern[str]:
    """The pattern with ``$`` as JSON Schema has it: the end, and not before a last line feed."""
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _whole(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _unique(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[ValidationError]:
    """In linear time: jsonschema's own compares every pair of what cannot be sorted."""
    if not wanted or not isinstance(instance, list):
        return
    seen = {json.dumps(item, sort_keys=True) for item in instance}
    if len(seen) != len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def validator(documents: Mapping[str, Any], name: str) -> Draft202012Validator:
    """A validator of one schema that may refer to the others by ``$id``.

    Its registry has no retriever: a reference to anything else is an error, and never fetched.
    """
    registry: Registry[Any] = Registry().with_resources(
        [(d["$id"], Resource.from_contents(d)) for d in documents.values()]
    )
    kind = extend(Draft202012Validator, {"pattern": _pattern, "uniqueItems": _unique})
    kind.check_schema(documents[name])
    made: Draft202012Validator = kind(documents[name], registry=registry)
    return made
