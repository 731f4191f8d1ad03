"""Freeze new spec versions in ``catalog/digests.lock`` and pin new bindings to them.

A version that the lock of the last commit lists is frozen and its line is never rewritten: bytes
that moved are told and refused. A binding that a receipt names by its digest is left alone too.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from flashrt.document.canonical import sha256
from flashrt.document.problem import InputError
from flashrt.spec.lock import FILE, line_for
from flashrt.spec.model import StructureSpec
from flashrt.spec.reader import read
from flashrt.spec.registry import spec_files

ROOT = Path(__file__).resolve().parents[1]
_ENTRY = re.compile(r"^\s*- \{name: ([a-z0-9_]+), version: ([0-9]+),")
_NAMED = re.compile(r"structure:\s*\"?([a-z][a-z0-9_]*@[1-9][0-9]*)\"?")
_PINNED = re.compile(r"(spec_digest:\s*)\"?sha256:[0-9a-f]{64}\"?")


def committed(root: Path) -> frozenset[str]:
    """``name@version`` of every line in the last commit's lock; none where there is no commit."""
    shown = subprocess.run(
        ["git", "show", f"HEAD:catalog/{FILE}"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    found = (_ENTRY.match(line) for line in shown.stdout.splitlines())
    return frozenset(f"{match[1]}@{match[2]}" for match in found if match)


def lock(
    text: str, specs: Iterable[StructureSpec], frozen: frozenset[str]
) -> tuple[str, list[str]]:
    """The lock's new text, and what is wrong with frozen versions: bytes that moved.

    Lines of retired or coexisting versions keep their status: only the digests are rewritten.
    """
    lines = text.rstrip("\n").splitlines()
    at = {f"{m[1]}@{m[2]}": i for i, line in enumerate(lines) if (m := _ENTRY.match(line))}
    wrong: list[str] = []
    for spec in sorted(specs, key=lambda s: (s.name, s.version)):
        line = "  " + line_for(spec)
        if spec.id not in at:
            lines.append(line)
        elif _digests(lines[at[spec.id]]) != _digests(line):
            if spec.id in frozen:
                wrong.append(
                    f"{spec.id} is frozen in {FILE} and its bytes moved: raise the version"
                )
            else:
                status = lines[at[spec.id]].partition(", status:")[2]
                lines[at[spec.id]] = f"{line.partition(', status:')[0]}, status:{status}"
    first = next((i for i, line in enumerate(lines) if _ENTRY.match(line)), len(lines))
    body = sorted(lines[first:], key=_order)
    return "\n".join([*lines[:first], *body]) + "\n", wrong


def pin(text: str, digests: Mapping[str, str]) -> str:
    """A binding's text with the digest of each ``structure:`` in the ``spec_digest:`` after it."""
    parts: list[str] = []
    end = 0
    named = list(_NAMED.finditer(text))
    for match, after in zip(named, [*named[1:], None], strict=True):
        digest = digests.get(match[1])
        stop = after.start() if after else len(text)
        pinned = _PINNED.search(text, match.end(), stop)
        if digest and pinned:
            parts += [text[end : pinned.start()], f'{pinned[1]}"{digest}"']
            end = pinned.end()
    return "".join([*parts, text[end:]])


def _digests(line: str) -> list[str]:
    return re.findall(r"sha256:[0-9a-f]{64}", line)


def _order(line: str) -> tuple[str, int]:
    match = _ENTRY.match(line)
    return (match[1], int(match[2])) if match else ("~", 0)


def _earned(root: Path) -> str:
    """Every receipt's text: a digest in it is one that somebody earned something with."""
    return "\n".join(p.read_text(encoding="utf-8") for p in (root / "receipts").rglob("*.json"))


def main(root: Path) -> int:
    """Write the lock and the bindings below ``root``; 1 when something is wrong."""
    specs, wrong = [], []
    for file in spec_files(root / "catalog"):
        try:
            specs.append(read(file))
        except InputError as error:
            wrong += [str(problem) for problem in error.problems]
    frozen = committed(root)
    path = root / "catalog" / FILE
    text, moved = lock(path.read_text(encoding="utf-8"), specs, frozen)
    if text != path.read_text(encoding="utf-8"):
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(root)}")
    receipts = _earned(root)
    digests = {spec.id: spec.digest for spec in specs}
    for binding in sorted((root / "bindings").glob("*.yaml")):
        data = binding.read_bytes()
        new = pin(data.decode(), digests).encode()
        if new != data and sha256(data) not in receipts:
            binding.write_bytes(new)
            print(f"wrote {binding.relative_to(root)}")
    for line in [*wrong, *moved]:
        print(line, file=sys.stderr)
    return 1 if wrong or moved else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the sources")
    sys.exit(main(parser.parse_args().root.resolve()))
