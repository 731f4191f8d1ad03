"""The engine: who runs when, where KV states are, and what everything costs in virtual time.

``Engine(system, executor, workload).run()`` gives an :class:`Execution`. Nothing here knows torch:
what computes is an :class:`Executor`, and :class:`MemoExecutor` computes each thing once.
"""

from flashrt.lab.engine.engine import Engine
from flashrt.lab.engine.execution import Execution
from flashrt.lab.engine.executor import Executor, State, Step
from flashrt.lab.engine.invariants import Broken, check_end, check_invariants
from flashrt.lab.engine.journal import Everything, Keeper, Tally
from flashrt.lab.engine.memo import MemoExecutor
from flashrt.lab.engine.model import ModelExecutor

__all__ = [
    "Broken",
    "Engine",
    "Everything",
    "Execution",
    "Executor",
    "Keeper",
    "MemoExecutor",
    "ModelExecutor",
    "State",
    "Step",
    "Tally",
    "check_end",
    "check_invariants",
]
