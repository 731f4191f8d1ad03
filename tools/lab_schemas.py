"""Write the lab's JSON Schemas (schemas/lab/) from its record classes and the ontology."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from flashrt.lab.ontology import load
from flashrt.lab.ontology.schemas import schemas

ROOT = Path(__file__).resolve().parents[1]


def texts() -> dict[str, str]:
    """The text of each schema file by its name below ``schemas/``."""
    return {
        f"{name}.schema.json": json.dumps(body, indent=2, ensure_ascii=False) + "\n"
        for name, body in schemas(load())
    }


def stale(folder: Path) -> list[str]:
    """Files below a folder of schemas that are missing, left over or not what the tool writes."""
    made = texts()
    there = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((folder / "lab").glob("*.schema.json"))
    }
    return sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))


def write(folder: Path) -> list[str]:
    """Write what is stale, and take away what is left over; the names of both."""
    made = texts()
    changed = stale(folder)
    (folder / "lab").mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in made:
            (folder / name).write_text(made[name], encoding="utf-8")
        else:
            (folder / name).unlink()
    return changed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when stale")
    folder = ROOT / "schemas"
    found = stale(folder) if parser.parse_args().check else write(folder)
    for name in found:
        print(f"schemas/{name}")
    sys.exit(1 if found and "--check" in sys.argv else 0)
