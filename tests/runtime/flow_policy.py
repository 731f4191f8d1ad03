"""A flow-matching policy whose sampler is a tensor-controlled while, over transformers' PI0."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class FlowPolicy(nn.Module):
    """PI0's weights under the loop that flow-matching policies are published with: the time is a
    tensor, and the loop ends when it has passed zero."""

    def __init__(self, pi0: Any, steps: int = 3) -> None:
        super().__init__()
        self.pi0 = pi0
        self.steps = steps

    def prefix(self, input_ids: Any, pixel_values: Any, attention_mask: Any) -> Any:
        """The keys and values of the observation."""
        cameras = torch.ones(pixel_values.shape[:2], dtype=torch.bool, device=pixel_values.device)
        embedded = self.pi0.model.embed_prefix(input_ids, pixel_values, cameras)
        return self.pi0.model.vlm(
            inputs_embeds=embedded,
            attention_mask=attention_mask,
            position_ids=attention_mask.cumsum(-1) - 1,
            token_type_ids=torch.zeros_like(embedded)[:, :, 0],
            use_cache=True,
        ).cache

    def denoise_step(self, state: Any, x_t: Any, time: Any, cache: Any, mask: Any) -> Any:
        """The velocity at ``x_t``."""
        length = cache.get_seq_length()
        done = self.pi0(
            state=state, noise=x_t, timestep=time, attention_mask=mask, cache=cache
        ).logits
        cache.crop(length - cache.get_seq_length())
        return done

    def sample_actions(
        self,
        state: Any,
        input_ids: Any,
        pixel_values: Any,
        attention_mask: Any,
        noise: Any = None,
    ) -> Any:
        """An action chunk ``[B, chunk, action]`` from ``noise`` of that shape."""
        if noise is None:
            config = self.pi0.config
            noise = torch.randn(state.shape[0], config.chunk_size, config.max_action_dim)
        cache = self.prefix(input_ids, pixel_values, attention_mask)
        dt = torch.tensor(-1.0 / self.steps, dtype=torch.float32, device=state.device)
        x_t = noise
        time = torch.tensor(1.0, dtype=torch.float32, device=state.device)
        while time >= -dt / 2:
            expanded = time.expand(state.shape[0])
            v_t = self.denoise_step(state, x_t, expanded, cache, attention_mask)
            x_t = x_t + dt * v_t
            time += dt
        return x_t


def flow_policy(steps: int = 3) -> tuple[FlowPolicy, dict[str, Any]]:
    """The policy over the tiny PI0, and one observation with its noise."""
    from flashrt.host.tiny.pi0 import ACTION, CHUNK, STATE, build

    policy = FlowPolicy(build().model, steps).eval().requires_grad_(False)
    source = torch.Generator().manual_seed(5)
    given = {
        "state": torch.randn(1, STATE, generator=source),
        "input_ids": torch.tensor([[95, 95, 95, 95, 3, 5, 7]]),
        "pixel_values": torch.randn(1, 1, 3, 16, 16, generator=source),
        "attention_mask": torch.ones(1, 7, dtype=torch.int64),
        "noise": torch.randn(1, CHUNK, ACTION, generator=source),
    }
    return policy, given
