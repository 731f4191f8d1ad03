"""The module that stands where a packed layer stood. There is no host behind it."""

from __future__ import annotations

from typing import Any

import torch

from flashrt_runtime.reason import Reason, Refusal

AGAIN = "load the checkpoint again"


class AdoptedLinear(torch.nn.Module):
    """``forward(x [..., K]) -> [..., N]`` in the dtype of ``x``, by one operator call.

    Its state dict shows the packed tensors, so that an identity covers them. Nothing can be loaded
    into it, nor cast or moved: a cast would round the packed scales.
    """

    def __init__(self, body: Any, path: str, in_features: int, out_features: int) -> None:
        super().__init__()
        self.path = path
        self.in_features = in_features
        self.out_features = out_features
        self.body = body
        self.training = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., K] float32, float16 or bfloat16; the product is float32."""
        y: torch.Tensor = self.body(x.to(torch.float32))
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        """``in_features=…, out_features=…``"""
        return f"in_features={self.in_features}, out_features={self.out_features}"

    def train(self, mode: bool = True) -> AdoptedLinear:
        """Refused for ``True`` (TRAINING): a rounded product has no gradient."""
        if mode:
            what = "packed weights cannot train"
            raise Refusal(Reason.TRAINING, what, subject=self.path, do="train the dense checkpoint")
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        what = "an adopted layer cannot change device or dtype"
        do = f"{AGAIN} in the dtype that is wanted, and adopt it then"
        raise Refusal(Reason.MIGRATION, what, subject=self.path, do=do)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, tensor in self.body.named_buffers():
            destination[f"{prefix}{name}"] = tensor

    def _load_from_state_dict(self, *args: Any, **named: Any) -> None:
        what = "weights cannot be loaded into an adopted layer"
        raise Refusal(Reason.LOAD_STATE, what, subject=self.path, do=f"{AGAIN} and adopt it")


def refuse_saving(*_: Any, **__: Any) -> None:
    """Stands in for ``save_pretrained`` of an adopted model. Raises :class:`Refusal` (FORM)."""
    what = "an adopted model holds an impl's form, which is no checkpoint"
    raise Refusal(Reason.FORM, what, do="keep the folder that it was loaded from")
