"""Parity of two outputs of one frame, as a window record. Computed in float64, in pieces.

Imports torch inside functions: the judge, which a verifier runs, needs none of this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    import torch

NEAR_TIE = 0.01
ROWS_AT_ONCE = 64


def _check(frame: str, host: torch.Tensor, treated: torch.Tensor) -> None:
    if host.shape != treated.shape:
        raise Refusal(
            Reason.SHAPE,
            f"the host gives {list(host.shape)}, the treated arm {list(treated.shape)}",
            subject=frame,
        )
    if host.dtype != treated.dtype:
        raise Refusal(
            Reason.DTYPE,
            f"the host gives {host.dtype}, the treated arm {treated.dtype}",
            subject=frame,
        )
    if host.numel() == 0:
        raise Refusal(Reason.EMPTY_CORPUS, "the output is empty", subject=frame)


def _digest(tensor: torch.Tensor) -> str:
    """Over shape and bytes: whether two outputs are the same, whatever they are."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    data: Any = flat.numpy()
    found = hashlib.sha256(str(tuple(tensor.shape)).encode())
    found.update(memoryview(data))
    return "sha256:" + found.hexdigest()


def _nonfinite(host: torch.Tensor, treated: torch.Tensor) -> int:
    """Values that are NaN or infinite, in either arm."""
    return int((~host.isfinite()).sum() + (~treated.isfinite()).sum())


def _shape_metrics(host: torch.Tensor, treated: torch.Tensor) -> dict[str, Any]:
    """Cosine, norm ratio and largest difference over float64 rows ``[rows, width]``.

    A row that is zero in both arms agrees (1, 1); one that is zero in one arm only does not (0, 0).
    """
    import torch

    h, t = host.norm(dim=-1), treated.norm(dim=-1)
    both_zero = (h == 0) & (t == 0)
    undefined = (h == 0) | (t == 0)
    safe_h, safe_t = torch.where(h == 0, 1.0, h), torch.where(t == 0, 1.0, t)
    cosine = ((host / safe_h[:, None]) * (treated / safe_t[:, None])).sum(-1)
    cosine = torch.where(undefined, both_zero.double(), cosine.clamp(-1.0, 1.0))
    ratio = torch.where(undefined, both_zero.double(), t / safe_h)
    return {
        "cosine": float(cosine.min()),
        "max_abs": float((host - treated).abs().max()),
        "norm_ratio": [float(ratio.min()), float(ratio.max())],
        "squares": (float((h**2).sum()), float((t**2).sum())),
    }


def _scale(host: float, treated: float) -> float:
    """Ratio of pooled norms from sums of squares; 1 for two zeros, 0 where undefined."""
    if host == 0:
        return 1.0 if treated == 0 else 0.0
    return float((treated / host) ** 0.5)


def _pooled(parts: list[dict[str, Any]]) -> dict[str, Any]:
    host = sum(p["squares"][0] for p in parts)
    treated = sum(p["squares"][1] for p in parts)
    return {
        "cosine": min(p["cosine"] for p in parts),
        "max_abs": max(p["max_abs"] for p in parts),
        "norm_ratio": [
            min(p["norm_ratio"][0] for p in parts),
            max(p["norm_ratio"][1] for p in parts),
        ],
        "scale": _scale(host, treated),
    }


def value_window(frame: str, host: torch.Tensor, treated: torch.Tensor) -> dict[str, Any]:
    """Window of a value output: both tensors of one shape, the last dim is a row.

    Cosine is the lowest of any row's. ``rows_alike`` says that every row of several is the same.
    Raises :class:`Refusal` (SHAPE, DTYPE, EMPTY_CORPUS).
    """
    _check(frame, host, treated)
    bad = _nonfinite(host, treated)
    width = host.shape[-1] if host.dim() else 1
    flat = treated.reshape(-1, width)
    body: dict[str, Any] = {
        "frame": frame,
        "elements": host.numel(),
        "nonfinite": bad,
        "distinct": int(treated.unique().numel()),
        "cosine": None,
        "max_abs": None,
        "norm_ratio": None,
        "scale": None,
        "rows_alike": flat.shape[0] > 1 and bool((flat == flat[0]).all()),
        "treated": _digest(treated),
    }
    if bad == 0:
        rows = host.double().reshape(-1, width), treated.double().reshape(-1, width)
        body |= _pooled([_shape_metrics(*rows)])
    return body


def distribution_window(
    frame: str,
    host: torch.Tensor,
    treated: torch.Tensor,
    targets: torch.Tensor | None = None,
    near_tie: float = NEAR_TIE,
) -> dict[str, Any]:
    """Window of a distribution output: logits ``[positions, vocabulary]`` of both arms.

    ``targets`` are the tokens that did come next, ``[positions]``; without them the
    negative log-likelihoods are None. ``top1_agree`` counts the positions at which both arms put
    the same token first; ``near_ties`` those at which they do not, but the host itself puts the
    treated arm's token within ``near_tie`` nats of its own first, or within two units in the last
    place of its dtype there: what one rounding of each of the two can turn round.
    KL is host against treated, in nats, from float64. Raises :class:`Refusal` (SHAPE, DTYPE,
    EMPTY_CORPUS).
    """
    import torch

    _check(frame, host, treated)
    if host.dim() != 2 or host.shape[1] < 2:
        raise Refusal(
            Reason.SHAPE, f"[positions, vocabulary] expected, not {list(host.shape)}", subject=frame
        )
    if targets is not None and tuple(targets.shape) != (host.shape[0],):
        raise Refusal(
            Reason.SHAPE,
            f"{list(targets.shape)} targets for {host.shape[0]} positions",
            subject=frame,
        )
    bad = _nonfinite(host, treated)
    choice = treated.argmax(-1)
    body: dict[str, Any] = {
        "frame": frame,
        "positions": int(host.shape[0]),
        "top1_agree": 0,
        "near_ties": 0,
        "kl_sum": None,
        "kl_max": None,
        "max_abs": None,
        "cosine_min": None,
        "norm_ratio": None,
        "scale": None,
        "nonfinite": bad,
        "distinct": int(choice.unique().numel()),
        "nll_host_sum": None,
        "nll_treated_sum": None,
        "treated": _digest(treated),
    }
    if bad:
        return body
    parts, kl, nll_host, nll_treated, agree, ties = [], [], [], [], 0, 0
    epsilon = torch.tensor(torch.finfo(host.dtype).eps, dtype=torch.float64, device=host.device)
    for rows in torch.arange(host.shape[0], device=host.device).split(ROWS_AT_ONCE):
        h, t = host[rows].double(), treated[rows].double()
        parts.append(_shape_metrics(h, t))
        log_h, log_t = h.log_softmax(-1), t.log_softmax(-1)
        kl.append((log_h.exp() * (log_h - log_t)).sum(-1).clamp(min=0.0))
        same = h.argmax(-1) == choice[rows]
        top = h.max(-1).values
        gap = top - h.gather(-1, choice[rows][:, None])[:, 0]
        # frexp's mantissa is at least 1/2, so a unit in the last place is eps * 2**(exponent - 1).
        close = gap <= torch.ldexp(epsilon.expand_as(top), top.frexp().exponent).clamp(min=near_tie)
        agree += int(same.sum())
        ties += int((close & ~same).sum())
        if targets is not None:
            chosen = targets[rows].long()[:, None]
            nll_host.append(-log_h.gather(-1, chosen))
            nll_treated.append(-log_t.gather(-1, chosen))
    pooled = _pooled(parts)
    divergence = torch.cat(kl)
    body |= {
        "top1_agree": agree,
        "near_ties": ties,
        "kl_sum": float(divergence.sum()),
        "kl_max": float(divergence.max()),
        "max_abs": pooled["max_abs"],
        "cosine_min": pooled["cosine"],
        "norm_ratio": pooled["norm_ratio"],
        "scale": pooled["scale"],
    }
    if targets is not None:
        body["nll_host_sum"] = float(torch.cat(nll_host).sum())
        body["nll_treated_sum"] = float(torch.cat(nll_treated).sum())
    return body


def token_window(frame: str, host: Sequence[int], treated: Sequence[int]) -> dict[str, Any]:
    """Window of generated tokens: identity, position by position.

    ``first_difference`` is the index of the first token that is not the host's; None without one.
    Raises :class:`Refusal` (EMPTY_CORPUS) for no token and (SHAPE) for another number of them.
    """
    if not host:
        raise Refusal(Reason.EMPTY_CORPUS, "no token was generated", subject=frame)
    if len(host) != len(treated):
        raise Refusal(
            Reason.SHAPE,
            f"the host generates {len(host)} tokens, the treated arm {len(treated)}",
            subject=frame,
        )
    differ = [i for i, (h, t) in enumerate(zip(host, treated, strict=True)) if h != t]
    return {
        "frame": frame,
        "tokens": len(host),
        "identical": len(host) - len(differ),
        "first_difference": differ[0] if differ else None,
        "distinct": len(set(treated)),
    }
