"""The preflight's child process: compiles kernels for a device that is absent, or runs them in
Triton's interpreter. One JSON request on stdin, one JSON answer on stdout.

A process of its own, because the interpreter is chosen by the environment before Triton is
imported, and because a compiler that crashes must not take the command with it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

MMA = ("wgmma", "tcgen05.mma", "mma.sync")
USAGE = re.compile(r"(REG|STACK|SHARED|LOCAL):(\d+)")


def variants(form: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Every variant a form declares; a norm of the seam's own gets an eps."""
    axes = form["variants"]
    for values in product(*axes.values()):
        variant = dict(zip(axes, values, strict=True))
        if variant.get("norm", "host") != "host":
            variant["eps"] = "1e-06"
        yield variant


def _module(manifest: Mapping[str, Any]) -> Any:
    folder = manifest["structure"].partition("@")[0]
    return importlib.import_module(f"flashrt_runtime.impls.{folder}.{manifest['backend']}")


def compile_all(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compile every distinct launch of every form and variant for ``request["target"]``."""
    import torch

    manifest, dims = request["manifest"], request["dims"]
    impl = _module(manifest)
    kernels = importlib.import_module(impl.KERNELS)
    seen: dict[str, dict[str, Any]] = {}
    for form in manifest["forms"]:
        names = form["input_dtype"]
        dtype = getattr(torch, "bfloat16" if "bfloat16" in names else names[0])
        for variant in variants(form):
            for launch in impl.launches(form["name"], dims, variant, dtype):
                key = json.dumps([launch.kernel, dict(launch.types), dict(launch.constants)])
                if key in seen:
                    if form["name"] not in seen[key]["forms"]:
                        seen[key]["forms"].append(form["name"])
                    continue
                seen[key] = _compile(kernels, launch, request["target"], form["name"])
    return list(seen.values())


def _compile(kernels: Any, launch: Any, target: int, form: str) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(kernels, launch.kernel)
    signature = {**launch.types, **dict.fromkeys(launch.constants, "constexpr")}
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(function.arg_names)
        if launch.types.get(name, "").startswith("*")
    }
    record: dict[str, Any] = {
        "kernel": launch.kernel,
        "forms": [form],
        "constants": dict(launch.constants),
        "warps": launch.warps,
        "stages": launch.stages,
    }
    try:
        built = triton.compile(
            ASTSource(function, signature, dict(launch.constants), aligned),
            target=GPUTarget("cuda", target, 32),
            options=launch.options(),
        )
    except Exception as error:
        said = f"{type(error).__name__}: {error}".strip().splitlines()
        return {**record, "error": said[-1][:400]}
    cubin, ptx = built.asm["cubin"], built.asm["ptx"]
    return {
        **record,
        "cubin_bytes": len(cubin),
        "cubin_sha256": "sha256:" + hashlib.sha256(cubin).hexdigest(),
        "shared_bytes": int(built.metadata.shared),
        "mma": next((name for name in MMA if name in ptx), None),
        "pipelined": "cp.async" in ptx,
        **_usage(cubin),
    }


def _usage(cubin: bytes) -> dict[str, int]:
    """Registers and stack bytes a thread, as cuobjdump reads them; nothing when it is absent."""
    from triton import knobs

    try:
        tool = knobs.nvidia.cuobjdump.path
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            Path(file.name).write_bytes(cubin)
            done = subprocess.run(
                [tool, "--dump-resource-usage", file.name],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
    except (OSError, RuntimeError, AttributeError, subprocess.SubprocessError):
        return {}
    found = {name: int(value) for name, value in USAGE.findall(done.stdout)}
    named = {"registers": found.get("REG"), "stack_bytes": found.get("STACK")}
    return {name: value for name, value in named.items() if value is not None}


def interpret_all(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run drawn cases of every form through the interpreter and compare them with the catalog's
    reference (``cosine``, ``max_abs``, ``scale``) and with torch's arithmetic of the same format
    (``format_…``, ``bit_exact``: the first kernel's output equals torch's bit for bit). A number
    that is not finite is null.
    """
    from flashrt.qualify.preflight_interpreter import install

    install()
    return [
        _case(request, case, form)
        for form in request["manifest"]["forms"]
        for case in _cases(request, form)
    ]


def _cases(request: Mapping[str, Any], form: Mapping[str, Any]) -> Iterator[Any]:
    from flashrt.spec import load
    from flashrt.spec.harness import Slots, draw

    spec = load(request["manifest"]["structure"])
    low, high = form["rows"]
    rows = sorted({low, min(low + 4, high or low + 4)})
    sizes = dict.fromkeys(spec.weight_dims(), (64, 96)) | {spec.rows: tuple(rows)}
    for number, variant in enumerate(variants(form)):
        allowed = {axis: (value,) for axis, value in variant.items() if axis != "eps"}
        yield from draw(spec, 1, number, variants=allowed, sizes=sizes, slots=Slots.NONE)


def _finite(value: float) -> float | None:
    """A number that JSON can hold; null for NaN and infinity."""
    return value if math.isfinite(value) else None


def _case(request: Mapping[str, Any], case: Any, form: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    from flashrt.spec import harness
    from flashrt.spec.reference import load_reference

    reference = load_reference(case.spec)
    largest = torch.finfo(torch.float8_e4m3fn).max
    scales = {p: v / largest for p, v in harness.amax(reference, case).items()}
    impl = _module(request["manifest"])
    got = impl.interpret(case.request(form["name"], scales), case.inputs["x"])
    expected = reference.run(case.inputs, case.weights, case.variant)["y"]
    whole = harness.agreement("y", expected, got["y"])
    same = harness.agreement("y", got["torch_y"], got["y"])
    return {
        "form": form["name"],
        "variant": {k: v for k, v in case.variant.items() if k in form["variants"]},
        "dims": dict(case.dims),
        "cosine": _finite(whole.cosine),
        "max_abs": _finite(whole.max_abs),
        "scale": _finite(whole.scale),
        "nonfinite": whole.nonfinite,
        "format_cosine": _finite(same.cosine),
        "format_max_abs": _finite(same.max_abs),
        "bit_exact": bool(torch.equal(got["steps"], got["torch_steps"])),
    }


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    commands = {"compile": compile_all, "interpret": interpret_all}
    answer = commands[request["command"]](request)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
