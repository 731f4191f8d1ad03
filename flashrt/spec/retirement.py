"""A version may be retired only when every in-tree user has a receipt on its successor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashrt.document.canonical import read_json
from flashrt.document.problem import InputError, Problem
from flashrt.document.yaml_source import load_yaml
from flashrt.spec.lock import Entry, Lock, Status
from flashrt_runtime.reason import Reason

_EARNED = ("supported_correct", "certified_fast")


@dataclass(frozen=True)
class User:
    """A binding or an impl of the tree, and one structure it names."""

    file: str
    line: int
    path: str
    kind: str  # "binding" or "impl"
    name: str
    structure: str


def users(bindings: Path, impls: Path) -> list[User]:
    """Every use of a structure by the bindings and impls of a tree; unreadable files are passed.

    (Whoever reads them reports them.)
    """
    found: list[User] = []
    for file in sorted(bindings.glob("*.yaml")):
        try:
            document = load_yaml(file)
            named = {f"$.regions.{n}": r for n, r in document.value["regions"].items()}
            if "pipeline" in document.value:
                named["$.pipeline"] = document.value["pipeline"]
            for path, entry in named.items():
                where = f"{path}.structure"
                found.append(
                    User(
                        document.file,
                        document.line(where),
                        where,
                        "binding",
                        document.value["name"],
                        entry["structure"],
                    )
                )
        except (InputError, KeyError, TypeError, AttributeError):
            continue
    for file in sorted(impls.glob("*/*.json")):
        try:
            value = read_json(file)
            found.append(
                User(str(file), 1, "$.structure", "impl", value["backend"], value["structure"])
            )
        except (InputError, KeyError):
            continue
    return found


def receipts(folder: Path) -> Iterator[Mapping[str, Any]]:
    """The qualification receipts of a folder, in name order; other files are passed."""
    for file in sorted(folder.rglob("*.json")):
        try:
            body = read_json(file)
        except InputError:
            continue
        if body.get("kind") == "qualification":
            yield body


def refused(
    lock: Lock, named: Iterable[User], earned: Iterable[Mapping[str, Any]]
) -> Iterator[Problem]:
    """What stands against the lock's retirements, at each user's own line."""
    uses, bodies = list(named), list(earned)
    for entry in lock.entries:
        if entry.status is not Status.RETIRED or entry.migration is None:
            continue
        after = entry.migration.instead
        name, _, version = after.partition("@")
        successor = lock.find(name, int(version))
        for user in uses:
            if user.structure == entry.id:
                what = f"the {user.kind} {user.name} still names {entry.id}, which was retired"
                do = f"move it to {after} and qualify it there"
                yield Problem(user.file, user.line, user.path, what, do, Reason.RETIRED)
            elif user.structure == after and successor and not _earned(bodies, user, successor):
                what = (
                    f"{entry.id} was retired, and the {user.kind} {user.name} has no receipt on "
                    f"{after}"
                )
                do = f"qualify it, or keep {entry.id} coexisting until then"
                yield Problem(user.file, user.line, user.path, what, do, Reason.RETIRED)


def _earned(bodies: Iterable[Mapping[str, Any]], user: User, successor: Entry) -> bool:
    return any(_covers(body, user, successor) for body in bodies)


def _covers(body: Mapping[str, Any], user: User, successor: Entry) -> bool:
    """Whether a receipt was earned by this user on exactly the successor's bytes."""
    try:
        if body["verdict"]["state"] not in _EARNED:
            return False
        cell = body["cell"]
        specs = [*cell["structures"], cell["pipeline"]]
        if not any(
            (s["name"], s["version"], s["spec_digest"])
            == (successor.name, successor.version, successor.digest)
            for s in specs
            if s
        ):
            return False
        if user.kind == "binding":
            return bool(cell["binding"]["name"] == user.name)
        return any(
            (i["structure"], i["backend"]) == (user.structure, user.name) for i in cell["impls"]
        )
    except (KeyError, TypeError):
        return False
