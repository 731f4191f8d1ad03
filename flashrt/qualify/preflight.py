"""All of a qualification that needs no device: manifests, the arch rule, compilation, numerics.

Nothing is measured, so the state is ``unknown`` whatever is found.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashrt_runtime import arch
from flashrt_runtime.impl_loader import Manifest, manifests
from flashrt_runtime.reason import Because, Reason, Refusal

WIDTHS: Mapping[str, Mapping[str, int]] = {"decoder_ffn@1": {"D": 576, "F": 1536}}
"""Widths that kernels are compiled for where the caller names none: the packaged host's."""
FORMAT_FLOOR = 0.9999
"""Cosine against torch's arithmetic of the same format, under which a kernel is wrong."""
TIMEOUT_S = 600


@dataclass(frozen=True)
class PreflightReport:
    """What was found. ``record`` is the JSON body; ``checks`` the same as a flat list of
    ``{"name", "subject", "outcome": passed|failed|not_done, "detail"}``."""

    record: Mapping[str, Any]
    checks: tuple[Mapping[str, str], ...]
    reasons: tuple[Because, ...]

    @property
    def sound(self) -> bool:
        """Whether no check failed."""
        return all(check["outcome"] != "failed" for check in self.checks)


def preflight(
    device: str,
    structures: Sequence[str] | None = None,
    dims: Mapping[str, Mapping[str, int]] | None = None,
) -> PreflightReport:
    """Everything about ``device`` (``"sm90"``) that can be known without it.

    ``structures`` are ids (``"decoder_ffn@1"``), all that an impl executes when None; ``dims``
    gives the widths to compile for by structure. Raises :class:`Refusal`: DEVICE for a name that
    no device has, STRUCTURE for a structure that no impl executes, SOFTWARE without Triton.
    """
    target = arch.device(device)
    if importlib.util.find_spec("triton") is None:
        raise Refusal(
            Reason.SOFTWARE,
            "Triton is not installed, so nothing can be compiled",
            do="pip install 'flashrt[triton]'",
        )
    known = manifests()
    wanted = _wanted(structures, known)
    checks = [_valid(m) for m in known if m.structure in wanted]
    reasons = [
        Because(Reason.ARCH_ABSENT, f"no {device} is on this machine; nothing was measured", device)
    ]
    impls: list[dict[str, Any]] = []
    for structure in wanted:
        offered = [m for m in known if m.structure == structure and m.device == "cuda"]
        if not offered:
            said = f"no impl of it is written for {device}; the host keeps it"
            reasons.append(Because(Reason.ARCH, said, structure))
            checks.append(_check("arch rule", structure, "not_done", said))
        for manifest in offered:
            serves = arch.any_serves(manifest.archs, device)
            entry: dict[str, Any] = {
                "structure": structure,
                "backend": manifest.backend,
                "arch_rule": {
                    "declared": list(manifest.archs),
                    "device": str(target),
                    "serves": serves,
                },
                "kernels": [],
                "numerics": [],
            }
            declared = f"declares {', '.join(manifest.archs) or 'any'}; the device is {target}"
            if serves:
                checks.append(_check("arch rule", manifest.id, "passed", declared))
                widths = {**WIDTHS, **(dims or {})}.get(structure, {})
                _compile(entry, manifest, target.target, widths, checks)
                _interpret(entry, manifest, checks, reasons)
            else:
                checks.append(_check("arch rule", manifest.id, "not_done", declared))
                reasons.append(Because(Reason.ARCH, declared, manifest.id))
            impls.append(entry)
    record = {
        "schema": "flashrt.preflight/1",
        "kind": "preflight",
        "device": device,
        "arch": str(target),
        "impls": impls,
        "state": "unknown",
        "reasons": [because.record() for because in reasons],
    }
    return PreflightReport(record, tuple(checks), tuple(reasons))


def _wanted(structures: Sequence[str] | None, known: Iterable[Manifest]) -> list[str]:
    have = sorted({manifest.structure for manifest in known})
    for structure in structures or ():
        if structure not in have:
            raise Refusal(
                Reason.STRUCTURE,
                "no impl executes this structure",
                subject=structure,
                do=f"installed impls execute {', '.join(have)}",
            )
    return sorted(set(structures)) if structures else have


def _check(name: str, subject: str, outcome: str, detail: str) -> dict[str, str]:
    return {"name": name, "subject": subject, "outcome": outcome, "detail": detail}


def _raw(manifest: Manifest) -> dict[str, Any]:
    from importlib import resources

    folder = manifest.structure.partition("@")[0]
    file = resources.files("flashrt_runtime.impls") / folder / f"{manifest.backend}.json"
    value: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return value


def _valid(manifest: Manifest) -> dict[str, str]:
    from flashrt.document.schema import problems

    found = problems(_raw(manifest), "impl_manifest", file=f"{manifest.id}.json")
    if found:
        return _check("manifest", manifest.id, "failed", str(found[0]))
    return _check("manifest", manifest.id, "passed", f"{len(manifest.forms)} forms")


def _ask(request: Mapping[str, Any], interpreted: bool) -> list[dict[str, Any]]:
    """One question to the worker. Raises :class:`Refusal` (INCOMPLETE) when it dies."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_DEFAULT_FP_FUSION"] = "0"
    if interpreted:
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", "flashrt.qualify.preflight_worker"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise Refusal(
            Reason.INCOMPLETE, f"the preflight's {request['command']} took over {TIMEOUT_S} s"
        ) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        said = lines[-1][:300] if lines else f"exit status {done.returncode}"
        raise Refusal(Reason.INCOMPLETE, f"the preflight's {request['command']} died: {said}")
    answer: list[dict[str, Any]] = json.loads(done.stdout)
    return answer


def _number(value: float | None) -> float:
    """A metric from the worker, which writes what is not finite as null."""
    return math.nan if value is None else value


def _compile(
    entry: dict[str, Any],
    manifest: Manifest,
    target: int,
    dims: Mapping[str, int],
    checks: list[dict[str, str]],
) -> None:
    request = {
        "command": "compile",
        "manifest": _raw(manifest),
        "target": target,
        "dims": dict(dims),
    }
    for kernel in _ask(request, interpreted=False):
        entry["kernels"].append(kernel)
        subject = f"{manifest.id} {kernel['kernel']} ({', '.join(kernel['forms'])})"
        if "error" in kernel:
            checks.append(_check("compile", subject, "failed", kernel["error"]))
            continue
        detail = f"{kernel['cubin_bytes']} bytes, {kernel['mma'] or 'no'} matrix instruction"
        if "registers" in kernel:
            detail += f", {kernel['registers']} registers, {kernel.get('stack_bytes', 0)} stack"
        checks.append(_check("compile", subject, "passed", detail))


def _interpret(
    entry: dict[str, Any],
    manifest: Manifest,
    checks: list[dict[str, str]],
    reasons: list[Because],
) -> None:
    request = {"command": "interpret", "manifest": _raw(manifest)}
    for case in _ask(request, interpreted=True):
        entry["numerics"].append(case)
        subject = f"{manifest.id} {case['form']} {' '.join(case['variant'].values())}"
        whole, same = (_number(case[name]) for name in ("cosine", "format_cosine"))
        detail = (
            f"cosine {whole:.5f} to the reference, {same:.6f} to the "
            f"format's arithmetic, first kernel {'' if case['bit_exact'] else 'not '}bit-exact"
        )
        if case["nonfinite"]:
            reasons.append(Because(Reason.NONFINITE, f"{case['nonfinite']} elements", subject))
        good = same >= FORMAT_FLOOR and not case["nonfinite"]
        checks.append(_check("numerics", subject, "passed" if good else "failed", detail))
