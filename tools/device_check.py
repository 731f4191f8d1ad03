"""Check on a CUDA machine what no other machine can: the forms that end in ``cudagraph``.

Each form is captured for a host with an implementation in its seam, for a decoder with a state and
for a fixed-iteration host; replays are compared with the eager step on other inputs, an input that
is missing from the windows must be caught, and a step that reads a value must be refused by name.
One record with this machine's facts and every check goes to the store; its state is ``unknown``,
since a check measures no speed. Without a CUDA device nothing is checked: ARCH_ABSENT, exit 3.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from flashrt.document.canonical import canonical_bytes
from flashrt.qualify.environment import environment
from flashrt.qualify.run import now
from flashrt.receipt.build import build_unmeasured
from flashrt.receipt.store import DEFAULT_ROOT, Store
from flashrt.record import ExecutionBackend, ExperimentExecution, WallClock
from flashrt_cli.exit_codes import ExitCode
from flashrt_runtime.capture import capture
from flashrt_runtime.contract import BoundSeam, Seam
from flashrt_runtime.facts import device_facts
from flashrt_runtime.fixed_iteration.entry import record_entry
from flashrt_runtime.fixed_iteration.normalise import FixedIteration, normalise
from flashrt_runtime.form import Form, text_of
from flashrt_runtime.guard import FormContract, Place
from flashrt_runtime.reason import Because, Reason, Refusal
from flashrt_runtime.swap import Swap, attach
from flashrt_runtime.window_check import check_windows

FORMS: tuple[Form, ...] = (("cudagraph",), ("compile", "cudagraph"))
WIDTH = 64
Check = dict[str, str]


@torch.library.custom_op("flashrt::device_check", mutates_args=())
def scaled(x: torch.Tensor, seam: str) -> torch.Tensor:
    """Three times ``x``: an implementation that is visibly not the host's arithmetic."""
    return x * 3


@scaled.register_fake
def _(x: torch.Tensor, seam: str) -> torch.Tensor:
    return torch.empty_like(x)


class Body(torch.nn.Module):
    """The implementation in the seam."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., D] -> [..., D]``."""
        out: torch.Tensor = torch.ops.flashrt.device_check(x, "seam")
        return out


class Host(torch.nn.Module):
    """Two linears, a state and a sampler whose loop a tensor ends."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.second = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("total", torch.zeros(1, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[1, D] -> [1, D]``; adds to ``total``."""
        out: torch.Tensor = self.second(self.first(x))
        self.total += out
        return out + self.total

    def sample(self, observation: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """``[1, D]`` refined from ``noise`` in four steps."""
        dt = torch.tensor(-0.25, device=noise.device)
        time = torch.tensor(1.0, device=noise.device)
        while time >= -dt / 2:
            noise = noise + dt * torch.tanh(self.second(noise + observation * time))
            time += dt
        return noise


def _host(device: torch.device) -> Host:
    torch.manual_seed(0)
    return Host().eval().requires_grad_(False).to(device)


def _close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


def seam_and_state(device: torch.device, form: Form) -> str:
    """An implementation in captured forms only, a state, and windows that a replay follows."""
    host = _host(device)
    seam = Seam("seam", "linear_proj@1", {"self": "first"}, {}, {"K": WIDTH}, {})
    contract = FormContract(
        device=device, dtype=torch.float32, width=WIDTH, rows=(1, 1), place=Place.CAPTURED
    )
    bound = BoundSeam({"self": Body()}, "flashrt::device_check", 0)
    handle = attach(host, [Swap(seam, bound, contract, "check", "all")])
    x = torch.ones(1, WIDTH, device=device)
    stage = capture(host, {"x": x}, form, name="seam")
    handle.add_stage(stage)
    if stage.seam_operators != {"seam": {"flashrt::device_check": 1}}:
        raise Refusal(Reason.NEVER_CALLED, str(stage.seam_operators), subject="seam")
    for value in (2.0, -1.0):
        host.total.zero_()
        out = stage.replay(x=torch.full_like(x, value)).clone()
        made = host.second(torch.full_like(x, value) * 3)
        _close(out, made * 2)
        _close(host.total, made)
    handle.detach()
    return f"{stage.replays} replays of one seam's operator, the state written by each"


def windows_followed(device: torch.device, form: Form) -> str:
    """Every window is followed, and an input that is none of them is caught."""
    host = _host(device)
    given = {"x": torch.rand(1, WIDTH, device=device)}

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(host.second(x))

    seen = check_windows(capture(step, given, form, name="declared"), step, host)
    held = {"mask": torch.rand(1, WIDTH, device=device)}

    def forgets(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(host.second(x) * held["mask"])

    told = f"followed {' '.join(seen.windows)}"
    if form[-1] != "cudagraph":
        return told
    try:
        check_windows(capture(forgets, given, form, name="forgotten"), forgets, host)
    except Refusal as refusal:
        if "held['mask']" in refusal.what:
            return f"{told}; caught {refusal.what}"
        raise
    raise Refusal(Reason.UNCAPTURABLE, "a missing input was not caught", subject="held['mask']")


def blocker_named(device: torch.device, form: Form) -> str:
    """A step that reads a value on the host is refused, naming the line."""

    def reads(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if bool(x.sum() > 0) else x - 1

    try:
        capture(reads, {"x": torch.ones(1, WIDTH, device=device)}, form, name="reads")
    except Refusal as refusal:
        if refusal.reason is Reason.UNCAPTURABLE and "device_check.py" in refusal.what:
            return refusal.what
        raise
    raise Refusal(Reason.UNCAPTURABLE, "a read of a value was captured", subject="reads")


def fixed_iteration(device: torch.device, form: Form) -> str:
    """A tensor-controlled while, normalised, captured whole and in its parts."""
    host = _host(device)
    given = {key: torch.rand(1, WIDTH, device=device) for key in ("observation", "noise")}
    entry = record_entry(lambda: host.sample(**given), host, "sample")
    found = normalise(entry, host, "sample")
    if not isinstance(found, FixedIteration):
        raise Refusal(Reason.UNCAPTURABLE, found.because, subject="sample")
    for whole in (form, ("segmented", *form)):
        stage = capture(found.schedule, entry.windows, whole, name="sample")
        check_windows(stage, entry, host)
        other = {**given, "noise": given["noise"] * 0.5}
        _close(stage.replay(**other), host.sample(**other))
    return f"{found.steps} steps from {' '.join(found.noise)}, whole and segmented"


CHECKS: tuple[Callable[[torch.device, Form], str], ...] = (
    seam_and_state,
    windows_followed,
    blocker_named,
    fixed_iteration,
)


def checks_of(device: torch.device, forms: tuple[Form, ...]) -> Iterator[Check]:
    """Every check in every form; one that fails says why and stops no other."""
    for form in forms:
        for check in CHECKS:
            subject = f"{text_of(form)} {check.__name__}"
            try:
                with torch.no_grad():
                    outcome, detail = "passed", check(device, form)
            except (Refusal, AssertionError, RuntimeError) as error:
                outcome, detail = "failed", f"{type(error).__name__}: {error}"
            yield {"name": "form", "subject": subject, "outcome": outcome, "detail": detail}


def driver() -> str | None:
    """The CUDA driver's version as NVIDIA's kernel module states it; ``None`` when unreadable."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    return text.partition("\n")[0].strip() or None


def record(device: torch.device, checks: list[Check], started: str) -> dict[str, Any]:
    """The record of this machine's checks."""
    facts = device_facts(device)
    because = Because(Reason.INCOMPLETE, "a device check measures no speed", str(facts["name"]))
    return build_unmeasured(
        kind="preflight",
        cell=None,
        request={"device": facts["class"], "name": str(facts["name"]), "arch": str(facts["arch"])},
        execution=ExperimentExecution(
            id=secrets.token_hex(8),
            tool_version=metadata.version("flashrt"),
            command=("make", "device-check"),
            backend=ExecutionBackend(
                compute_device=str(facts["name"]),
                device_state_storage="device memory",
                host_state_storage="host memory",
                library=f"torch {torch.__version__}, CUDA {torch.version.cuda or 'none'}",
                precision="float32",
            ),
            processes=1,
            wall=WallClock(started, now()),
        ).record(),
        reasons=[because],
        environment={**environment(torch.get_num_threads()), "driver": driver()},
        checks=checks,
    )


def main(arguments: list[str] | None = None) -> ExitCode:
    """Check, store, say; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receipts", type=Path, default=DEFAULT_ROOT, help="the store")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        what = "no CUDA device is on this machine; no form was checked and nothing was written"
        refusal = Refusal(Reason.ARCH_ABSENT, what, subject="cuda", do="run it where one is")
        print(refusal, file=sys.stderr)
        return ExitCode.NOT_MEASURED
    device, started = torch.device("cuda", torch.cuda.current_device()), now()
    checks = []
    for check in checks_of(device, FORMS):
        checks.append(check)
        print(f"{check['outcome']:7} {check['subject']}: {check['detail']}", flush=True)
    body = record(device, checks, started)
    digest = Store(options.receipts).put("preflight", body)
    print(f"record {digest} ({len(canonical_bytes(body))} bytes) in {options.receipts}")
    failed = any(check["outcome"] != "passed" for check in checks)
    return ExitCode.GATE_FAILED if failed else ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
