"""Tiny hosts, tiny impls and tiny releases for the runtime's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from flashrt_runtime.contract import BindRequest, BoundSeam, Seam
from flashrt_runtime.guard import FormContract, Place
from flashrt_runtime.swap import Swap


@torch.library.custom_op("flashrt::test_double", mutates_args=())
def test_double(x: torch.Tensor, seam: str) -> torch.Tensor:
    """Twice ``x``."""
    return x * 2


@test_double.register_fake
def _(x: torch.Tensor, seam: str) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("flashrt::test_ffn", mutates_args=())
def test_ffn(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, seam: str
) -> torch.Tensor:
    """The gated feed-forward, in the host's own arithmetic."""
    hidden = nn.functional.silu(nn.functional.linear(x, gate)) * nn.functional.linear(x, up)
    return nn.functional.linear(hidden, down)


@test_ffn.register_fake
def _(
    x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, seam: str
) -> torch.Tensor:
    return torch.empty_like(x)


class Double(nn.Module):
    """An implementation that is not the host's arithmetic, so that a test sees which one ran."""

    def __init__(self, seam: str) -> None:
        super().__init__()
        self.seam = seam

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice ``x``, by the operator."""
        return torch.ops.flashrt.test_double(x, self.seam)


class FeedForward(nn.Module):
    """The feed-forward by the operator, from the host's own weights."""

    def __init__(self, request: BindRequest) -> None:
        super().__init__()
        self.seam = request.seam.id
        for slot in ("gate", "up", "down"):
            self.register_buffer(slot, request.weights[slot], persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., D] -> [..., D]``."""
        return torch.ops.flashrt.test_ffn(x, self.gate, self.up, self.down, self.seam)


class Net(nn.Module):
    """Two linears of width 4."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., 4] -> [..., 4]``."""
        return self.second(self.first(x))


@pytest.fixture
def net() -> Net:
    """A host in eval mode."""
    torch.manual_seed(0)
    return Net().eval().requires_grad_(False)


@pytest.fixture
def swap_of() -> Callable[..., Swap]:
    """``swap_of(path, rows=(1, 2), place=…, body=…)``: a swap of one linear of width 4."""

    def make(
        path: str = "first",
        rows: tuple[int, int | None] = (1, 2),
        place: Place = Place.ANYWHERE,
        body: nn.Module | None = None,
        **other: Any,
    ) -> Swap:
        seam = Seam(f"{path}.seam", "linear_proj@1", {"self": path}, {}, {"K": 4}, {})
        bound = BoundSeam({"self": body or Double(seam.id)}, "flashrt::test_double", 0)
        given: dict[str, Any] = {
            "device": torch.device("cpu"),
            "dtype": torch.float32,
            "width": 4,
        } | other
        return Swap(seam, bound, FormContract(rows=rows, place=place, **given), "fake", "decode")

    return make


@pytest.fixture
def ffn_binder() -> Callable[..., BoundSeam]:
    """A binder that takes any impl record and binds the feed-forward operator."""

    def bind(impl: Any, request: BindRequest) -> BoundSeam:
        return BoundSeam({"self": FeedForward(request)}, "flashrt::test_ffn", 0)

    return bind


def tiny_llama(layers: int = 1) -> nn.Module:
    """A causal LM with random weights that says more than one token."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.mul_(3)
    return model


@pytest.fixture
def llama() -> nn.Module:
    """A fresh tiny Llama of one layer."""
    return tiny_llama()


class Maker:
    """Writes release folders: what a publisher would, and every way to get it wrong."""

    def __init__(self, root: Any, model: nn.Module) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self.root = root
        self.model = model
        self.private = Ed25519PrivateKey.generate()
        self.public = self.private.public_key().public_bytes_raw()
        self.routes: list[dict[str, Any]] = []
        self.receipts: list[dict[str, Any]] = []
        self.revokes: list[str] = []

    def cell(self, **changes: Any) -> dict[str, Any]:
        """The cell of this machine and model; ``changes`` replace top-level fields."""
        from flashrt_runtime.facts import model_facts

        facts = model_facts(self.model, ("compile",))
        cell = {
            "device": facts.device,
            "software": facts.software,
            "model_artifact": {
                "family": "llama",
                "checkpoint_digest": facts.checkpoint_digest,
                "architecture_digest": facts.architecture_digest,
                "dtype": facts.dtype,
            },
            "precision": {"scheme": "fp16_weight"},
            "shape": {"phase": "decode", "batch": 1, "rows": 1, "context": 32},
            "form": ["compile"],
            "calibration": None,
        }
        return cell | changes

    def add(self, cell: dict[str, Any] | None = None, **fields: Any) -> str:
        """Add a receipt and its route; returns the receipt's digest."""
        from flashrt_runtime.strict_json import canonical_digest, sha256

        cell = cell or self.cell()
        state, band = fields.get("state", "certified_fast"), fields.get("band", "pass")
        receipt = {
            "cell": cell,
            "cell_digest": canonical_digest(cell, "cell"),
            "verdict": {"state": state, "band": band, "reasons": fields.get("reasons", [])},
            "supersedes": fields.get("supersedes"),
            "revokes": fields.get("revokes", []),
            "salt": len(self.receipts),
        }
        receipt["digest"] = sha256(repr(sorted(receipt.items())).encode())
        self.receipts.append(receipt)
        self.routes.append(
            {
                "cell": cell,
                "cell_digest": receipt["cell_digest"],
                "receipt": receipt["digest"],
                "state": state,
                "band": band,
                "headline": {"median": 1.5, "low": 1.4, "high": 1.6},
                "rank": fields.get("rank", len(self.routes)),
                "binding_manifest": {},
                "seams": fields.get("seams", self.seams()),
                "calibration": None,
            }
        )
        return str(receipt["digest"])

    def seams(self) -> list[dict[str, Any]]:
        """The feed-forward of the only layer."""
        path = "model.layers.0.mlp"
        slots = {slot: f"{path}.{slot}_proj.weight" for slot in ("gate", "up", "down")}
        seam = Seam(path, "decoder_ffn@1", {"self": path}, {}, {"D": 32, "F": 48}, slots)
        impl = {"structure": "decoder_ffn@1", "backend": "fake", "form": "decode"}
        return [{"seam": seam.record(), "impl": impl, "scales": {}, "rows": [1, 1]}]

    def write(self, sign: bool = True, **changes: Any) -> Any:
        """Write the folder; ``changes`` replace fields of the manifest. Returns its path."""
        import json

        from flashrt_runtime.strict_json import sha256

        files = []
        for receipt in self.receipts:
            path = self.root / "receipts" / f"{receipt['digest'][7:]}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            data = json.dumps(receipt, sort_keys=True).encode()
            path.write_bytes(data)
            relative = f"receipts/{path.name}"
            files.append({"path": relative, "sha256": sha256(data), "bytes": len(data)})
        body = {
            "schema": "flashrt.release/1",
            "name": "tiny",
            "created_at": "2026-01-01T00:00:00Z",
            "files": files,
            "routes": self.routes,
            "revokes": self.revokes,
        } | changes
        self.root.mkdir(parents=True, exist_ok=True)
        data = json.dumps(body, sort_keys=True).encode()
        (self.root / "release.json").write_bytes(data)
        if sign:
            self.sign(data)
        return self.root

    def sign(self, data: bytes, private: Any = None, keyid: str | None = None) -> None:
        """Write the envelope over ``data``."""
        import base64
        import hashlib
        import json

        from flashrt_runtime.trust import PAYLOAD_TYPE, pae

        private = private or self.private
        public = private.public_key().public_bytes_raw()
        signature = private.sign(pae(PAYLOAD_TYPE, data))
        entry = {
            "keyid": keyid or hashlib.sha256(public).hexdigest(),
            "sig": base64.b64encode(signature).decode(),
        }
        envelope = {
            "payloadType": PAYLOAD_TYPE,
            "payload": base64.b64encode(data).decode(),
            "signatures": [entry],
        }
        (self.root / "release.dsse.json").write_text(json.dumps(envelope))


@pytest.fixture
def maker(tmp_path: Any, llama: nn.Module) -> Maker:
    """A release maker over the tiny Llama."""
    return Maker(tmp_path / "release", llama)
