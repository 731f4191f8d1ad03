"""A tiny host with its text, prepared once, and a measuring process that only pretends."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from flashrt.gate.integrity import REQUIRED
from flashrt.gate.thresholds import read_thresholds
from flashrt.qualify.job import Job
from flashrt.qualify.prepare import Prepared, prepare
from flashrt.qualify.request import Budget, CellRequest
from flashrt.qualify.run import Run, Stated, now, qualify
from flashrt.receipt.spec_gates import catalog_gates
from flashrt.receipt.store import Store
from flashrt.receipt.verify import verify

FACTORY = Path(__file__).parent.parent / "receipt" / "receipt_factory.py"
WORDS = [f"w{i}" for i in range(90)]


@pytest.fixture(scope="session")
def factory() -> ModuleType:
    """Evidence of a quiet simulated machine, and receipts around it."""
    spec = importlib.util.spec_from_file_location("receipt_factory", FACTORY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *WORDS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")


def build_llama() -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``host`` (safetensors, tokenizer) and ``texts`` (12 documents)."""
    root = tmp_path_factory.mktemp("qualify")
    build_llama().save_pretrained(root / "host")
    build_tokenizer().save_pretrained(root / "host")
    for i in range(12):
        path = root / "texts" / ("prose" if i % 2 else "news") / f"d{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = Random(i)
        path.write_text(" ".join(rng.choice(WORDS) for _ in range(1200)))
    return root


@pytest.fixture
def at_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, with a working folder that is empty and new."""
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture(scope="session")
def source(home: Path) -> tuple[str, str]:
    """What a user would type for the host and for its frames."""
    return f"transformers:{home / 'host'}", f"text:{home / 'texts'}"


@pytest.fixture(scope="session")
def prepared(
    source: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prepared]:
    """The tiny host, calibrated once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("prepared")
        patch.chdir(folder)
        wanted = (CellRequest.parse("int8_static@decode"),)
        yield prepare(
            *source, wanted, Store(folder), calibration=None, seed=0, tell=lambda *_, **__: None
        )


@pytest.fixture(scope="session")
def chained(
    source: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prepared]:
    """The tiny host, calibrated and watched for cells with chains."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("chained")
        patch.chdir(folder)
        wanted = (CellRequest.parse("fp8_static+chains@decode"),)
        yield prepare(
            *source, wanted, Store(folder), calibration=None, seed=0, tell=lambda *_, **__: None
        )


class FakeProcess:
    """Stands for a measuring process: whole evidence of a win, from the job it is told.

    ``before(job)`` may raise; ``change(fragment)`` may spoil what is handed back.
    """

    def __init__(self, factory: ModuleType) -> None:
        self.factory = factory
        self.jobs: list[Job] = []
        self.ratio = 1.5
        self.before: Callable[[Job], None] = lambda job: None
        self.change: Callable[[dict[str, Any]], None] = lambda fragment: None

    def __call__(self, job: Job, say: Callable[[str], None]) -> dict[str, Any]:
        job = Job.from_record(job.record())
        self.jobs.append(job)
        self.before(job)
        say(f"measured {len(job.cells)} cells")
        return {cell.label: self.fragment(job, cell) for cell in job.cells}

    def fragment(self, job: Job, cell: CellRequest) -> dict[str, Any]:
        digest, index = self.factory.digest, job.process
        gate = read_thresholds(job.rules[cell.label])
        bound = [s for s in job.plans[cell.label]["seams"] if s["outcome"] == "bind"]
        names = [f"{document}#0" for document in job.held_out[:2]]
        windows = [self.factory.window(name) for name in names]
        fragment = {
            "process": index,
            "empty_control": {"process": index, "digests": [digest("out")] * 2},
            "null": self.factory.series(10 + index, None, gate),
            "race": self.factory.series(20 + index, self.ratio, gate),
            "dtype_hosts": [],
            "judged": [{"id": n, "digest": digest(n), "positions": 65} for n in names],
            "poison": {"process": index, "outputs_rewritten": True, "inputs_honoured": True},
            "integrity": {
                "process": index,
                "looked_for": sorted(REQUIRED),
                "findings": [],
            },
            "window_check": [self.factory.followed(index, arm) for arm in ("host", "treated")],
            "path": {
                "process": index,
                "expected": {s["seam"]["id"]: "flashrt::fake" for s in bound},
                "graph_calls": {s["seam"]["id"]: 1 for s in bound},
                "replays": 97,
                "dispatched": 0,
                "fallbacks": 0,
            },
            "machine": {"load_before": 0.5},
            "setup_s": {"host": 1.0, "treated": 1.5},
            "resources": {"weight_bytes_host": 1000, "weight_bytes_treated": 500},
            "rollback": {"process": index, "digests": [digest("out")] * 2},
        }
        if index == 0:
            fragment |= {"parity_before": windows, "parity_after": windows}
        self.change(fragment)
        return fragment


@pytest.fixture(scope="session")
def fake_of() -> Callable[[ModuleType], FakeProcess]:
    """Makes pretended processes, for fixtures that live longer than a test."""
    return FakeProcess


@pytest.fixture
def fake(factory: ModuleType) -> FakeProcess:
    """A new pretended process."""
    return FakeProcess(factory)


@pytest.fixture
def run_of(prepared: Prepared, tmp_path: Path) -> Callable[..., Run]:
    """``run_of(margin=…, floors=…, store=…, processes=…)``: a run over the tiny host."""

    def make(store: Store | None = None, processes: int = 3, **stated: Any) -> Run:
        budget = Budget(processes=processes)
        return Run(prepared, store or Store(tmp_path / "store"), budget, Stated(**stated), now())

    return make


@pytest.fixture
def judged(run_of: Callable[..., Run], fake: FakeProcess) -> Callable[[dict[str, Any]], list[Any]]:
    """``judged(seen)``: the verdict's reasons when a first process saw this of its arm's integrity.

    The other processes looked for everything and saw nothing.
    """

    def verdict(seen: dict[str, Any]) -> list[Any]:
        def spoil(fragment: dict[str, Any]) -> None:
            first = fragment["process"] == 0
            body = seen if first else {"looked_for": sorted(REQUIRED), "findings": []}
            fragment["integrity"] = {"process": fragment["process"], **body}

        fake.change = spoil
        cell = CellRequest.parse("fp16_weight@decode")
        (result,) = qualify(run_of(), (cell,), lambda text: None, fake)
        assert verify(result.receipt, catalog_gates) == []
        assert result.state == ("unknown" if result.because else "certified_fast")
        assert result.gate_failed is bool(seen["findings"])
        return list(result.because)

    return verdict
