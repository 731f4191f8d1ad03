"""docs/catalog.md is what the files say, shows every part of every spec, and hides nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flashrt.document.problem import InputError
from flashrt.document.yaml_source import load_yaml
from flashrt.report.catalog_diagram import diagram, label
from flashrt.report.catalog_page import page
from flashrt.spec.registry import catalog_root, spec_files

ROOT = Path(__file__).resolve().parents[2]
SPECS = {file.parent.name: load_yaml(file).value for file in spec_files()}
TOOL = ROOT / "tools" / "catalog_page.py"


@pytest.fixture(scope="module")
def text() -> str:
    return page()


def section(text: str, title: str) -> str:
    found = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1].replace("\\", "")


def nodes(spec: dict, prefix: str) -> set[str]:
    return set(re.findall(rf"^\s+{prefix}_(\w+?)[\[(>]", diagram(spec), re.MULTILINE))


def test_the_committed_page_is_what_the_tool_makes() -> None:
    ran = subprocess.run([sys.executable, str(TOOL), "--check"], check=False, capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()


@pytest.mark.parametrize("name", sorted(SPECS))
def test_each_structure_has_a_section_with_all_it_declares(text: str, name: str) -> None:
    spec = SPECS[name]
    body = section(text, f"{name}@{spec['version']}")
    assert " ".join(spec["summary"].split()) in body
    assert body.count("```mermaid") == 1
    rows = set(re.findall(r"^\| (\w+) \|", body, re.MULTILINE))
    if spec["kind"] == "pipeline":
        assert set(spec["stages"]) | set(spec.get("windows", {})) <= rows
        return
    declared = [spec["dims"], spec["boundary"]["inputs"], spec["boundary"]["outputs"]]
    declared += [spec["weights"], spec["variants"], spec["calibration"]["points"]]
    for entries in [*declared, spec.get("captures", {})]:
        assert set(entries) <= rows
    for fact in spec.get("constraints", []) + spec.get("composes", []):
        assert fact in body
    told = [
        entry["meaning"] for group in declared[1:] for entry in group.values() if "meaning" in entry
    ]
    assert all(" ".join(meaning.split()) in body for meaning in told)


@pytest.mark.parametrize("name", [n for n, s in sorted(SPECS.items()) if s["kind"] == "region"])
def test_a_regions_diagram_has_its_boundary_its_slots_and_its_points(name: str) -> None:
    spec = SPECS[name]
    assert nodes(spec, "in") == set(spec["boundary"]["inputs"])
    assert nodes(spec, "out") == set(spec["boundary"]["outputs"])
    assert nodes(spec, "w") == set(spec["weights"])
    assert nodes(spec, "at") == set(spec["calibration"]["points"])
    for input_name, entry in spec["boundary"]["inputs"].items():
        back = f"out_{entry.get('carries')} -. next call .-> in_{input_name}\n"
        assert (back in diagram(spec)) is ("carries" in entry)


def test_a_pipelines_diagram_has_its_stages_in_order_and_its_loop() -> None:
    drawn = diagram(SPECS["vla_tick_pipeline"])
    for arrow in ("s_condition --> s_init", "s_init --> s_step", "s_step --> s_readout"):
        assert arrow in drawn
    assert 's_step -->|"fixed_steps"| s_step' in drawn
    assert 'win_noise>"noise<br/>window"] --> s_init' in drawn
    assert drawn.endswith("class s_readout maybe")


def test_what_exists_only_under_a_variant_is_dashed() -> None:
    last = diagram(SPECS["decoder_ffn"]).splitlines()[-1]
    assert last.startswith("  class ")
    assert set(last.split()[1].split(",")) >= {"w_norm", "in_residual", "w_down_bias"}
    assert "w_down," not in last


def test_labels_are_text_and_nothing_else() -> None:
    assert label('a"]; click x "javascript:1"', "<b>&#1;", "") == (
        '"a#quot;]; click x #quot;javascript:1#quot;<br/>#lt;b#gt;#amp;#35;1;"'
    )
    assert "\n" not in label("a\nb")


def test_impls_and_bindings_are_counted_in_the_index_and_named_in_the_section(text: str) -> None:
    served = {file.stem for file in (ROOT / "impls" / "decoder_ffn").glob("*.json")}
    assert {"cpu_fp16", "cpu_fp8", "cpu_int8", "cpu_w8a16", "triton_fp8"} <= served
    body = section(text, "decoder_ffn@1")
    assert served <= set(re.findall(r"^\| (\w+) \| \w+ \| ", body, re.MULTILINE))
    assert "| smollm2 | ffn | no |" in body
    row = re.search(
        r"^\| \[decoder_ffn@1\]\(#decoder_ffn1\) \| region \| active \| (\d+) \|",
        text,
        re.MULTILINE,
    )
    assert row is not None
    assert int(row[1]) == len(served)
    assert "| pipeline |" in section(text, "autoregressive_decode_pipeline@1")


def small(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A catalog of one structure, one provisional binding of it and no impl."""
    catalog, bindings, impls = (tmp_path / n for n in ("catalog", "bindings", "impls"))
    shutil.copytree(catalog_root() / "qkv_pack", catalog / "qkv_pack")
    bindings.mkdir()
    impls.mkdir()
    host = (ROOT / "bindings" / "smollm2.yaml").read_text().partition("\npipeline:")[0]
    guess = "provisional: {reason: no package ships it, sources: [a page]}\n"
    (bindings / "other.yaml").write_text(host.replace("name: smollm2", "name: other") + guess)
    return catalog, bindings, impls


def test_a_provisional_binding_and_a_missing_impl_and_lock_are_said(tmp_path: Path) -> None:
    body = section(page(*small(tmp_path)), "qkv_pack@1")
    assert "| other | qkv | yes |" in body
    assert "No impl: it stays in the host." in body
    assert "not in the lock" in body


def test_a_retired_version_says_since_when_and_what_to_use(tmp_path: Path) -> None:
    catalog, bindings, impls = small(tmp_path)
    digest = "sha256:" + "0" * 64
    note = '{since: "0.2", why: too wide, instead: linear_proj@1}'
    (catalog / "digests.lock").write_text(
        "schema: flashrt.digests/1\nstructures:\n"
        f'  - {{name: linear_proj, version: 1, digest: "{digest}", status: active}}\n'
        f'  - {{name: qkv_pack, version: 1, digest: "{digest}", status: retired, '
        f"migration: {note}}}\n"
    )
    body = section(page(catalog, bindings, impls), "qkv_pack@1")
    assert "Retired in 0.2: too wide. Use linear_proj@1." in body


@pytest.mark.parametrize("broken", ["catalog/qkv_pack/structure.yaml", "bindings/other.yaml"])
def test_a_file_that_means_nothing_is_refused_by_name(tmp_path: Path, broken: str) -> None:
    folders = small(tmp_path)
    (tmp_path / broken).write_text("schema: flashrt.structure/1\n")
    with pytest.raises(InputError, match=re.escape(broken)):
        page(*folders)


def test_the_tool_says_when_the_page_is_old_and_when_a_file_is_bad(tmp_path: Path) -> None:
    for name in ("catalog", "bindings", "impls", "docs", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name)
    command = [sys.executable, str(tmp_path / "tools" / "catalog_page.py")]

    def run(*more: str) -> tuple[int, str]:
        ran = subprocess.run([*command, *more], check=False, capture_output=True, text=True)
        return ran.returncode, ran.stderr

    made = tmp_path / "docs" / "catalog.md"
    made.write_text("# Catalog\n")
    status, said = run("--check")
    assert (status, made.read_text()) == (1, "# Catalog\n")
    assert "docs/catalog.md" in said
    assert run() == (0, "")
    assert made.read_text() == page()
    (tmp_path / "bindings" / "smollm2.yaml").write_text("schema: flashrt.binding/1\n")
    status, said = run("--check")
    assert status == 2
    assert "smollm2.yaml" in said
