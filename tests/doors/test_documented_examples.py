"""The examples of the documents run, as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"


def example(page: str, needle: str) -> str:
    """The one fenced Python block of a page that imports what it uses and names ``needle``."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    (found,) = [
        b
        for b in blocks
        if needle in b and b.startswith(("import ", "from ")) and "import torch" in b
    ]
    return found


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """``ran(page, needle)``: what the example left in its names, and the lines it printed."""
    monkeypatch.chdir(tmp_path)

    def run(page: str, needle: str) -> tuple[dict[str, Any], list[str]]:
        module = ModuleType("documented_example")
        monkeypatch.setitem(sys.modules, module.__name__, module)  # a compiler looks names up there
        exec(compile(example(page, needle), page, "exec"), vars(module))
        return vars(module), capsys.readouterr().out.splitlines()

    return run


def test_attach_as_its_page_shows_it(ran: Any) -> None:
    names, printed = ran("attach.md", "flashrt.attach(")
    assert [unit.passed for unit in names["done"].units] == [True] * len(names["done"].units)
    assert any("preflight (eager)" in line for line in printed)
    assert any("UNCAPTURABLE" in line for line in printed)
    assert printed[-1].startswith("True ")
    assert not names["done"].handle.attached


def test_capture_as_its_page_shows_it(ran: Any) -> None:
    names, printed = ran("runtime.md", "flashrt.capture(")
    assert printed == ["('compile',) x bias", "torch.Size([2, 4]) 1"]
    assert "windows_unchanged" not in names["stage"].options


def test_a_packed_checkpoint_is_written_and_adopted_as_its_page_shows_it(ran: Any) -> None:
    with pytest.warns(UserWarning, match="14 packed layers were replaced"):
        names, printed = ran("prequantized.md", "ModelCompressor")
    assert len(printed) == 14
    assert all("float-quantized -> linear_proj@1/fp8_packed" in line for line in printed)
    assert Path("tiny-fp8/config.json").is_file()
    assert names["done"].model is not None
