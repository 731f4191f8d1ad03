"""The form ``["aot"]``: one graph, compiled ahead of time into an AOTInductor package.

The package holds code and no weights: the host's tensors and the step's own state are its inputs,
passed by reference at every replay, so that two arms share weights and a state that is written
eagerly is the one that the package reads. A folder of packages lets a machine without a compiler
load what another machine built: a package's name is the digest of its graph and inputs.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashrt_runtime.blocker import uncapturable
from flashrt_runtime.reason import Reason, Refusal

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from flashrt_runtime.compile_form import CapturedGraph

OPTIONS = {"package": "aot_inductor", "fullgraph": "true", "dynamic": "false", "weights": "inputs"}
PACKAGES = "FLASHRT_AOT_PACKAGES"


class _Graph:
    """The compiler backend: keeps the one graph, runs it as it is until a package takes over."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.graphs = 0
        self.module: GraphModule | None = None
        self.inputs: tuple[Any, ...] = ()
        self.run: Callable[..., Any] | None = None

    def __call__(self, graph: GraphModule, inputs: Any) -> Callable[..., Any]:
        self.graphs += 1
        if self.graphs > 1:
            what = "a second graph was needed: what the first one depends on has changed"
            raise Refusal(Reason.UNCAPTURABLE, what, subject=self.name)
        self.module = graph

        def call(*given: Any) -> Any:
            if self.run is not None:
                return self.run(*given)
            self.inputs = given
            return graph.forward(*given)

        return call


def _digest(graph: GraphModule, inputs: tuple[Any, ...]) -> str:
    """Names a package: the graph's code, every input's form, and the torch that compiles it."""
    import torch

    forms = [
        (str(x.dtype), tuple(x.shape), tuple(x.stride()), str(x.device))
        if isinstance(x, torch.Tensor)
        else repr(x)
        for x in inputs
    ]
    parts = (torch.__version__, torch.get_num_threads(), graph.code, forms)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@contextmanager
def _folder(packages: Path | None) -> Iterator[Path]:
    if packages is not None:
        packages.mkdir(parents=True, exist_ok=True)
        yield packages
        return
    with tempfile.TemporaryDirectory(prefix="flashrt-aot-") as made:
        yield Path(made)


def _loaded(graph: GraphModule, inputs: tuple[Any, ...], packages: Path | None) -> Any:
    """The package's runner, built unless ``packages`` holds it. A file is never half there."""
    import torch
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with _folder(packages) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        path = folder / f"{_digest(graph, inputs)}.pt2"
        if not path.exists():
            exported = torch.export.export(graph, inputs, strict=False)
            building = folder / f"{os.getpid()}-{path.name}"
            try:
                aoti_compile_and_package(exported, package_path=str(building))
                os.replace(building, path)
            finally:
                building.unlink(missing_ok=True)
        return aoti_load_package(str(path))


def packaged(
    step: Callable[..., Any], windows: Mapping[str, Any], name: str, packages: Path | None = None
) -> CapturedGraph:
    """Package ``step(**windows)`` as one graph and prove that a second call reuses it.

    ``packages`` is a folder that keeps the package (the variable ``FLASHRT_AOT_PACKAGES`` names
    one as well): what lies there is loaded and executed, so it is trusted like code. Raises
    :class:`Refusal` (UNCAPTURABLE), naming the blocker.
    """
    import torch
    from torch._dynamo.exc import TorchDynamoException

    from flashrt_runtime.compile_form import CapturedGraph, own_code
    from flashrt_runtime.operators import seam_operators

    stated = os.environ.get(PACKAGES)
    keep = packages if packages is not None else Path(stated) if stated else None
    graph = _Graph(name)
    call: Any = torch.compile(own_code(step), backend=graph, fullgraph=True, dynamic=False)
    try:
        call(**windows)
        if graph.module is None:
            what = "the step holds no tensor operation to capture"
            raise Refusal(Reason.UNCAPTURABLE, what, subject=name)
        operators = seam_operators(graph.module)
        graph.run = _loaded(graph.module, graph.inputs, keep)
        graph.inputs, graph.module = (), None
        call(**windows)
    except Exception as error:
        raise uncapturable(error, name) from error

    def run(**given: Any) -> Any:
        try:
            return call(**given)
        except TorchDynamoException as error:
            raise uncapturable(error, name) from error

    return CapturedGraph(run, operators, OPTIONS)
