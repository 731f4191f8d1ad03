"""``flashrt validate`` holds the ontology and the designs: files of one's own, and this tree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from flashrt.binding.audit import audit
from flashrt.binding.files import packaged
from flashrt.document.problem import InputError
from flashrt.lab.ontology import load
from flashrt.spec.registry import catalog_root
from flashrt_cli.main import run
from tests.lab.ontology.lab_copies import Change, as_it_is, written

DESIGNS = sorted((catalog_root() / "designs").glob("*.yaml"))


def test_a_copy_as_it_is_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(written(tmp_path, as_it_is))]) == 0
    assert "1 files, 0 problems" in capsys.readouterr().out


def test_a_fault_is_named_with_file_line_path_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(body: dict[str, Any]) -> None:
        body["owners"]["KVCache"]["controls"].append("kv_cache.page_bytes")

    path = written(tmp_path, change)
    line = 1 + path.read_text().splitlines().index("    - kv_cache.page_bytes")
    assert run(["validate", str(path)]) == 2
    said = "".join(capsys.readouterr())
    assert f"{path}:{line}: $.owners.KVCache.controls[3]: the control path" in said
    assert "does not resolve; see" in said


@pytest.mark.parametrize(
    ("owner", "change", "path"),
    [
        ("KVState", {"colour": "red"}, "$.owners.KVState"),
        ("KVState", {"lifecycle": {"kind": "eternal", "says": "x"}}, "lifecycle.kind"),
        ("KVState", {"excludes": [{"what": "nothing by name"}]}, "excludes[0]"),
        ("KVState", {"owns": []}, "owns"),
    ],
)
def test_what_is_no_ontology_is_refused(
    tmp_path: Path, owner: str, change: dict[str, Any], path: str
) -> None:
    file = written(tmp_path, lambda body: body["owners"][owner].update(change))
    with pytest.raises(InputError) as refused:
        load(file)
    assert path in str(refused.value)


def test_the_whole_tree_includes_the_ontology_its_schemas_and_the_designs() -> None:
    names = {path.relative_to(catalog_root().parent).as_posix() for path in packaged()}
    assert {"catalog/ontology.yaml", "schemas/lab/kv_state.schema.json"} <= names
    assert {f"catalog/designs/{path.name}" for path in DESIGNS} <= names


def test_the_whole_check_imports_no_torch() -> None:
    code = (
        "import sys; from pathlib import Path; from flashrt.binding.audit import audit; "
        f"found = audit([Path({str(catalog_root() / 'ontology.yaml')!r}), "
        f"Path({str(catalog_root() / 'designs')!r})]); "
        "print([str(p) for c in found for p in c.problems], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"


def test_an_ontology_is_printed_with_its_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", "--format", "json", str(written(tmp_path, as_it_is))]) == 0
    (row,) = json.loads(capsys.readouterr().out)["files"]
    assert row["kind"] == "ontology"


def design(folder: Path, change: Change) -> Path:
    """A copy of a packaged design with a change."""
    source = next(path for path in DESIGNS if path.stem == "repeated_prompt")
    body = yaml.safe_load(source.read_text())
    change(body)
    path = folder / source.name
    path.write_text(yaml.safe_dump(body, sort_keys=False))
    return path


def first(body: dict[str, Any]) -> dict[str, Any]:
    """The first assignment that all arms share."""
    found: dict[str, Any] = body["settings"]["controls"][0]
    return found


WRONG: list[tuple[Change, str, str]] = [
    (
        lambda body: body["missing_controls"].append(
            {"control": "kv_cache.device_kv_bytes", "why": "to set it"}
        ),
        "$.missing_controls[",
        "the missing control kv_cache.device_kv_bytes exists",
    ),
    (
        lambda body: body["missing_controls"].append(
            {"control": "KVCacheConfig.device_kv_bytes ", "why": "to set it"}
        ),
        "$.missing_controls[",
        "the missing control KVCacheConfig.device_kv_bytes  exists",
    ),
    (
        lambda body: first(body).update(control="kv_cache.page_bytes"),
        "$.settings.controls[0].control",
        "the control path kv_cache.page_bytes does not resolve",
    ),
    (
        lambda body: first(body).update(subject="CustomerInteraction"),
        "$.settings.controls[0].subject",
        ", not of CustomerInteraction",
    ),
    (
        lambda body: first(body).update(related=["Nobody"]),
        "$.settings.controls[0].related[0]",
        "there is no owner Nobody",
    ),
    (
        lambda body: body["subjects"].append("Nobody"),
        "$.subjects[",
        "there is no owner Nobody",
    ),
    (
        lambda body: body.update(answer="yes"),
        "$",
        "'answer' was unexpected",
    ),
]


@pytest.mark.parametrize(("change", "path", "what"), WRONG)
def test_a_design_that_the_ontology_denies_is_named(
    tmp_path: Path, change: Change, path: str, what: str
) -> None:
    (checked,) = audit([design(tmp_path, change)])
    assert checked.kind == "lab/experiment_design"
    (problem,) = checked.problems
    assert problem.path.startswith(path)
    assert what in problem.what
    assert problem.line > 0


def test_a_design_as_it_is_passes(tmp_path: Path) -> None:
    (checked,) = audit([design(tmp_path, as_it_is)])
    assert checked.problems == ()


def test_a_design_is_held_to_one_assignment_a_control(tmp_path: Path) -> None:
    def twice(body: dict[str, Any]) -> None:
        body["settings"]["controls"].append(dict(first(body)))

    (checked,) = audit([design(tmp_path, twice)])
    assert any("assigned twice" in problem.what for problem in checked.problems)
