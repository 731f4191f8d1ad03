"""Executors: a step from token IDs and a KV state to logits and a new state.

Both have a name that is part of every state they make: a state is continued only by the executor,
weights and tokenizer that computed it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from flashrt.lab.model.artifact import LoadedArtifact
from flashrt.lab.model.cost import Span, nodes
from flashrt.lab.model.weights import PRECISION
from flashrt.lab.records import KVState, Node
from flashrt_runtime.reason import Reason, Refusal

_STEPS_COUNTED = 4096  # different (past, new) whose nodes are kept, and shared by their steps

if TYPE_CHECKING:
    import torch

    from flashrt.lab.model.rows import Observe

    Cache = tuple[list[torch.Tensor], list[torch.Tensor]]


@dataclass(frozen=True)
class Step:
    """``logits`` are the float32 scores of the last position, as Python numbers, one a token."""

    logits: tuple[float, ...]
    state: KVState
    nodes: tuple[Node, ...]


class Executor(ABC):
    """Runs one artifact. Holds tensors of its own; states and steps hold none.

    Steps run on ``threads`` threads (``None``: on as many as torch has at the time). One is the
    default, since work this small only waits for a second one.
    """

    name: ClassVar[str]
    serial: ClassVar[bool]

    def __init__(self, artifact: LoadedArtifact, threads: int | None = 1) -> None:
        self._threads = threads
        identity = artifact.identity
        self.architecture = artifact.architecture
        self.checkpoint_sha256 = identity.checkpoint_digest
        self.tokenizer_sha256 = artifact.tokenizer.manifest_sha256
        self._counted = lru_cache(maxsize=_STEPS_COUNTED)(self._count)

    def run(
        self,
        token_ids: Sequence[int],
        state: KVState | None = None,
        observe: Observe | None = None,
    ) -> Step:
        """Compute new positions after ``state`` (after nothing where it is ``None``).

        ``token_ids`` are the new ones only, at least one: a state alone has no logits. ``observe``
        is called with each node's name, the position and its output. Raises :class:`Refusal`:
        SHAPE for no token or more positions than the context, CONFLICT for an ID outside the
        vocabulary or a state of another tokenizer, executor or precision, CHECKPOINT for a state
        of other weights, DIGEST for one whose payload is not of its positions.
        """
        import torch

        from flashrt.lab.model.threads import at_most

        ids = tuple(token_ids)
        self._admit(ids, state)
        before = state.token_ids if state else ()
        with at_most(self._threads), torch.inference_mode():
            logits, cache = self._run(ids, self._cache(state, len(ids)), observe)
            after = KVState(
                checkpoint_sha256=self.checkpoint_sha256,
                tokenizer_sha256=self.tokenizer_sha256,
                token_ids=before + ids,
                keys=tuple(layer.numpy().tobytes() for layer in cache[0]),
                values=tuple(layer.numpy().tobytes() for layer in cache[1]),
                precision=PRECISION,
                executor=self.name,
            )
        return Step(tuple(logits.tolist()), after, self.cost(len(before), len(ids)))

    def cost(self, past: int, new: int) -> tuple[Node, ...]:
        """The nodes of a step of ``new`` positions after ``past``, without running it."""
        return self._counted(past, new)

    def _count(self, past: int, new: int) -> tuple[Node, ...]:
        return nodes(self.architecture, Span(past, new, self.serial))

    def state_name(self, token_ids: Sequence[int]) -> str:
        """The name of the state that this executor makes of a prefix."""
        artifact = (self.checkpoint_sha256, self.tokenizer_sha256)
        return KVState.name_of(artifact, tuple(token_ids), PRECISION, self.name)

    def state_bytes(self, positions: int) -> int:
        """Bytes of a state of so many positions."""
        return 2 * self.architecture.layers * positions * self.architecture.width * 4

    @abstractmethod
    def _run(
        self, ids: tuple[int, ...], cache: Cache, observe: Observe | None
    ) -> tuple[torch.Tensor, Cache]:
        """Logits ``[vocabulary]`` of the last position, and the cache of all positions.

        ``cache`` has the past in its first rows and room for the new ones; it may be written.
        """

    def _cache(self, state: KVState | None, new: int) -> Cache:
        """Keys and values of each layer, ``[positions, width]``, copied from the state."""
        import numpy
        import torch

        past = state.positions if state else 0
        width = self.architecture.width

        def layers(payload: tuple[bytes, ...]) -> list[torch.Tensor]:
            made = []
            for data in payload:
                rows = torch.empty(past + new, width)
                rows.numpy()[:past] = numpy.frombuffer(data, numpy.float32).reshape(past, width)
                made.append(rows)
            return made

        nothing = (b"",) * self.architecture.layers
        return layers(state.keys if state else nothing), layers(state.values if state else nothing)

    def _admit(self, ids: tuple[int, ...], state: KVState | None) -> None:
        shape = self.architecture
        positions = len(ids) + (state.positions if state else 0)
        if not ids:
            raise Refusal(Reason.SHAPE, "no token to compute: a state alone has no logits")
        if positions > shape.context:
            what = f"{positions} positions in a context of {shape.context}"
            raise Refusal(Reason.SHAPE, what, subject="step")
        for token_id in ids:
            if not 0 <= token_id < shape.vocabulary:
                what = f"the vocabulary has the IDs 0 to {shape.vocabulary - 1}"
                raise Refusal(Reason.CONFLICT, what, subject=f"token {token_id}")
        if state is not None:
            self._admit_state(state)

    def _admit_state(self, state: KVState) -> None:
        if state.checkpoint_sha256 != self.checkpoint_sha256:
            what = f"its weights are {state.checkpoint_sha256}, not {self.checkpoint_sha256}"
            raise Refusal(Reason.CHECKPOINT, what, subject=state.name)
        for field, own in (
            ("tokenizer_sha256", self.tokenizer_sha256),
            ("precision", PRECISION),
            ("executor", self.name),
        ):
            if getattr(state, field) != own:
                what = f"its {field} is {getattr(state, field)}, not {own}"
                raise Refusal(Reason.CONFLICT, what, subject=state.name)
        size = state.positions * self.architecture.width * 4
        payload = (*state.keys, *state.values)
        layers = self.architecture.layers
        if {len(state.keys), len(state.values)} != {layers} or {*map(len, payload)} != {size}:
            what = f"its keys and values are not of {state.positions} positions in {layers} layers"
            raise Refusal(Reason.DIGEST, what, subject=state.name)


class ExactExecutor(Executor):
    """Row-serial: equal bits for keys, values and logits however a sequence is split."""

    name = "row-serial-1"
    serial = True

    def __init__(self, artifact: LoadedArtifact, threads: int | None = 1) -> None:
        from flashrt.lab.model.rows import Rows

        super().__init__(artifact, threads)
        self._rows = Rows(self.architecture, artifact.weights.state_dict(self.architecture))

    def _run(
        self, ids: tuple[int, ...], cache: Cache, observe: Observe | None
    ) -> tuple[torch.Tensor, Cache]:
        from flashrt.lab.model.rows import ignore

        see = observe or ignore
        at = cache[0][0].shape[0] - len(ids)
        hidden = self._rows.position(ids[0], at, cache, see)
        for token_id in ids[1:]:
            at += 1
            hidden = self._rows.position(token_id, at, cache, see)
        return self._rows.logits(hidden, at, see)[0], cache


class PlainExecutor(Executor):
    """Ordinary batched torch: the negative control. Its bits depend on how a sequence is split."""

    name = "batched-1"
    serial = False

    def __init__(self, artifact: LoadedArtifact, threads: int | None = 1) -> None:
        super().__init__(artifact, threads)
        self._weights = artifact.weights.stacked(self.architecture)

    def _run(
        self, ids: tuple[int, ...], cache: Cache, observe: Observe | None
    ) -> tuple[torch.Tensor, Cache]:
        import torch
        import torch.nn.functional as F

        from flashrt.lab.model.batched import forward

        if observe is not None:
            raise Refusal(Reason.CONFLICT, "the batched control has no nodes to observe")
        past = cache[0][0].shape[0] - len(ids)
        known = (
            [rows[:past].unsqueeze(0) for rows in cache[0]],
            [rows[:past].unsqueeze(0) for rows in cache[1]],
        )
        hidden, made = forward(
            self.architecture, self._weights, torch.tensor([ids]), known if past else None
        )
        logits = F.linear(hidden[0, -1:], self._weights["output.weight"])[0]
        return logits, ([rows[0] for rows in made[0]], [rows[0] for rows in made[1]])
