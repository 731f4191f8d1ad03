"""Every field of every schema that people write against: described, with a unit, closed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flashrt.binding.files import bindings_root, schemas_root
from flashrt.document.schema import schema_names, schema_text
from flashrt.spec.registry import catalog_root, spec_files
from flashrt.spec.skeleton import files

WRITTEN = ("structure", "region_binding", "pipeline_binding", "impl_manifest", "digests_lock")
UNITS = (
    "ratio", "rows", "count", "index", "bytes", "elements", "parts", "version", "axis", "cosine",
    "own unit", "unitless",
)  # fmt: skip
FROZEN = {
    "catalog/decoder_ffn/structure.yaml",
    "catalog/linear_proj/structure.yaml",
    "catalog/qkv_pack/structure.yaml",
    "catalog/autoregressive_decode_pipeline/structure.yaml",
    "bindings/smollm2.yaml",
}
HOOK = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"


def fields(node: Any, path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of a value, with where it stands; conditions say nothing new and are passed."""
    if not isinstance(node, dict):
        return
    for key in ("properties", "patternProperties", "$defs"):
        for name, child in node.get(key, {}).items():
            yield f"{path}.{name}", child
            yield from fields(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield f"{path}.{key}", node[key]
            yield from fields(node[key], f"{path}.{key}")
    for i, child in enumerate(node.get("prefixItems", ())):
        yield f"{path}[{i}]", child
        yield from fields(child, f"{path}[{i}]")


def numeric(part: dict[str, Any]) -> bool:
    kinds: set[str] = set()
    for option in (part, *part.get("anyOf", ()), *part.get("oneOf", ())):
        kind = option.get("type", ())
        kinds |= {kind} if isinstance(kind, str) else set(kind)
    return bool(kinds & {"number", "integer"})


def described(schema: dict[str, Any], part: dict[str, Any]) -> str:
    if "description" in part or "$ref" not in part:
        return str(part.get("description", ""))
    target = part["$ref"]
    if target.startswith("#/$defs/"):
        return str(schema["$defs"][target.removeprefix("#/$defs/")].get("description", ""))
    name = target.removeprefix("urn:flashrt:schema:").partition(":")[0]
    return str(json.loads(schema_text(name)).get("description", ""))


@pytest.mark.parametrize("name", WRITTEN)
def test_every_field_has_a_description_and_every_number_a_unit(name: str) -> None:
    schema = json.loads(schema_text(name))
    parts = dict(fields(schema))
    assert len(parts) > 5
    bare = [path for path, part in parts.items() if len(described(schema, part)) < 5]
    assert bare == []
    loose = [
        path
        for path, part in parts.items()
        if numeric(part) and not any(u in described(schema, part).lower() for u in UNITS)
    ]
    assert loose == []


@pytest.mark.parametrize("name", WRITTEN)
def test_every_object_is_closed(name: str) -> None:
    schema = json.loads(schema_text(name))
    objects = {p: s for p, s in [("$", schema), *fields(schema)] if s.get("type") == "object"}
    assert "$" in objects
    assert [p for p, s in objects.items() if s.get("additionalProperties") is not False] == []
    assert [p for p, s in objects.items() if not {"properties", "patternProperties"} & set(s)] == []


@pytest.mark.parametrize("name", schema_names())
def test_the_id_is_stable_and_has_a_version(name: str) -> None:
    schema = json.loads(schema_text(name))
    assert schema["$id"] == f"urn:flashrt:schema:{name}:1"
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_yaml_file_says_its_schema_to_editors() -> None:
    written = [*spec_files(), *bindings_root().glob("*.yaml")]
    assert len(written) > 10
    root = catalog_root().parent
    for file in written:
        if str(file.relative_to(root)) in FROZEN:
            continue
        said = re.fullmatch(
            r"# yaml-language-server: \$schema=(\S+)", file.read_text().split("\n", 1)[0]
        )
        assert said, file
        schema = (file.parent / said[1]).resolve()
        assert schema.parent == schemas_root().resolve(), file
        kind = "structure" if file.name == "structure.yaml" else "region_binding"
        assert schema.name == f"{kind}.schema.json", file


def test_a_skeleton_says_its_schema_too() -> None:
    for kind in ("structure", "binding"):
        text = next(iter(files(kind, "mine").values()))
        assert text.startswith("# yaml-language-server: $schema=../")


def test_pre_commit_is_offered_a_hook_for_the_files_people_write() -> None:
    (hook,) = yaml.safe_load(HOOK.read_text())
    assert (hook["id"], hook["entry"]) == ("flashrt-validate", "flashrt validate")
    for name in ("catalog/a/structure.yaml", "x/catalog/a/v1/structure.yml", "bindings/a.yaml",
                 "catalog/digests.lock", "impls/a/b.json"):  # fmt: skip
        assert re.search(hook["files"], name), name
    for name in ("tokenizer.json", "bindings/a/b.txt", "mkdocs.yml", "structure.yaml.bak"):
        assert not re.search(hook["files"], name), name
