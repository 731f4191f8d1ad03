"""A chain from receipt to service: verified by name, published, attached whole, taken out whole."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import flashrt_runtime
from flashrt.document.canonical import seal
from flashrt.document.schema import problems
from flashrt.qualify.request import Budget, CellRequest
from flashrt.qualify.run import Run, Stated, now, qualify
from flashrt.receipt.spec_gates import catalog_gates
from flashrt.receipt.store import Store
from flashrt.receipt.verify import verify
from flashrt.release.route import route_of
from flashrt_cli import main
from flashrt_runtime.activate import Release
from flashrt_runtime.chain_route import members_record
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.seat import STREAK_LIMIT, Seat

CELL = CellRequest.parse("fp8_static+chains@decode", context=64)
NORM = "model.layers.0.input_layernorm"
QKV = [f"model.layers.0.self_attn.{name}_proj" for name in "kqv"]
OTHER = "model.layers.1.post_attention_layernorm"
PROMPT = torch.tensor([[5, 9, 17, 40, 8]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("release")


@pytest.fixture(scope="module")
def earned(chained, factory, fake_of, folder):
    """A certified receipt of the cell with chains, its plan, and the store of both."""
    fake, store = fake_of(factory), Store(folder / "store")

    def attach(fragment):
        plan = fake.jobs[-1].plans[CELL.label]
        fragment["path"]["chains"] = members_record(plan["chains"])

    fake.change = attach
    if chained.calibration is not None:
        chained.calibration.save(store)
    budget = Budget(processes=3, threads=torch.get_num_threads())
    run = Run(chained, store, budget, Stated(), now())
    (result,) = qualify(run, (CELL,), lambda text: None, fake)
    assert result.state == "certified_fast", result.because
    return result.receipt, store.get("plan", result.receipt["plan"]), store


@pytest.fixture(scope="module")
def release(earned, folder):
    """What a service reads: the store, published under a key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("CI", raising=False)
        assert main.run(["keys", "new", "release.pem"]) == 0
        words = ["--to", "release", "--key", "release.pem", "--store", "store"]
        assert main.run(["publish-receipts", *words]) == 0
    key = (folder / "release.pem.pub").read_bytes()
    return flashrt_runtime.load(str(folder / "release"), trust=[key])


@pytest.fixture
def model(home):
    from transformers import AutoModelForCausalLM

    found = AutoModelForCausalLM.from_pretrained(home / "host", dtype=torch.float32)
    return found.eval().requires_grad_(False)


def seats(model):
    return {path for path, module in model.named_modules() if isinstance(module, Seat)}


def resealed(receipt):
    return seal({key: value for key, value in receipt.items() if key != "digest"})


def test_the_receipt_names_the_members_in_cell_and_path(earned):
    receipt = earned[0]
    assert verify(receipt, catalog_gates) == []
    chains = receipt["cell"]["precision"]["chains"]
    assert {"producer": NORM, "readers": QKV} in chains
    assert all(run["chains"] == chains for run in receipt["evidence"]["path"])


def _reader(run):
    chain = next(one for one in run["chains"] if one["producer"] == NORM)
    chain["readers"].remove(QKV[0])


def _member(run):
    del run["expected"][QKV[0]], run["graph_calls"][QKV[0]]


def _chain(run):
    run["chains"] = [one for one in run["chains"] if one["producer"] != NORM]


def _not_once(run):
    run["graph_calls"][NORM] = 2


LOSSES = {
    "a reader": (_reader, Reason.CONFLICT, f"the chain of {NORM} lost {QKV[0]}"),
    "a member's path": (_member, Reason.CONFLICT, f"the chain of {NORM} lost {QKV[0]}"),
    "the chain": (_chain, Reason.CONFLICT, f"lost the cell's chain of {NORM}"),
    "its one call": (_not_once, Reason.VERDICT, "the evidence gives unknown, band pass"),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_receipt_whose_chain_lost_something_is_refused_by_name(earned, lost):
    act, reason, told = LOSSES[lost]
    receipt = copy.deepcopy(dict(earned[0]))
    act(receipt["evidence"]["path"][1])
    found = verify(resealed(receipt), catalog_gates)
    assert (reason, told) in [(because.reason, because.detail) for because in found]


def test_a_plan_with_other_chains_is_not_the_receipts(earned):
    receipt, plan, _ = earned
    assert route_of(receipt, plan)["chains"] == plan["chains"]
    for changed, told in (
        ({"chains": plan["chains"][1:]}, "chains: the cell has"),
        ({"seams": [s for s in plan["seams"] if s["seam"]["id"] != NORM]}, "not in both"),
    ):
        with pytest.raises(Refusal) as caught:
            route_of(receipt, {**plan, **changed})
        assert caught.value.reason is Reason.CONFLICT
        assert told in caught.value.what


def test_explain_names_the_unit(earned, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = ["--store", "store", "--format", "json"]
    assert main.run(["explain", "fp8_static+chains@decode", *words]) == 0
    (considered,) = json.loads(capsys.readouterr().out)["considered"]
    assert considered["chains"] == earned[0]["cell"]["precision"]["chains"]
    assert "fp8_static+chains decode" in considered["label"]
    assert main.run(["explain", "fp8_static+chains@decode", "--store", "store"]) == 0
    assert f"one unit: {NORM} ->" in " ".join(capsys.readouterr().out.split())


def test_the_report_names_the_unit(earned, folder, monkeypatch):
    monkeypatch.chdir(folder)
    digest = earned[0]["digest"].removeprefix("sha256:")
    receipt = f"store/qualification/{digest}.json"
    assert main.run(["report", receipt, "-o", "page.html"]) == 0
    page = (folder / "page.html").read_text()
    assert "chains, each bound and judged as one" in page
    assert NORM in page
    assert ", ".join(QKV) in page


def test_a_cell_without_chains_is_not_one_with_them(earned):
    from flashrt.release.asked import named
    from flashrt.release.explain import consider

    receipt = copy.deepcopy(dict(earned[0]))
    del receipt["cell"]["precision"]["chains"]
    facts = named("fp8_static+chains@decode", [receipt])
    (considered,) = consider([receipt], facts)
    assert considered.mismatch is not None
    assert considered.mismatch.name == "cell.precision.chains"
    assert not considered.serves


def changed(release, **fields):
    """The release with other fields in its only route."""
    (route,) = release.content.routes
    return Release(replace(release.content, routes=(replace(route, **fields),)))


def test_a_route_whose_chain_is_not_whole_attaches_nothing(release, model):
    (route,) = release.routes
    one = next(chain for chain in route.chains if chain.producer == NORM)
    rest = tuple(chain for chain in route.chains if chain is not one)
    less = tuple(seam for seam in route.seams if seam.seam.id != QKV[0])
    cases = (
        ({"seams": less}, Reason.BINDING, NORM, f"lost {QKV[0]!r}"),
        ({"chains": rest}, Reason.BINDING, NORM, "it is in no chain"),
        ({"chains": (*rest, replace(one, scale=one.scale * 2))}, Reason.CONFLICT, NORM, "under"),
        ({"chains": (*route.chains, replace(one, producer=OTHER))}, Reason.CONFLICT, "", "chains"),
        (
            {"chains": (*rest, replace(one, producer=QKV[0], readers=(NORM,)))},
            Reason.FORM,
            "",
            "no",
        ),
    )
    for fields, reason, subject, told in cases:
        with pytest.raises(Refusal) as caught:
            changed(release, **fields).activate(model)
        assert caught.value.reason is reason, str(caught.value)
        assert subject in caught.value.subject
        assert told in caught.value.what
        assert seats(model) == set()


def test_a_route_whose_chains_do_not_read_is_refused(folder, release):
    from flashrt_runtime.route_record import read_route

    manifest = json.loads((folder / "release" / "release.json").read_text())
    (record,) = manifest["routes"]
    assert len(read_route(record, "here").chains) == 4
    chain = record["chains"][0]
    for wrong in ({"readers": []}, {"scale": 0}, {"wire": "fp4"}, {"producer": 3}):
        with pytest.raises(Refusal) as caught:
            read_route({**record, "chains": [{**chain, **wrong}]}, "here")
        assert caught.value.reason is Reason.SCHEMA
    twice = {**chain, "readers": [chain["producer"]]}
    with pytest.raises(Refusal) as caught:
        read_route({**record, "chains": [twice]}, "here")
    assert caught.value.reason is Reason.CONFLICT
    assert release.routes


def call_again(reader):
    for _ in range(STREAK_LIMIT):
        reader(torch.zeros(1, 1, 64))


def test_a_service_attaches_a_chain_whole_and_takes_it_out_whole(release, model, tmp_path):
    expected = model.generate(PROMPT, max_new_tokens=8, do_sample=False)
    active = release.activate(model)
    active.generate(PROMPT, 8)
    assert active.handle.units[NORM] == (NORM, *(q for q in active.handle.units[NORM][1:]))
    assert sorted(active.handle.units[NORM][1:]) == QKV
    seams = {line["seam"]: line for line in active.ledger_lines() if line["kind"] == "seam"}
    assert {seams[name]["chain"] for name in (NORM, *QKV)} == {NORM}
    assert {line["fallbacks"] for line in seams.values()} == {0}
    assert {seams[name]["replayed"] for name in (NORM, *QKV)} == {7}
    assert "chain" not in seams["model.layers.0.self_attn.o_proj"]

    # a member that is called with what its producer did not send, again and again
    with pytest.warns(UserWarning, match="SHARED_INPUT"):
        call_again(model.get_submodule(QKV[0]))
    assert not seats(model) & {NORM, *QKV}
    assert OTHER in seats(model)
    with pytest.raises(Refusal) as caught:
        active.handle.detach_unit(QKV[0])
    assert caught.value.reason is Reason.CONFLICT
    active.handle.detach_unit(OTHER)
    assert OTHER not in seats(model)
    lines = active.ledger_lines()
    assert all(problems(line, "ledger_line") == [] for line in lines)
    seams = {line["seam"]: line for line in lines if line["kind"] == "seam"}
    assert all(seams[name]["restored"] for name in (NORM, *QKV, OTHER))
    assert "SHARED_INPUT" in seams[QKV[0]]["last_reason"]
    assert seams[QKV[1]]["last_reason"] == f"the chain of {NORM} was taken out whole"
    active.export(tmp_path / "ledger.jsonl")
    assert Path(tmp_path / "ledger.jsonl").stat().st_size > 0
    active.detach()
    assert seats(model) == set()
    assert torch.equal(model.generate(PROMPT, max_new_tokens=8, do_sample=False), expected)


@pytest.mark.slow
@pytest.mark.usefixtures("at_home")
def test_three_real_processes_attach_the_same_units(source, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    budget = ["--seconds", "2", "--windows", "2", "--positions", "8", "--threads", "1"]
    words = ["--host", source[0], "--frames", source[1], "--cell", CELL.text, "--context", "64"]
    assert main.run(["qualify", *words, *budget, "--store", "store"]) in (0, 3)
    (path,) = Path("store/qualification").glob("*.json")
    receipt = json.loads(path.read_text())
    assert verify(receipt, catalog_gates) == []
    assert receipt["verdict"]["state"] in ("supported_correct", "certified_fast")
    chains = receipt["cell"]["precision"]["chains"]
    assert len(chains) == 4
    assert [run["chains"] for run in receipt["evidence"]["path"]] == [chains] * 3
