"""q, k and v as one product in the host's own dtype: one operator call, three bodies."""

from __future__ import annotations

import torch
from flashrt_runtime.impls.shared import request as asked
from flashrt_runtime.impls.shared.body import overload, size, smoke

from flashrt_runtime.contract import BindRequest, BoundSeam, Reason, Refusal

ROLES = ("q", "k", "v")


class Holder:
    """What the first sibling leaves for the other two, between one call and the next.

    It belongs to one seam. Each part is given once, in the seam's order and only to a caller that
    brings the very tensor it was computed from; the last part taken leaves the holder empty.
    """

    def __init__(self, seam: str) -> None:
        self.seam = seam
        self.source: torch.Tensor | None = None
        self.parts: list[tuple[str, torch.Tensor]] = []

    def leave(self, source: torch.Tensor, parts: list[tuple[str, torch.Tensor]]) -> None:
        """Keep the parts computed from ``source``; what an interrupted call left is dropped."""
        self.source = source
        self.parts = parts

    def take(self, role: str, x: torch.Tensor) -> torch.Tensor:
        """The role's part. Raises :class:`Refusal` (SHARED_INPUT) out of order or for another x."""
        if not self.parts or self.parts[0][0] != role or self.source is not x:
            waiting = self.parts[0][0] if self.parts else "nothing"
            same = "the same" if self.source is x else "another"
            self.drop()
            raise Refusal(
                Reason.SHARED_INPUT,
                f"{role} was called with {same} tensor while {waiting} was waiting",
                subject=self.seam,
                do="the siblings must be called in the observed order with one tensor",
            )
        part = self.parts[0][1]
        self.parts = self.parts[1:]
        if not self.parts:
            self.drop()
        return part

    def drop(self) -> None:
        """Forget everything."""
        self.source = None
        self.parts = []


class FirstBody(torch.nn.Module):
    """Stands for the sibling called first: computes the packed product, returns its own part."""

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        widths: tuple[tuple[str, int], ...],
        *,
        operator: str,
        holder: Holder,
    ) -> None:
        super().__init__()
        self.operator = overload(operator)
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)
        self.roles = tuple(role for role, _ in widths)
        self.widths = [width for _, width in widths]
        self.holder = holder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., D]; returns this sibling's [..., N], of the same dtype."""
        y = self.operator(x, self.weight, self.bias, self.holder.seam)
        parts = torch.split(y, self.widths, dim=-1)
        self.holder.leave(x, list(zip(self.roles[1:], parts[1:], strict=True)))
        return parts[0]


class NextBody(torch.nn.Module):
    """Stands for a later sibling: returns what the first one left for it."""

    def __init__(self, role: str, holder: Holder) -> None:
        super().__init__()
        self.role = role
        self.holder = holder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` is the tensor that the first sibling was given; returns [..., N]."""
        return self.holder.take(self.role, x)


def siblings_seam(request: BindRequest, operator: str) -> BoundSeam:
    """Pack q, k and v in the order of ``seam.members``, in their dtype. Raises :class:`Refusal`."""
    order = tuple(request.seam.members)
    if sorted(order) != sorted(ROLES):
        raise Refusal(
            Reason.BINDING,
            f"the members are {list(order)}; q, k and v were expected",
            subject=request.seam.id,
        )
    matrices = {role: asked.weight(request, role) for role in order}
    widths = {matrix.shape[1] for matrix in matrices.values()}
    if len(widths) != 1:
        raise Refusal(
            Reason.LAYOUT,
            f"q, k and v read different widths: {sorted(widths)}",
            subject=request.seam.id,
        )
    biases = {r: asked.bias(request, f"{r}_bias", m.shape[0]) for r, m in matrices.items()}
    present = any(b is not None for b in biases.values())
    asked.stated_bias(request, present)
    bias = None
    if present:
        filled = [
            b if b is not None else torch.zeros(matrices[role].shape[0])
            for role, b in biases.items()
        ]
        bias = torch.cat(filled)
    dtype = request.weights[order[0]].dtype  # the checks above widened it, which loses nothing
    weight = torch.cat(list(matrices.values())).to(dtype)
    bias = None if bias is None else bias.to(dtype)
    holder = Holder(request.seam.id)
    parts = tuple((role, matrix.shape[0]) for role, matrix in matrices.items())
    first = FirstBody(weight, bias, parts, operator=operator, holder=holder)
    smoke(first, widths.pop(), parts[0][1], request.seam.id, like=weight)
    holder.drop()
    bodies: dict[str, torch.nn.Module] = {order[0]: first}
    bodies |= {role: NextBody(role, holder) for role in order[1:]}
    held = [weight] if bias is None else [weight, bias]
    return BoundSeam(bodies, operator, size(held), {"order": ",".join(order)})
