"""The lab's GPT as a host: the exact executor's numbers, in a tree that the toolchain can bind."""

from pathlib import Path

import pytest
import torch

from flashrt.binding import bindings_root, load_binding, resolve
from flashrt.binding.proof import prove
from flashrt.document.problem import InputError
from flashrt.host import load_host
from flashrt.host.discovery import discover
from flashrt.host.lab import HostTokenizer, load_lab, module_of
from flashrt.host.match import match
from flashrt.host.reference import PackagedHost, parse
from flashrt.lab.model import ExactExecutor, LoadedArtifact
from flashrt_runtime.decode.step import DecodeStep
from flashrt_runtime.reason import Reason, Refusal

TEXTS = ("the cat sat on the mat", "that hat", "the mat that the cat had sat on, the cat had")
ROUNDING = 2e-5  # of the largest logit: some 170 roundings of float32


@pytest.fixture(scope="module")
def lab():
    """An untrained artifact whose vectors are no identities, as a trained one's."""
    return LoadedArtifact.random(3)


@pytest.fixture(scope="module")
def host(lab):
    return load_lab(loaded=lab)


def exact(lab, ids):
    return torch.tensor(ExactExecutor(lab).run(ids).logits)


def near(seen, expected):
    scale = float(expected.abs().max())
    return bool(((seen - expected).abs() <= ROUNDING * scale).all()) and scale > 0


@pytest.mark.parametrize("text", TEXTS)
def test_logits_are_the_exact_executors_within_rounding_at_every_position(lab, host, text):
    ids = lab.tokenizer.prompt(text).ids
    seen = host.model(torch.tensor([ids])).logits[0]
    assert seen.shape == (len(ids), len(lab.tokenizer))
    for end in range(1, len(ids) + 1):
        assert near(seen[end - 1], exact(lab, ids[:end])), end
    assert not near(seen[-1], exact(lab, ids[:-1])), "another prefix is told apart"


def test_a_step_over_a_static_cache_gives_the_same_logits(lab, host):
    ids = lab.tokenizer.prompt(TEXTS[2]).ids
    step = DecodeStep(host.model, batch=1, rows=1, context=64)
    with torch.no_grad():
        step.prefill(torch.tensor([ids[:-1]]))
        last = step(torch.tensor([ids[-1:]]), torch.tensor([len(ids) - 1]))[0, -1]
    assert near(last, exact(lab, ids))


def test_the_hosts_identity_is_the_artifacts(lab, host):
    artifact = host.artifact
    assert artifact.checkpoint_digest == lab.identity.checkpoint_digest
    assert artifact.tokenizer_digest == lab.tokenizer.manifest_sha256
    assert artifact.parameters == sum(p.numel() for p in host.model.parameters())
    assert (artifact.family, artifact.dtype) == ("tiny_gpt", "float32")
    assert artifact.provenance == lab.identity.provenance
    again = load_lab(loaded=LoadedArtifact.random(3))
    assert again.model_artifact == host.model_artifact
    assert load_lab(loaded=LoadedArtifact.random(4)).artifact != artifact
    narrow = load_lab("bfloat16", loaded=lab)
    assert narrow.artifact.dtype == "bfloat16"
    assert narrow.artifact.checkpoint_digest != artifact.checkpoint_digest


def test_the_packaged_artifact_is_a_host_by_its_name():
    assert parse("tiny_gpt") == PackagedHost("tiny_gpt")
    loaded, held = load_host("tiny_gpt"), LoadedArtifact.load()
    assert loaded.binding_name == "tiny_gpt"
    assert loaded.artifact.checkpoint_digest == held.identity.checkpoint_digest
    ids = held.tokenizer.prompt("The court said that").ids
    assert near(loaded.model(torch.tensor([ids])).logits[0, -1], exact(held, ids))
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert not loaded.model.training


def test_every_bound_region_is_proven_and_found_as_it_is_bound(host):
    binding = load_binding("tiny_gpt", require_pipeline_coverage=True)
    seams = resolve(binding, host.model)
    assert len(seams) == 4 * 11 + 2
    tokens = torch.arange(40)[None] % 60

    def forward():
        return host.model(tokens)

    proofs = prove(binding, host.model, forward)
    assert {proof.region for proof in proofs} == set(binding.regions)
    assert [(p.seam_id, p.why) for p in proofs if not p.ok] == []
    found = discover(host.model, forward)
    said = match(seams, found.seams, found.refusals)
    assert said.contradicted == said.unseen == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("blocks.{i}.ffn.fc1.weight", "blocks.{i}.ffn.fc3.weight"),
        ("activation: gelu_erf", "activation: silu"),
        ("module: final_norm", "module: last_norm"),
        ("bias: none", "bias: present"),
    ],
)
def test_a_binding_with_one_thing_wrong_does_not_resolve(host, tmp_path, old, new):
    text = (bindings_root() / "tiny_gpt.yaml").read_text()
    assert old in text
    (tmp_path / "tiny_gpt.yaml").write_text(text.replace(old, new))
    with pytest.raises((Refusal, InputError)):
        resolve(load_binding(str(tmp_path / "tiny_gpt.yaml")), host.model)


def test_another_activation_is_bound_and_not_proven(host, tmp_path):
    text = (bindings_root() / "tiny_gpt.yaml").read_text()
    file = tmp_path / "tiny_gpt.yaml"
    file.write_text(text.replace("activation: gelu_erf", "activation: gelu_tanh"))
    binding = load_binding(str(file))
    loud = module_of(LoadedArtifact.random(3))
    with torch.no_grad():
        for block in loud.blocks:
            block.ffn.fc1.weight.mul_(20)  # where the two formulas differ
    proofs = prove(binding, loud, lambda: loud(torch.arange(40)[None] % 60))
    assert {proof.region for proof in proofs if not proof.ok} == {"ffn"}


def test_text_has_no_tags_unless_they_are_asked_for(lab):
    tokenizer = HostTokenizer(lab.tokenizer)
    framed = tokenizer("the cat")["input_ids"]
    bare = tokenizer("the cat", add_special_tokens=False, verbose=False)["input_ids"]
    assert framed[1:-1] == bare
    assert (
        lab.tokenizer.turn_end not in tokenizer("TURN_END", add_special_tokens=False)["input_ids"]
    )
    assert tokenizer("", add_special_tokens=False)["input_ids"] == []


def test_more_tokens_than_positions_are_refused(lab):
    short = module_of(LoadedArtifact.random(0, context=8))
    assert short(torch.zeros(1, 8, dtype=torch.int64)).logits.shape[1] == 8
    with pytest.raises(Refusal) as caught:
        short(torch.zeros(1, 9, dtype=torch.int64))
    assert caught.value.reason is Reason.SHAPE


def test_only_the_logits_that_are_asked_for_are_made(host):
    tokens = torch.arange(12)[None]
    whole = host.model(tokens).logits
    assert torch.allclose(host.model(tokens, logits_to_keep=1).logits, whole[:, -1:], atol=1e-6)


def test_discovery_proves_the_packaged_host_from_the_command_line(capsys, tmp_path):
    from flashrt_cli.main import run

    assert run(["discover", "--host", "tiny_gpt", "--prove", "--cache", str(tmp_path)]) == 0
    out, _ = capsys.readouterr()
    assert "46 seams" in out
    assert "vision_ffn@1" in out
    assert not list(Path(tmp_path).iterdir()), "nothing is converted: the artifact is packaged"


def texts(folder):
    for i in range(8):
        path = folder / ("prose" if i % 2 else "news") / f"d{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        words = [f"{chr(97 + (i * 7 + n * n) % 26)}{n * (i + 3)}" for n in range(900)]
        path.write_text(" ".join(words))
    return f"text:{folder}"


def test_it_is_calibrated_and_planned_for_as_any_host(tmp_path, monkeypatch):
    from flashrt.qualify.prepare import prepare
    from flashrt.qualify.request import CellRequest
    from flashrt.receipt.store import Store

    frames = texts(tmp_path / "texts")
    monkeypatch.chdir(tmp_path)
    cells = [
        CellRequest.parse("fp16_weight@decode", 64),
        CellRequest.parse("int8_static@decode", 64),
    ]
    held = {"calibration": None, "seed": 0, "tell": lambda *_, **__: None}

    def ready(asked):
        return prepare("tiny_gpt", frames, asked, Store(tmp_path / "store"), **held)

    prepared = ready(cells)
    assert prepared.artifact == load_host("tiny_gpt").artifact
    assert prepared.calibration is not None
    assert len(prepared.workload.requests) == 32
    for cell in cells:
        plan = prepared.plan(cell)
        bound = {s["seam"]["id"] for s in plan["seams"] if s["outcome"] == "bind"}
        assert "blocks.3.ffn.fc2" in bound, cell.label
        assert plan["model_artifact"] == prepared.artifact.record()
    far = [CellRequest.parse("fp16_weight@decode", 512)]
    with pytest.raises(Refusal) as caught:
        ready(far)
    assert caught.value.reason is Reason.SHAPE
