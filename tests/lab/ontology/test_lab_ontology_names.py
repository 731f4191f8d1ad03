"""The names that the seed of the lab declares, all of them and no others."""

from __future__ import annotations

import pytest

from flashrt.lab.execution.control import controls as execution_controls
from flashrt.lab.ontology import Owner, controls, load, packaged_code, resolve

ONTOLOGY = load()

CONCEPTS = {
    "Sequence state": "KVState",
    "State artifact": "KVState",
    "Inference system": "InferenceSystem",
    "Request": "InferenceRequest",
    "Workload": "Workload",
    "Response": "InferenceResponse",
    "Event": "ExperimentEvent",
    "Hardware backend": "ExecutionBackend",
    "Tokenizer": "Tokenizer",
    "Detokenizer": "Tokenizer",
    "Embedding": "Embedding",
    "Positional encoding": "PositionEncoding",
    "Normalization": "Normalization",
    "Attention": "Attention",
    "Residual addition": "ResidualAddition",
    "Feed forward": "FeedForward",
    "Output projection": "OutputProjection",
    "Work item": "ModelExecution",
    "Token selection": "Decoding",
    "Queue": "RequestScheduling",
    "Residency": "KVCache",
    "Link": "StateTransfer",
    "Resource": "ComputeService",
    "Client": "CustomerInteraction",
}
OWNERS = """
ModelArchitecture KVState ModelArtifact ModelWeights InferenceSystem GenerationPolicy
InferenceRequest Workload InferenceResponse RequestEndpoint RequestRouter InferenceEngine
StateManager ResourcePool ComputeKernel DeviceRuntime CollectiveCommunication ExperimentSpec
ExperimentExecution ExperimentEvent ExperimentObservation ExecutionSpec ExperimentDesign
InspectionState ApiError ExecutionBackend ResourceGraph Tokenizer Embedding PositionEncoding
Normalization Attention ResidualAddition FeedForward OutputProjection ModelExecution Decoding
RequestScheduling KVCache StateTransfer ComputeService CustomerInteraction
"""
FIELDS = """
KVState: token_ids keys values precision checkpoint_sha256 tokenizer_sha256
KVResidencySystemConfig: scheduling kv_cache transfer compute_service
InferenceRequest: text generation
RequestArrival: request_id arrival_us
Workload: requests
RunOutcome: published_tokens stop_reason complete
CacheEvent: event_id causes kind time_us
ExecutionBackend: compute_device device_state_storage host_state_storage library precision
Encoding: ids spans input_sha256 manifest_sha256 codec_version
Token: id piece kind
EmbeddingOperation: name
PositionEncodingOperation: name
NormalizationOperation: name
AttentionOperation: name
ResidualAdditionOperation: name
FeedForwardOperation: name
OutputProjectionOperation: name
CacheComputation: work_id input_ids nodes state_before state_after
TokenSelection: raw_logits selected_id probabilities
RequestSchedulingConfig: max_active_requests
KVCacheConfig: device_kv_bytes host_kv_bytes retention_policy
StateTransferConfig: link_bytes_per_us link_latency_us
ComputeServiceConfig: compute_flops_per_us memory_bytes_per_us
CustomerInteraction: actions
"""


def declared() -> list[str]:
    rows = (line.split(": ") for line in FIELDS.strip().splitlines())
    return [f"{record}.{name}" for record, names in rows for name in names.split()]


def test_there_are_the_24_concepts_with_their_owners() -> None:
    assert {concept.name: concept.owner for concept in ONTOLOGY.concepts} == CONCEPTS
    assert len(CONCEPTS) == 24


def test_there_are_the_42_owners() -> None:
    assert sorted(owner.name for owner in ONTOLOGY.owners) == sorted(OWNERS.split())
    assert len(OWNERS.split()) == 42


def test_there_are_the_59_declared_fields() -> None:
    assert sorted(ONTOLOGY.fields) == sorted(declared())
    assert len(declared()) == 59


@pytest.mark.parametrize("owner", ONTOLOGY.owners, ids=lambda owner: owner.name)
def test_each_owner_has_what_a_reader_asks_for(owner: Owner) -> None:
    assert len(owner.meaning) > 20
    assert len(owner.lifecycle.says) > 10
    assert owner.owns
    assert owner.excludes or owner.limits
    code = packaged_code()
    assert all(record in code.records for record, _ in owner.records)


def test_boundaries_are_the_logical_parts_whose_limits_hold() -> None:
    boundaries = {o.name for o in ONTOLOGY.owners if o.lifecycle.kind == "boundary"}
    parts = {"RequestEndpoint", "RequestRouter", "InferenceEngine", "StateManager"}
    parts |= {"ResourcePool", "ComputeKernel", "DeviceRuntime", "CollectiveCommunication"}
    assert boundaries <= parts
    left = [ONTOLOGY.owner(name) for name in parts - boundaries]
    assert all(owner and any(limit.implemented for limit in owner.limits) for owner in left)


def test_a_record_has_the_owner_that_claims_it() -> None:
    assert ONTOLOGY.owner_of("SystemCeilings") == "InferenceSystem"
    assert ONTOLOGY.owner_of("KVCacheConfig") == "KVCache"
    assert ONTOLOGY.owner_of("Nothing") is None
    assert ONTOLOGY.owner("Nobody") is None


def test_controls_are_the_settings_by_their_paths() -> None:
    paths = [control.path for control in controls()]
    assert "kv_cache.device_kv_bytes" in paths
    assert sorted(paths) == sorted(path for owner in ONTOLOGY.owners for path in owner.controls)
    found = resolve("transfer.link_latency_us")
    assert found is not None
    assert (found.record, found.field) == ("StateTransferConfig", "link_latency_us")
    assert resolve("kv_cache") is None
    assert resolve("kv_cache.pages") is None


def test_specs_use_the_same_controls_and_owners() -> None:
    subjects = {path: one.subject for path, one in execution_controls().items()}
    assert subjects == {c.path: ONTOLOGY.owner_of(c.record) for c in controls()}
