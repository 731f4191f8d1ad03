"""Why a request is refused before it is queued: an error that names subject and rule, or none."""

from __future__ import annotations

from dataclasses import dataclass

from flashrt.lab.engine.executor import Executor
from flashrt.lab.engine.invocation import Invocation
from flashrt.lab.records import ApiError, SystemCeilings


@dataclass(frozen=True)
class Limits:
    """What the system and the model can ever serve. ``device_bytes`` is the device's KV budget."""

    ceilings: SystemCeilings
    executor: Executor
    device_bytes: int

    def positions(self, invocation: Invocation) -> int:
        """Positions that a request can come to need: the last selection is never run."""
        return min(invocation.prompt + invocation.budget - 1, self.executor.context)

    def refusal(self, invocation: Invocation, accepted: int) -> ApiError | None:
        """The first rule that the request breaks, ``accepted`` requests having come before it."""
        ceilings, prompt, budget = self.ceilings, invocation.prompt, invocation.budget
        context = self.executor.context
        needed = self.positions(invocation) * self.executor.position_bytes
        found: tuple[str, str, str] | None = None
        if ceilings.max_requests is not None and accepted >= ceilings.max_requests:
            found = (
                "SystemCeilings.max_requests",
                "an execution accepts no more requests than its ceiling",
                f"{accepted} were accepted before it",
            )
        elif ceilings.max_output_tokens is not None and budget > ceilings.max_output_tokens:
            found = (
                "GenerationPolicy.max_output_tokens",
                "a request's budget is within the system's ceiling",
                f"{budget} is above {ceilings.max_output_tokens}",
            )
        elif not prompt >= 1:
            found = ("InferenceRequest.text", "a prompt has at least one token", "it has none")
        elif prompt > context:
            found = (
                "InferenceRequest.text",
                "a prompt fits into the model's context",
                f"{prompt} tokens are more than {context} positions",
            )
        elif needed > self.device_bytes:
            found = (
                "KVCacheConfig.device_kv_bytes",
                "a request's whole reservation fits into the device's budget",
                f"{needed} bytes are more than {self.device_bytes}",
            )
        return None if found is None else ApiError(*found, request_id=invocation.request_id)
