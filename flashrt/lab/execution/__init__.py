"""Specs, designs and executions: what is asked, what is recorded, and what can be checked of it.

A record holds everything that was consumed and everything that happened, sealed by a digest of its
content. Nothing in it is drawn or measured, so the same setup under the same binding (code,
interpreter, commit, backend, model) gives the same digest.
"""

from flashrt.lab.execution.binding import Binding
from flashrt.lab.execution.compare import Answer, Comparison, Parting, compare
from flashrt.lab.execution.control import Control, control, controls, read_setting
from flashrt.lab.execution.design import (
    DesignFile,
    design_of,
    find_design,
    list_designs,
    problems_of,
    read_design,
)
from flashrt.lab.execution.difference import Difference
from flashrt.lab.execution.evidence import wrong_with
from flashrt.lab.execution.explain import Chain, Segment, explain
from flashrt.lab.execution.file import StoredExecution, read_execution
from flashrt.lab.execution.reexecute import Reexecution, Verdict, reexecute
from flashrt.lab.execution.run import LabModel, Model, execute, load_model
from flashrt.lab.execution.setup import Setup
from flashrt.lab.execution.spec import assign, compose, differing, resolve
from flashrt.lab.execution.store import ExecutionStore

__all__ = [
    "Answer",
    "Binding",
    "Chain",
    "Comparison",
    "Control",
    "DesignFile",
    "Difference",
    "ExecutionStore",
    "LabModel",
    "Model",
    "Parting",
    "Reexecution",
    "Segment",
    "Setup",
    "StoredExecution",
    "Verdict",
    "assign",
    "compare",
    "compose",
    "control",
    "controls",
    "design_of",
    "differing",
    "execute",
    "explain",
    "find_design",
    "list_designs",
    "load_model",
    "problems_of",
    "read_design",
    "read_execution",
    "read_setting",
    "reexecute",
    "resolve",
    "wrong_with",
]
