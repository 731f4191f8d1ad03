"""``flashrt validate`` opens no address that a file names, whatever kind of file it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from flashrt.binding.audit import audit
from flashrt.document import schema
from flashrt.document.meta import DRAFT
from flashrt.spec.skeleton import write

MODELINE = "# yaml-language-server: $schema="


class Server(HTTPServer):
    asked: list[str]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server on this machine that notes each path it is asked for, and answers a schema."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"$schema": DRAFT}).encode())

        def log_message(self, *_: Any) -> None:
            return

    made = Server(("127.0.0.1", 0), Handler)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def bodies(url: str) -> list[dict[str, Any]]:
    """Schemas that name an address in every place where one can stand."""
    own = {"$schema": DRAFT, "$id": "urn:flashrt:schema:a:1"}
    return [
        {"$schema": f"{url}/meta", "$id": "urn:flashrt:schema:a:1"},
        {**own, "$ref": f"{url}/ref"},
        {**own, "$dynamicRef": f"{url}/dynamic#meta"},
        {**own, "$id": f"{url}/base", "$ref": "relative"},
        {**own, "properties": {"a": {"$id": "urn:b", "$schema": f"{url}/inner"}}},
        {**own, "$defs": {"a": {"$id": f"{url}/dir/", "items": {"$ref": "relative"}}}},
        {**own, "x-other": {"$ref": f"{url}/unknown"}},
    ]


def test_a_schema_that_names_addresses_is_refused_and_none_is_asked_for(
    tmp_path: Path, server: Server
) -> None:
    file = tmp_path / "a.schema.json"
    held = tmp_path / "held.json"
    held.write_text(json.dumps({"$schema": DRAFT}))
    for url in (f"http://127.0.0.1:{server.server_port}", held.as_uri(), "file:///dev/zero"):
        for body in bodies(url):
            file.write_text(json.dumps(body, indent=1))
            (checked,) = audit([file])
            assert checked.problems
            for problem in checked.problems:
                key = problem.path.rpartition(".")[2]
                assert f'"{key}"' in file.read_text().splitlines()[problem.line - 1]
    assert server.asked == []


def test_one_such_file_does_not_end_the_run_of_its_folder(tmp_path: Path, server: Server) -> None:
    good = write("binding", "mine", tmp_path)[0]
    for i, body in enumerate(bodies(f"http://127.0.0.1:{server.server_port}")):
        (tmp_path / f"a{i}.schema.json").write_text(json.dumps(body))
    checked = {c.file: c.problems for c in audit([tmp_path])}
    assert checked.pop(str(good)) == ()
    assert len(checked) == 7
    assert all(checked.values())
    assert server.asked == []


@pytest.mark.parametrize("kind", ["binding", "structure"])
def test_an_address_in_a_document_is_text(tmp_path: Path, server: Server, kind: str) -> None:
    url = f"http://127.0.0.1:{server.server_port}/x"
    file = write(kind, "mine", tmp_path)[0]
    text = file.read_text()
    modeline, _, body = text.partition("\n")
    assert modeline.startswith(MODELINE)
    file.write_text(f"{MODELINE}{url}\n{body}")
    assert audit([file])[0].problems == ()
    file.write_text(f'{text}"$schema": "{url}"\n"$ref": "{url}"\n')
    whats = [p.what for p in audit([file])[0].problems]
    assert any("$ref" in what or "$schema" in what for what in whats)
    assert server.asked == []


def test_an_address_in_a_json_artefact_is_text(tmp_path: Path, server: Server) -> None:
    url = f"http://127.0.0.1:{server.server_port}/x"
    claims = {"plan": "flashrt.plan/1", "release": "flashrt.release/1", "impl": "flashrt.impl/1"}
    for name, claim in claims.items():
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"schema": claim, "$schema": url, "$ref": url, "$id": url}))
        assert audit([file])[0].problems
    row = {"schema": "flashrt.ledger/1", "kind": "seam", "$ref": url}
    (tmp_path / "run.jsonl").write_text(json.dumps(row) + "\n")
    assert audit([tmp_path / "run.jsonl"])[0].problems
    assert server.asked == []


def test_a_ledger_of_very_many_bad_lines_has_the_first_thousand_problems(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text('{"a":1}\n' * 100_000)
    problems = audit([file])[0].problems
    assert len(problems) == schema.MAX_PROBLEMS + 1
    assert [p.line for p in problems[:-1]] == list(range(1, schema.MAX_PROBLEMS + 1))
    assert problems[-1].what == "there are more problems"
    file.write_text('{"a":1}\n' * schema.MAX_PROBLEMS)
    assert len(audit([file])[0].problems) == schema.MAX_PROBLEMS
