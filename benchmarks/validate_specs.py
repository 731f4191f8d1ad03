"""Reading and checking one spec, beside what the pieces cost.

``read`` is all of it: strict YAML with line numbers, the schema, and what a schema cannot say.
"""

from __future__ import annotations

import json

import jsonschema
import yaml
from interleave import Arm, interleave, show

from flashrt.document import schema
from flashrt.document.yaml_source import load_yaml
from flashrt.spec.reader import read
from flashrt.spec.registry import catalog_root, spec_files

RUNS = 10


def main(rounds: int = 21) -> None:
    """Print the table."""
    file = catalog_root() / "decoder_ffn" / "structure.yaml"
    text = file.read_text()
    document = load_yaml(file)
    rules = json.loads(schema.schema_text("structure"))

    def many(work: Arm) -> Arm:
        def arm() -> None:
            for _ in range(RUNS):
                work()

        return arm

    samples = interleave(
        {
            "read": many(lambda: read(file)),
            "our YAML, with lines": many(lambda: load_yaml(file)),
            "yaml.safe_load": many(lambda: yaml.safe_load(text)),
            "yaml C loader": many(lambda: yaml.load(text, Loader=yaml.CSafeLoader)),
            "cached validator": many(lambda: schema.problems(document.value, "structure")),
            "jsonschema.validate": many(lambda: jsonschema.validate(document.value, rules)),
        },
        rounds,
        scale=1 / RUNS,
    )
    show("Checking one spec", samples, "ms", "read")
    files = spec_files()
    every = interleave({"every spec": lambda: [read(path) for path in files]}, rounds)
    print(f"the catalog's {len(files)} specs: {every.spread('every spec', 'ms')} ms")


if __name__ == "__main__":
    main()
