"""The lab's model: a tiny GPT as an identified artifact, its executors, and what a step costs.

``ExactExecutor`` gives equal bits however a sequence is split, so that a reused state can be told
right from wrong. Importing this room does not import torch.
"""

from flashrt.lab.model.artifact import LoadedArtifact, packaged
from flashrt.lab.model.cost import Span, nodes
from flashrt.lab.model.executor import ExactExecutor, Executor, PlainExecutor, Step
from flashrt.lab.model.layout import architecture, stages, tensors
from flashrt.lab.model.preparation import Preparation
from flashrt.lab.model.preparing import prepare
from flashrt.lab.model.weights import PRECISION, WeightsFile

__all__ = [
    "PRECISION",
    "ExactExecutor",
    "Executor",
    "LoadedArtifact",
    "PlainExecutor",
    "Preparation",
    "Span",
    "Step",
    "WeightsFile",
    "architecture",
    "nodes",
    "packaged",
    "prepare",
    "stages",
    "tensors",
]
