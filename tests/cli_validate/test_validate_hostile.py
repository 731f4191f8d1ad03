"""Files written to hurt: each is refused, in bounded memory, and says what to do."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from flashrt.binding.audit import Checked, audit
from flashrt.binding.files import SUFFIXES
from flashrt.spec.skeleton import write

MEMORY = 1024 * 1024 * 1024
HEAD = b"schema: flashrt.binding/1\nname: x\n"


def problems(file: Path) -> tuple[str, ...]:
    (checked,) = audit([file])
    assert all(p.do and p.file == str(file) and p.line >= 1 for p in checked.problems)
    return tuple(p.what for p in checked.problems)


def bomb() -> bytes:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    return "\n".join(rows).encode()


BOMBS: dict[str, bytes] = {
    "aliases": bomb(),
    "a long key over many values": b"? " + b"k" * 400_000 + b"\n: [" + b"1," * 300_000 + b"1]\n",
    "long paths over many values": b"".join(
        b" " * i + b"k" * 500 + b":\n" for i in range(60)
    ) + b" " * 60 + b"- [" + b"1," * 400_000 + b"1]\n",
    "many values": HEAD + b"summary: [" + b"[]," * 300_000 + b"]\n",
    "deep, closed": HEAD + b"regions: " + b"[" * 400_000 + b"]" * 400_000,
    "deep, open": HEAD + b"regions: " + b"{a: " * 200_000,
    "deep by indent": b"".join(b" " * i + b"a:\n" for i in range(1000)),
    "a long number": HEAD + b"summary: " + b"9" * 900_000,
    "many wrong values": HEAD + b"regions: [" + b"{}," * 90_000 + b"]",
    "wrong entries": HEAD + b"host: {" + b"".join(b"k%d: 1, " % i for i in range(40_000)) + b"}",
    "rows that cannot be sorted": b"schema: flashrt.binding/1\npipeline: {stages: ["
    + b"".join(b"{a: %d}," % i for i in range(30_000)) + b"]}",
    "carriage returns": b"\r" * 1_000_000,
    "a comment": b"#" * 1_048_576,
    "duplicate keys": b"a: 1\n" * 150_000,
}  # fmt: skip
JSON_BOMBS: dict[str, bytes] = {
    "deep": b'{"schema": "flashrt.impl/1", "x": ' + b"[" * 900 + b"]" * 900 + b"}",
    "deeper": b'{"schema": "flashrt.impl/1", "x": ' + b"[" * 1_000_000,
    "a long number": b'{"schema": "flashrt.impl/1", "x": ' + b"9" * 1_000_000 + b"}",
    "a large number": b'{"schema": "flashrt.impl/1", "x": ' + b"9" * 4000 + b"}",
    "many values": b'{"schema": "flashrt.impl/1", "x": [' + b"[]," * 2_000_000 + b"[]]}",
}


@pytest.mark.parametrize("name", [*BOMBS, *JSON_BOMBS])
def test_a_bomb_is_refused_in_bounded_memory(tmp_path: Path, name: str) -> None:
    kind = "json" if name not in BOMBS else "yaml"
    file = tmp_path / f"x.{kind}"
    file.write_bytes(BOMBS[name] if kind == "yaml" else JSON_BOMBS[name])
    code = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))\n"
        "from pathlib import Path\n"
        "from flashrt.binding.audit import audit\n"
        "found = audit([Path(sys.argv[1])])[0].problems\n"
        "print(len(found), max(len(str(p)) for p in found), all(p.do for p in found))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    count, longest, advised = done.stdout.split()
    assert 1 <= int(count) <= 1001
    assert int(longest) <= 1500 + len(str(file))
    assert advised == "True"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_fifty_megabytes_are_refused_unread(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"x{suffix}"
    with file.open("wb") as handle:
        handle.truncate(50 * 1024 * 1024)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (what,) = problems(file)
    assert what.startswith("52428800 bytes is over the limit of ")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 25 * 1024  # kilobytes: it was not read


SURPRISES = [
    ("NO", "'NO' is a truth value to YAML 1.1 and text to YAML 1.2"),
    ("on", "'on' is a truth value to YAML 1.1 and text"),
    ("012", "'012' is octal to YAML 1.1 and decimal to YAML 1.2"),
    ("-08", "'-08' is text to YAML 1.1 and a whole number"),
    ("1_000", "'1_000' is a whole number to YAML 1.1 and text"),
    ("1:30", "'1:30' is a whole number to YAML 1.1 and text"),
    ("0b11", "'0b11' is a whole number to YAML 1.1 and text"),
    ("0o17", "'0o17' is text to YAML 1.1 and a whole number"),
    ("1e3", "'1e3' is text to YAML 1.1 and a number to YAML 1.2"),
    ("1.5e3", "'1.5e3' is text to YAML 1.1 and a number"),
    ("2026-01-01", "'2026-01-01' is a date to YAML 1.1 and text"),
    ("=", "'=' is a default value to YAML 1.1 and text"),
    (".nan", "NaN and infinity are refused"),
    ("-.inf", "NaN and infinity are refused"),
    ("1.0e+999", "NaN and infinity are refused"),
    ("99999999999999999999999", "the number is too large"),
]


@pytest.mark.parametrize(("text", "words"), SURPRISES)
def test_a_plain_value_that_two_yamls_read_differently_is_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"schema: flashrt.binding/1\nname: {text}\n")
    (checked,) = audit([file])
    assert [(p.line, p.path) for p in checked.problems if words in p.what] == [(2, "$.name")]


@pytest.mark.parametrize("text", ['"NO"', "'012'", '"1e3"', "x1e3", "0x1F", "-7", "1.5", "~", "y"])
def test_what_both_read_alike_is_not_refused_as_a_surprise(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"schema: flashrt.binding/1\nname: {text}\n")
    assert not any("YAML 1.1" in what for what in problems(file))


FORMS: dict[str, tuple[bytes, str, int]] = {
    "crlf": (b"a: 1\nb: 2\r\n", "a carriage return ends this line", 2),
    "old mac": (b"a: 1\rb: 2\r", "a carriage return", 1),
    "byte order mark": (b"\xef\xbb\xbfa: 1\n", "byte order mark", 1),
    "utf-16": ("a: 1\n".encode("utf-16"), "not UTF-8", 1),
    "two documents": (b"a: 1\n---\nb: 2\n", "a second document", 2),
    "merge key": (b"<<: {a: 1}\n", "a key must be a plain string", 1),
    "list as a key": (b"? [a]\n: 1\n", "a key must be a plain string", 1),
    "truth as a key": (b"yes: 1\n", "a key must be a plain string", 1),
    "tag": (b"a: !!int '3'\n", "is refused", 1),
    "set": (b"a: !!set {b}\n", "is refused", 1),
    "escape in a key": (b'"a\\e[31m\\nb": 1\n"a\\e[31m\\nb": 2\n', "duplicate key", 2),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_that_other_tools_read_otherwise_is_refused(tmp_path: Path, name: str) -> None:
    data, words, line = FORMS[name]
    file = tmp_path / "x.yaml"
    file.write_bytes(data)
    (checked,) = audit([file])
    found = [p for p in checked.problems if words in p.what]
    assert [p.line for p in found] == [line]
    assert all(str(p).isprintable() and p.do for p in found)


@pytest.mark.parametrize("data", [b'\xef\xbb\xbf{"schema": "x"}', b'{"schema":\r\n "x"}'])
def test_json_has_the_same_form(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(data)
    (what,) = problems(file)
    assert "byte order mark" in what or "carriage return" in what


def test_every_problem_of_a_file_is_found_in_one_run(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("a: NO\nb: &x 1\nc: *x\nd: 1\nd: 2\ne: !!str 3\nf: .nan\n")
    (checked,) = audit([file])
    assert [p.line for p in checked.problems] == [1, 2, 3, 5, 6, 7]


def test_a_broken_part_does_not_hide_what_is_wrong_with_the_others(tmp_path: Path) -> None:
    file = write("binding", "mine", tmp_path)[0]
    text = file.read_text()
    head = text[text.index("  head:") :]
    other = head.replace("head:", "other:").replace("      x: {", "      z: {")
    file.write_text(text.replace("layout: out_in", "layout: sideways") + other)
    paths = {p.path for p in audit([file])[0].problems}
    assert "$.regions.head.weights.weight.layout" in paths
    assert "$.regions.other.points.z" in paths


NAMES = [
    ("structure", "reference: reference.py", "reference: ../mine/reference.py"),
    ("structure", "name: mine", "name: ../mine"),
    ("binding", "structure: linear_proj@1", "structure: ../linear_proj@1"),
    ("binding", "module: lm_head", "module: ..lm_head"),
    ("binding", "at: lm_head.weight", "at: ../lm_head.weight"),
    ("impl", '"backend": "mine"', '"backend": "../mine"'),
    ("impl", "flashrt::linear_proj_mine", "flashrt::../x"),
]


@pytest.mark.parametrize(("kind", "old", "new"), NAMES)
def test_a_name_that_climbs_is_refused(tmp_path: Path, kind: str, old: str, new: str) -> None:
    name = "linear_proj/mine" if kind == "impl" else "mine"
    file = write(kind, name, tmp_path)[-1 if kind == "impl" else 0]
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    assert any("does not match" in what for what in problems(file))


def linked(tmp_path: Path) -> Path:
    outside = tmp_path / "outside.yaml"
    outside.write_text("root:x:0:0:secret\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "x.yaml").symlink_to(outside)
    return tree


def only(checked: list[Checked]) -> tuple[str, str]:
    ((file, kind, what),) = [(c.file, c.kind, c.problems[0].what) for c in checked]
    assert "secret" not in what
    assert file.endswith("x.yaml")
    return kind, what


def test_a_link_out_of_the_tree_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = linked(tmp_path)
    for paths in ([tree], [tree / "x.yaml"]):
        kind, what = only(audit(paths))
        assert kind == "link"
        assert "a link that leads out of" in what
    monkeypatch.chdir(tree)
    assert only(audit([Path("x.yaml")]))[0] == "link"
    (tree / "loop.yaml").symlink_to("loop.yaml")
    (tree / "gone.yaml").symlink_to("nothing.yaml")
    said = [c.problems[0].what for c in audit([tree])]
    assert any("symbolic links" in what for what in said)
    assert any("No such file" in what for what in said)


def test_a_link_inside_the_tree_and_a_linked_folder(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    real = write("binding", "mine", tree)[0]
    (tree / "again.yaml").symlink_to(real)
    (tree / "up").symlink_to(tmp_path)
    assert [c.problems for c in audit([tree])] == [(), ()]


def test_a_reference_that_is_a_link_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    file, reference = write("structure", "mine", tmp_path)
    elsewhere = tmp_path / "elsewhere.py"
    reference.rename(elsewhere)
    reference.symlink_to(elsewhere)
    (checked,) = audit([file])
    assert "a link that leads out of" in checked.problems[0].what


def test_hidden_folders_are_passed_over_and_json_is_told_by_its_claim(tmp_path: Path) -> None:
    write("binding", "mine", tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "x.yaml").write_text("a: NO\n")
    (tmp_path / "other.json").write_text(json.dumps({"a": 1}))
    assert len(audit([tmp_path])) == 1
