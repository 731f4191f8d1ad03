"""The arm of a null study: a host's captured step, or a matrix product that needs no host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashrt.qualify.request import CellRequest
    from flashrt.race.measure import Arm

MATMUL = "matmul"
ROWS, WIDTH = 16, 1024


def null_arm(host: str, request: CellRequest, threads: int, seed: int) -> Arm:
    """One run of the step of ``request`` in the captured form, or of a float32 product.

    Uses ``threads`` threads from here on. Raises :class:`~flashrt_runtime.reason.Refusal` for a
    host that is not there or whose step cannot be captured.
    """
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    if host == MATMUL:
        left, right = torch.randn(ROWS, WIDTH), torch.randn(WIDTH, WIDTH)
        out = torch.empty(ROWS, WIDTH)

        def product() -> None:
            torch.mm(left, right, out=out)

        return product
    from flashrt.host import load_host
    from flashrt.qualify.group import capture_step
    from flashrt.qualify.request import require_forms

    require_forms([request])
    model = load_host(host).model
    stage = capture_step(model, request.rows, request.context, "null", request.sequence).stage

    def step() -> None:
        stage.replay()

    return step
