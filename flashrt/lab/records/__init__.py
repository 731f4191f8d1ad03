"""The lab's records: frozen, with exactly the names that ``catalog/ontology.yaml`` declares.

Four are shared with calibration and qualification and come from :mod:`flashrt.record`.
"""

from flashrt.lab.records.base import Checked, Record, Says
from flashrt.lab.records.boundary import (
    CollectiveCommunication,
    ComputeKernel,
    DeviceRuntime,
    InferenceEngine,
    RequestEndpoint,
    ResourcePool,
    StateManager,
)
from flashrt.lab.records.event import CacheEvent, EventKind
from flashrt.lab.records.execution import DesignReference, ExecutionRecord, LedgerRow
from flashrt.lab.records.experiment import (
    AbstractionContract,
    DesignArm,
    ExecutionSpec,
    ExperimentDesign,
    ExperimentSpec,
    MissingControl,
)
from flashrt.lab.records.inspection import InspectionState
from flashrt.lab.records.model import (
    OPERATIONS,
    AttentionOperation,
    EmbeddingOperation,
    FeedForwardOperation,
    ModelArchitecture,
    ModelWeights,
    NormalizationOperation,
    OperationName,
    OutputProjectionOperation,
    PositionEncodingOperation,
    ResidualAdditionOperation,
    StageTemplate,
    WeightTensor,
)
from flashrt.lab.records.observation import (
    ExperimentObservation,
    LocalMeasurement,
    TensorRecord,
)
from flashrt.lab.records.request import GenerationPolicy, InferenceRequest, RequestArrival
from flashrt.lab.records.response import ApiError, RunOutcome, StopReason
from flashrt.lab.records.scenario import (
    CancelAction,
    ConsumeAction,
    CustomerInteraction,
    Placement,
    ResourceGraph,
    ResourceLink,
    ResourceNode,
    SubmitAction,
)
from flashrt.lab.records.state import KVState
from flashrt.lab.records.system import (
    ComputeServiceConfig,
    KVCacheConfig,
    KVResidencySystemConfig,
    ModelExecutionConfig,
    RequestSchedulingConfig,
    StateTransferConfig,
    SystemCeilings,
)
from flashrt.lab.records.tokenizer import Encoding, Token, TokenKind
from flashrt.lab.records.work import CacheComputation, Node, TokenSelection
from flashrt.record import (
    ExecutionBackend,
    ExperimentExecution,
    ModelArtifact,
    Provenance,
    VirtualClock,
    WallClock,
    Workload,
)

__all__ = [
    "OPERATIONS",
    "AbstractionContract",
    "ApiError",
    "AttentionOperation",
    "CacheComputation",
    "CacheEvent",
    "CancelAction",
    "Checked",
    "CollectiveCommunication",
    "ComputeKernel",
    "ComputeServiceConfig",
    "ConsumeAction",
    "CustomerInteraction",
    "DesignArm",
    "DesignReference",
    "DeviceRuntime",
    "EmbeddingOperation",
    "Encoding",
    "EventKind",
    "ExecutionBackend",
    "ExecutionRecord",
    "ExecutionSpec",
    "ExperimentDesign",
    "ExperimentExecution",
    "ExperimentObservation",
    "ExperimentSpec",
    "FeedForwardOperation",
    "GenerationPolicy",
    "InferenceEngine",
    "InferenceRequest",
    "InspectionState",
    "KVCacheConfig",
    "KVResidencySystemConfig",
    "KVState",
    "LedgerRow",
    "LocalMeasurement",
    "MissingControl",
    "ModelArchitecture",
    "ModelArtifact",
    "ModelExecutionConfig",
    "ModelWeights",
    "Node",
    "NormalizationOperation",
    "OperationName",
    "OutputProjectionOperation",
    "Placement",
    "PositionEncodingOperation",
    "Provenance",
    "Record",
    "RequestArrival",
    "RequestEndpoint",
    "RequestSchedulingConfig",
    "ResidualAdditionOperation",
    "ResourceGraph",
    "ResourceLink",
    "ResourceNode",
    "ResourcePool",
    "RunOutcome",
    "Says",
    "StageTemplate",
    "StateManager",
    "StateTransferConfig",
    "StopReason",
    "SubmitAction",
    "SystemCeilings",
    "TensorRecord",
    "Token",
    "TokenKind",
    "TokenSelection",
    "VirtualClock",
    "WallClock",
    "WeightTensor",
    "Workload",
]
