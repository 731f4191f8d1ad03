"""The module that stands where a packed layer stood. There is no host behind it."""

from __future__ import annotations

from typing import Any

import torch

from flashrt_runtime.reason import Reason, Refusal

AGAIN = "load the checkpoint again"


class AdoptedLinear(torch.nn.Module):
    """``forward(x [..., K]) -> [..., N]`` in the dtype of ``x``, by one operator call.

    As with torch's Linear, ``input`` may be given by name, and ``weight`` and ``bias`` can be read.
    ``weight`` is unpacked anew at each reading, in the ``dtype`` that the library unpacks to, and
    is not kept; a product that a host makes of it itself rounds no activations, as in the library.

    Its state dict shows the packed tensors, so that an identity covers them. Nothing can be loaded
    into it, nor cast or moved: a cast would round the packed scales.
    """

    def __init__(self, body: Any, path: str, shape: tuple[int, int], dtype: torch.dtype) -> None:
        super().__init__()
        self.path = path
        self.out_features, self.in_features = shape
        self.dtype = dtype
        self.body = body
        self.eval()  # the body as well: nothing here has a training mode

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """``input`` [..., K] float32, float16 or bfloat16; the product is float32."""
        y: torch.Tensor = self.body(input.to(torch.float32))
        return y.to(input.dtype)

    @property
    def weight(self) -> torch.Tensor:
        """The matrix [N, K]. It is made for this reading: writing into it changes nothing here."""
        matrix: torch.Tensor = self.body.dense()
        return matrix.to(self.dtype)

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias [N], or ``None``."""
        bias: torch.Tensor | None = self.body.bias
        return None if bias is None else bias.to(self.dtype)

    def extra_repr(self) -> str:
        """``in_features=…, out_features=…``"""
        return f"in_features={self.in_features}, out_features={self.out_features}"

    def train(self, mode: bool = True) -> AdoptedLinear:
        """Refused for ``True`` (TRAINING): a rounded product has no gradient."""
        if mode:
            what = "packed weights cannot train"
            raise Refusal(Reason.TRAINING, what, subject=self.path, do="train the dense checkpoint")
        super().train(False)
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


def refuse_taken(model: torch.nn.Module) -> None:
    """Refuse (CONFLICT) a model that was adopted, or that implementations are attached to."""
    from flashrt_runtime.roots import MARK
    from flashrt_runtime.seat import Seat

    for path, module in model.named_modules():
        if isinstance(module, AdoptedLinear):
            what, do = "the model is adopted already", f"use it as it is, or {AGAIN}"
        elif isinstance(module, Seat) or MARK in module.__dict__:
            what, do = "implementations are attached to the model", "detach() the handle first"
        else:
            continue
        raise Refusal(Reason.CONFLICT, what, subject=path or type(model).__name__, do=do)


def refuse_saving(*_: Any, **__: Any) -> None:
    """Stands in for ``save_pretrained`` of an adopted model. Raises :class:`Refusal` (FORM)."""
    what = "an adopted model holds an impl's form, which is no checkpoint"
    raise Refusal(Reason.FORM, what, do="keep the folder that it was loaded from")
