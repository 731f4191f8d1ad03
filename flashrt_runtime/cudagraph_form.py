"""The forms that end in ``cudagraph``: what a step launches, recorded once and replayed.

A replay runs no Python and returns the same output tensors every time: the next replay overwrites
them. The step's windows are the recorded addresses; a tensor that it reads besides them is read
from where it lay at capture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flashrt_runtime.blocker import ONLY_DIAGNOSIS, uncapturable
from flashrt_runtime.reason import Reason, Refusal
from flashrt_runtime.recording import recorded

if TYPE_CHECKING:
    import torch

    from flashrt_runtime.compile_form import CapturedGraph

WARMUPS = 3
OPTIONS = {"warmups": str(WARMUPS), "capture_error_mode": "thread_local", "pool": "own"}


def check_device(windows: Mapping[str, torch.Tensor], name: str) -> torch.device:
    """The one CUDA device of the windows. Raises :class:`Refusal` (UNCAPTURABLE)."""
    import torch

    if not torch.cuda.is_available():
        what = "a CUDA graph needs a CUDA device, and torch finds none on this machine"
        raise Refusal(Reason.UNCAPTURABLE, what, subject=name, do="use compile or aot here")
    if not windows:
        what = "a CUDA graph needs a window: nothing says which device the step is on"
        raise Refusal(Reason.UNCAPTURABLE, what, subject=name)
    elsewhere = [key for key, value in windows.items() if value.device.type != "cuda"]
    if elsewhere:
        what = f"the window {elsewhere[0]!r} lies on {windows[elsewhere[0]].device}, not on CUDA"
        raise Refusal(Reason.UNCAPTURABLE, what, subject=name, do="move it before the step")
    devices = {value.device for value in windows.values()}
    if len(devices) > 1:
        what = f"the windows lie on {len(devices)} devices; one CUDA graph has one"
        raise Refusal(Reason.UNCAPTURABLE, what, subject=name)
    return devices.pop()


def recorded_graph(
    run: Callable[..., Any], windows: Mapping[str, torch.Tensor], name: str
) -> CapturedGraph:
    """Record ``run(**windows)`` into a CUDA graph over the windows' own memory.

    It is run ``WARMUPS`` times on a side stream first. ``operators`` are the ``flashrt::``
    operators that were dispatched while recording, by seam. The runner ignores its arguments: a
    caller writes into the windows. Raises :class:`Refusal` (UNCAPTURABLE): no CUDA device, a
    window elsewhere, and whatever cannot be recorded (a read of a value by the host, a copy from
    the host's memory, an allocation outside the pool), naming it.
    """
    import torch

    from flashrt_runtime.compile_form import CapturedGraph
    from flashrt_runtime.operators import operator_counter

    device = check_device(windows, name)
    graph = torch.cuda.CUDAGraph()
    counter = operator_counter()
    try:
        with torch.cuda.device(device), recorded():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARMUPS):
                    run(**windows)
            torch.cuda.current_stream().wait_stream(side)
            mode = OPTIONS["capture_error_mode"]
            with torch.cuda.graph(graph, capture_error_mode=mode), counter:
                outputs = run(**windows)
    except Exception as error:
        raise _told(error, name) from error

    def replay(**given: Any) -> Any:
        graph.replay()
        return outputs

    return CapturedGraph(replay, counter.found, OPTIONS)


def _told(error: Exception, name: str) -> Refusal:
    refusal = uncapturable(error, name)
    if refusal.reason is Reason.UNCAPTURABLE and "captur" in refusal.what:
        return refusal
    if isinstance(error, Refusal):
        return refusal
    what = f"the step could not be recorded: {refusal.what}"
    return Refusal(Reason.UNCAPTURABLE, what, subject=name, do=ONLY_DIAGNOSIS)
