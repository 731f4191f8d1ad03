"""Reads an ontology file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashrt.document.schema import require
from flashrt.document.yaml_source import Document, load_yaml
from flashrt.lab.ontology.model import Concept, Exclusion, Lifecycle, Limit, Ontology, Owner
from flashrt.spec.registry import catalog_root

FILE = "ontology.yaml"


def load(path: Path | str | None = None) -> Ontology:
    """The ontology of a file, or the packaged one.

    Raises :class:`~flashrt.document.problem.InputError` for a file that is no ontology. What it
    says is not held against the code here: :func:`flashrt.lab.ontology.check` does that.
    """
    document = load_yaml(Path(path) if path is not None else catalog_root() / FILE)
    require(document.value, "ontology", document)
    return ontology_of(document)


def ontology_of(document: Document) -> Ontology:
    """As :func:`load`, from a document that satisfies its schema."""
    value = document.value
    concepts = tuple(
        Concept(name, body["owner"], body["meaning"], tuple(body["fields"]))
        for name, body in value["concepts"].items()
    )
    owners = tuple(_owner(name, body) for name, body in value["owners"].items())
    return Ontology(concepts, owners, document)


def _owner(name: str, body: Mapping[str, Any]) -> Owner:
    return Owner(
        name=name,
        meaning=body["meaning"],
        lifecycle=Lifecycle(body["lifecycle"]["kind"], body["lifecycle"]["says"]),
        records=tuple((record, tuple(names)) for record, names in body["records"].items()),
        owns=tuple(body["owns"]),
        controls=tuple(body.get("controls", ())),
        excludes=tuple(
            Exclusion(one["what"], tuple(one.get("owners", ())), tuple(one.get("fields", ())))
            for one in body.get("excludes", ())
        ),
        limits=tuple(
            Limit(one["what"], one.get("status") == "implemented", one.get("test"))
            for one in body.get("limits", ())
        ),
    )
