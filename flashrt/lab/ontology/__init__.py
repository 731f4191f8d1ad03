"""The ontology: what the lab shows and records, whose it is, and whether the code agrees."""

from flashrt.lab.ontology.check import check
from flashrt.lab.ontology.code import Code, packaged_code, schema_name
from flashrt.lab.ontology.control import Control, controls, resolve
from flashrt.lab.ontology.designs import check_design
from flashrt.lab.ontology.model import Concept, Exclusion, Lifecycle, Limit, Ontology, Owner
from flashrt.lab.ontology.reader import load, ontology_of

__all__ = [
    "Code",
    "Concept",
    "Control",
    "Exclusion",
    "Lifecycle",
    "Limit",
    "Ontology",
    "Owner",
    "check",
    "check_design",
    "controls",
    "load",
    "ontology_of",
    "packaged_code",
    "resolve",
    "schema_name",
]
