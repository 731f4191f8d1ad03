"""The documents exist, say what they must, and lead nowhere that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flashrt_cli.exit_codes import ExitCode
from flashrt_cli.main import COMMANDS
from flashrt_runtime.reason import Reason

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REASONS = DOCS / "reasons"
HEADINGS = ["What", "Why", "Example", "Fix"]
PAGES = (
    "attach",
    "architecture",
    "calibration",
    "catalog",
    "cli",
    "dependencies",
    "getting-started",
    "integrity",
    "lab",
    "prequantized",
    "receipts",
    "runtime",
    "statistics",
)


def sections(text: str) -> dict[str, str]:
    """Body of each second-level heading, in order."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (body.strip() for body in parts[2::2]), strict=True))


@pytest.mark.parametrize("name", PAGES)
def test_each_page_exists_and_has_a_title(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text()
    assert text.startswith("# ")
    assert len(text.split()) > 100


def test_the_index_links_each_page() -> None:
    index = (DOCS / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w./-]+)\)", index))
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert linked == pages | {"reasons/README.md"}
    assert pages == {f"{name}.md" for name in PAGES}


@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.code)
def test_each_reason_has_a_page(reason: Reason) -> None:
    text = (REASONS / f"{reason.code}.md").read_text()
    title, sentence = text.split("\n\n")[:2]
    assert title == f"# {reason.code} {reason.name}"
    assert sentence == reason.sentence
    parts = sections(text)
    assert list(parts) == HEADINGS
    for heading in ("What", "Why", "Fix"):
        assert len(parts[heading].split()) >= 8, heading
    example = re.fullmatch(r"```text\n(.+)\n```", parts["Example"])
    assert example is not None, "one message, in a text fence"
    code = f"[{reason.code} {reason.name}]"
    assert code in example[1] or re.match(r"[\w./-]+:\d+: \$", example[1])


def test_no_reason_page_is_an_orphan_or_a_copy() -> None:
    pages = {path.stem for path in REASONS.glob("*.md")} - {"README"}
    assert pages == {reason.code for reason in Reason}
    bodies = [sections((REASONS / f"{code}.md").read_text())["Why"] for code in pages]
    assert len(set(bodies)) == len(pages)


def test_the_index_of_reasons_is_whole() -> None:
    index = (REASONS / "README.md").read_text()
    for reason in Reason:
        assert f"| [{reason.code}]({reason.code}.md) | {reason.name} | {reason.sentence} |" in index


def test_codes_cited_anywhere_exist() -> None:
    known = {reason.code for reason in Reason}
    for path in [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]:
        assert set(re.findall(r"FRT\d+", path.read_text())) <= known, path.name


def test_links_between_documents_lead_somewhere() -> None:
    for path in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_command_line_page_lists_each_command_and_exit_status() -> None:
    text = (DOCS / "cli.md").read_text()
    for command in COMMANDS:
        assert re.search(rf"^\| `{command}[ `]", text, re.MULTILINE), command
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert listed == {int(code) for code in ExitCode}


def test_the_map_names_each_room() -> None:
    text = (DOCS / "architecture.md").read_text()
    for folder in (ROOT / "flashrt").iterdir():
        if (folder / "__init__.py").is_file():
            assert f"`flashrt/{folder.name}/`" in text, folder.name


def test_each_dependency_is_explained() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = [*project["dependencies"], *(item for items in extras.values() for item in items)]
    text = (DOCS / "dependencies.md").read_text().lower()
    for requirement in names:
        match = re.match(r"[A-Za-z0-9_-]+", requirement)
        assert match is not None
        name = match[0].lower()
        assert name in text or name.startswith("types-"), name
    for extra in extras:
        assert f"| `{extra}` |" in text, extra


def test_constraints_pin_each_direct_dependency() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = [*project["dependencies"], *(item for items in extras.values() for item in items)]
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    for requirement in names:
        match = re.match(r"[A-Za-z0-9_-]+", requirement)
        assert match is not None
        assert match[0].lower().replace("_", "-") in pinned, requirement
