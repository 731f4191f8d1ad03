"""What the fields of the shared records mean in the lab's JSON.

Their classes are :mod:`flashrt.record`'s, and calibration and qualification have fields in them
that the lab never writes: those are not here.
"""

from __future__ import annotations

from flashrt.lab.records.base import Says
from flashrt.record import (
    ExecutionBackend,
    ExperimentExecution,
    ModelArtifact,
    Provenance,
    VirtualClock,
    Workload,
)

SHARED: dict[type, dict[str, Says]] = {
    ModelArtifact: {
        "name": Says("The artifact's name."),
        "family": Says("The family of its architecture."),
        "checkpoint_digest": Says("Digest over every tensor's name, dtype, shape and bytes."),
        "architecture_digest": Says("Digest of the architecture."),
        "dtype": Says("What the weights are loaded in."),
        "tokenizer_digest": Says("Digest of the tokenizer; none without one."),
        "parameters": Says("Numbers in the weights.", "numbers", least=0),
        "provenance": Says("How the artifact came to be."),
    },
    Workload: {"requests": Says("Arrivals; the order breaks ties of equal times.")},
    ExecutionBackend: {
        "compute_device": Says("What computed."),
        "device_state_storage": Says("What held the states of the device."),
        "host_state_storage": Says("What held the states of the host."),
        "library": Says("The library and its version."),
        "precision": Says("What the computation was done in."),
    },
    ExperimentExecution: {
        "id": Says("The execution's name, by its content."),
        "tool_version": Says("Version of flashrt."),
        "command": Says("What was called, without local paths."),
        "backend": Says("What computed and stored."),
        "processes": Says("Fresh processes that measured; none does here.", "processes", least=0),
        "virtual": Says("The span of virtual time."),
        "provenance": Says("The code that ran."),
    },
    VirtualClock: {
        "started_us": Says("When the first thing happened.", "virtual us", least=0),
        "ended_us": Says("When the last thing happened.", "virtual us", least=0),
    },
    Provenance: {
        "source_digest": Says("Digest over the source files."),
        "python": Says("Version of the interpreter."),
        "git": Says("Commit of the checkout; none outside one."),
    },
}
# Fields of theirs that are left out where there is nothing to say.
OMITTED = ("architecture_digest",)
