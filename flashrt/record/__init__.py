"""Records that calibration, qualification and the lab share: one class for each.

Each has ``record()``, its JSON form by schemas/records.schema.json, and ``from_record``, the
inverse. A measured arm and a simulated run are both executions; what differs is the clock.
"""

from flashrt.record.artifact import ModelArtifact
from flashrt.record.backend import ExecutionBackend
from flashrt.record.clock import VirtualClock, WallClock
from flashrt.record.exact import exact, exact_text
from flashrt.record.execution import ExperimentExecution, Provenance
from flashrt.record.frame import FrameRecord
from flashrt.record.workload import Drawing, Workload, judged_on

__all__ = [
    "Drawing",
    "ExecutionBackend",
    "ExperimentExecution",
    "FrameRecord",
    "ModelArtifact",
    "Provenance",
    "VirtualClock",
    "WallClock",
    "Workload",
    "exact",
    "exact_text",
    "judged_on",
]
