"""The amax of one 0.5 MB activation: our hook, a bare ``torch.aminmax``, and other observers.

Bar: 1.3 of the bare call. Every arm sees the same float32 activations, one call after another, each
another tensor. Ours is counted whole: the module call, the hook, and its share of reading a frame's
values back. An observer that is not installed has no arm; those of ``.bench-venv`` are named in
``PEERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import metadata
from io import StringIO

import torch
from interleave import interleave, show

from flashrt.calibration.kinds import Address
from flashrt.calibration.meter import Meter

SHAPE = (1, 128, 1024)  # 0.5 MB of float32
TENSORS = 16
PASSES = 8  # TENSORS * PASSES calls a frame: SmolLM2 has 121 places


class Point(torch.nn.Module):
    """A module that does nothing, so that what is timed is the hook."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x``."""
        return x


@contextmanager
def ours() -> Iterator[tuple[Callable[[torch.Tensor], object], Callable[[], object]]]:
    """Our hook on a module, and what is done once a frame."""
    model = torch.nn.ModuleDict({"point": Point()}).eval()
    meter = Meter(model, [Address("point", "x", "point", "input")])
    with meter.attached():
        yield model["point"], meter.take


def torch_observer() -> Callable[[torch.Tensor], object]:
    """The observer that torch itself ships."""
    from torch.ao.quantization.observer import MinMaxObserver

    return MinMaxObserver()


def torchao_observer() -> Callable[[torch.Tensor], object]:
    """torchao, per tensor."""
    from torchao.quantization.granularity import PerTensor
    from torchao.quantization.observer import AffineQuantizedMinMaxObserver
    from torchao.quantization.quant_primitives import MappingType

    return AffineQuantizedMinMaxObserver(
        MappingType.SYMMETRIC, torch.int8, granularity=PerTensor(), eps=1e-12
    )


def llm_compressor_observer() -> Callable[[torch.Tensor], object]:
    """llm-compressor, per tensor."""
    from compressed_tensors.quantization import QuantizationArgs
    from llmcompressor.observers import Observer

    args = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="tensor")
    return Observer.load_from_registry("static_minmax", base_name="input", args=args)


def modelopt_observer() -> Callable[[torch.Tensor], object]:
    """ModelOpt's quantizer while it calibrates by the maximum."""
    from modelopt.torch.quantization.nn import TensorQuantizer

    quantizer = TensorQuantizer()
    quantizer.disable_quant()
    quantizer.enable_calib()
    return quantizer


PEERS = {
    "torch": torch_observer,
    "torchao": torchao_observer,
    "llmcompressor": llm_compressor_observer,
    "nvidia-modelopt": modelopt_observer,
}


def peers(x: torch.Tensor) -> dict[str, Callable[[torch.Tensor], object]]:
    """Observers that import and take ``x``; the others are named with the reason."""
    found = {}
    for name, build in PEERS.items():
        try:
            with redirect_stderr(StringIO()):
                observer = build()
                observer(x)
        except Exception as error:
            print(f"{name}: no arm ({type(error).__name__}: {str(error).splitlines()[0]})")
            continue
        found[f"{name} {metadata.version(name)}"] = observer
    return found


def main(rounds: int = 60) -> None:
    """Print the table."""
    torch.manual_seed(0)
    tensors = [torch.randn(SHAPE) for _ in range(TENSORS)]

    def arm(
        see: Callable[[torch.Tensor], object], after: Callable[[], object] = lambda: None
    ) -> Callable[[], None]:
        def run() -> None:
            for _ in range(PASSES):
                for x in tensors:
                    see(x)
            after()

        return run

    with torch.no_grad(), ours() as (hooked, take):
        arms = {"torch.aminmax": arm(torch.aminmax), "flashrt hook": arm(hooked, take)}
        arms |= {name: arm(see) for name, see in peers(tensors[0]).items()}
        samples = interleave(arms, rounds, scale=1 / (TENSORS * PASSES))
    note = f"float32 {list(SHAPE)}, {torch.get_num_threads()} threads"
    show(
        "Amax of one activation (bar: 1.3 of a bare aminmax)", samples, "us", "torch.aminmax", note
    )


if __name__ == "__main__":
    main()
