"""Validating what people write, cold and warm, beside a naive ``jsonschema.validate`` per file.

The cold arms are fresh processes over one set of files: every spec of the catalog and every
binding. ``flashrt`` checks more than the schema (dims, slots, coverage, digests, references that
parse); the naive arms check the schema only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interleave import Arm, interleave, process, show

RUNS = 10
COLD = ("flashrt", "naive", "naive, C loader")


def written() -> list[tuple[str, Path]]:
    """Every spec and binding with the name of its schema."""
    from flashrt.binding.reader import bindings_root
    from flashrt.spec.registry import spec_files

    bindings = sorted(bindings_root().glob("*.yaml"))
    return [("structure", p) for p in spec_files()] + [("region_binding", p) for p in bindings]


def ours() -> None:
    """What ``flashrt validate`` does with these files. A problem, or torch, ends it."""
    from flashrt.binding.audit import audit

    found = [p for checked in audit([path for _, path in written()]) for p in checked.problems]
    if found or "torch" in sys.modules:
        raise SystemExit("\n".join(str(p) for p in found) or "torch was imported")


def naive(load: Any) -> None:
    """Load, read the schema, validate: file by file."""
    import jsonschema
    from referencing import Registry, Resource

    from flashrt.document.schema import schema_names, schema_text

    for name, path in written():
        value = load(path.read_text())
        rules = {n: json.loads(schema_text(n)) for n in schema_names()}
        parts = [(r["$id"], Resource.from_contents(r)) for r in rules.values()]
        registry: Any = Registry().with_resources(parts)
        jsonschema.validate(value, rules[name], registry=registry)


def arm(name: str) -> None:
    """Run one cold arm in this process."""
    import yaml

    if name == COLD[0]:
        ours()
    else:
        loader = yaml.SafeLoader if name == COLD[1] else yaml.CSafeLoader
        naive(lambda text: yaml.load(text, Loader=loader))


def cold(rounds: int) -> None:
    """Every spec and binding, in a fresh process per arm."""
    arms = {name: process([sys.executable, str(Path(__file__)), "--arm", name]) for name in COLD}
    arms["Python alone"] = process([sys.executable, "-c", "pass"])
    arms["flashrt validate"] = process([str(Path(sys.executable).with_name("flashrt")), "validate"])
    note = f"{len(written())} files; `flashrt validate` is the command over this whole tree"
    show("The catalog and every binding, cold", interleave(arms, rounds), "s", "flashrt", note)


def warm(rounds: int) -> None:
    """The pieces of checking one spec."""
    import jsonschema
    import yaml

    from flashrt.document import schema
    from flashrt.document.yaml_source import parse_yaml
    from flashrt.spec.reader import read
    from flashrt.spec.registry import catalog_root

    file = catalog_root() / "decoder_ffn" / "structure.yaml"
    text = file.read_text()
    value = parse_yaml(file.read_bytes(), str(file)).value
    rules = json.loads(schema.schema_text("structure"))
    count = iter(range(10**9))

    def many(work: Arm) -> Arm:
        def run() -> None:
            for _ in range(RUNS):
                work()

        return run

    arms = {
        "read": many(lambda: read(file)),
        # A source of another name each time: nothing comes from the cache.
        "our YAML, with lines": many(lambda: parse_yaml(file.read_bytes(), str(next(count)))),
        "our YAML, read before": many(lambda: parse_yaml(file.read_bytes(), str(file))),
        "yaml.safe_load": many(lambda: yaml.safe_load(text)),
        "yaml C loader": many(lambda: yaml.load(text, Loader=yaml.CSafeLoader)),
        "our validator": many(lambda: schema.problems(value, "structure")),
        "jsonschema.validate": many(lambda: jsonschema.validate(value, rules)),
    }
    samples = interleave(arms, rounds, scale=1 / RUNS)
    show("Checking one spec", samples, "ms", "read")


def main(argv: Sequence[str]) -> None:
    """Print both tables, or run one arm."""
    if argv and argv[0] == "--arm":
        arm(argv[1])
        return
    rounds = int(argv[0]) if argv else 21
    cold(rounds)
    warm(rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
