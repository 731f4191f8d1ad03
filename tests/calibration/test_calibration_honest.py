"""A measurement leaves the host as it is, and says what its modules read."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.calibration.collect import collect
from flashrt.calibration.reduce import effective_percentile
from flashrt.calibration.run import choose
from flashrt.calibration.statistic import MEASURABLE, Granularity, Kind, Statistic
from flashrt.calibration.streaming import TopK
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason, Refusal


@dataclass(frozen=True)
class Frame:
    id: Any


ONE = [Frame("a")]


def host(names: str = "ab") -> nn.ModuleDict:
    return nn.ModuleDict({name: nn.Identity() for name in names}).eval()


def seam(name: str, at: str = "") -> Seam:
    return Seam(name, "linear_proj@1", {}, {}, {}, {}, {"x": Point(at or name, "input")})


PACK = Seam("qkv", "qkv_pack@1", {r: r for r in "qkv"}, {}, {}, {}, {"x": Point("q", "input")})


@pytest.mark.parametrize("statistic", sorted(MEASURABLE, key=str), ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_no_statistic_writes_to_the_host(statistic: Statistic, dtype: torch.dtype) -> None:
    model, x = host(), torch.randn(3, 32).to(dtype)
    before = x.clone()
    collect(model, [seam("a")], ONE, lambda _: model["a"](x), statistics={("a", "x"): statistic})
    assert torch.equal(x, before)


def write(x: torch.Tensor, way: str) -> None:
    if way == "data":
        x.data.mul_(100)
    elif way == "numpy":
        x.detach().numpy()[:] *= 100
    else:
        x.mul_(100)


@pytest.mark.parametrize("way", ["plain", "data", "numpy", "inference"])
def test_a_tensor_written_to_between_two_modules_is_measured_again(way: str) -> None:
    model = host()

    def run(_: Frame) -> None:
        with torch.inference_mode(way == "inference"):
            x = torch.ones(1, 2) * 1
            model["a"](x)
            write(x, way)
            model["b"](x)

    assert collect(model, [seam("a"), seam("b")], ONE, run).amax.tolist() == [[1.0, 100.0]]


@pytest.mark.parametrize("way", ["plain", "data", "numpy", "inference", "steady"])
@pytest.mark.parametrize("first", [1.0, float("nan")])
def test_siblings_between_which_something_was_written_are_refused(way: str, first: float) -> None:
    model = host("qkv")

    def run(_: Frame) -> None:
        with torch.inference_mode(way == "inference"):
            x = torch.tensor([[first, 1.0], [1.0, 2.0]]) * 1
            model["q"](x)
            if way != "steady":
                write(x, way)
            model["k"](x)
            model["v"](x)

    points = [replace(PACK, points={})]  # without a point, NaN is nobody's business
    if way == "steady":
        assert collect(model, points, ONE, run).frames == ("a",)
        return
    with pytest.raises(Refusal) as caught:
        collect(model, points, ONE, run)
    assert caught.value.reason is Reason.SHARED_INPUT


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.ones(2, 2).to(torch.float8_e4m3fn), Reason.DTYPE),
        (torch.eye(3).to_sparse(), Reason.LAYOUT),
        (torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)]), Reason.LAYOUT),
        (torch.ones(2, 2, device="meta"), Reason.LAYOUT),
    ],
    ids=["float8", "sparse", "nested", "meta"],
)
def test_what_has_no_amax_is_refused_even_where_the_host_swallows(
    value: torch.Tensor, reason: Reason
) -> None:
    model = host()

    def swallows(_: Frame) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(model["a"], value)

    for run in (lambda _: model["a"](value), swallows):
        with pytest.raises(Refusal, match=r"a: its activation is") as caught:
            collect(model, [seam("a")], ONE, run)
        assert caught.value.reason is reason


def test_a_host_that_runs_in_threads_is_measured_whole() -> None:
    model = host()

    def run(_: Frame) -> None:
        with ThreadPoolExecutor(4) as pool:
            values = [torch.full((4, 4), float(i), requires_grad=True) for i in range(300)]
            list(pool.map(lambda i: model["ab"[i % 2]](values[i]), range(300)))

    every = {
        ("a", "x"): Statistic(Kind.AMAX, Granularity.CHANNEL),
        ("b", "x"): Statistic(Kind.SECOND_MOMENT, Granularity.CHANNEL),
    }
    frames = [Frame(f"f{i}") for i in range(5)]
    samples = collect(model, [seam("a"), seam("b")], frames, run, statistics=every)
    assert samples.amax.tolist() == [[298.0, 299.0]] * 5
    assert [o.calls for o in samples.observations if o is not None] == [750, 750]


def test_two_points_of_one_name_are_refused() -> None:
    model, other = host(), replace(seam("a", "b"), structure="qkv_pack@1")
    with pytest.raises(Refusal, match="a:x: two seams of this id") as caught:
        collect(model, [seam("a"), other], ONE, lambda _: None)
    assert caught.value.reason is Reason.CONFLICT


def test_a_part_in_training_mode_is_refused() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Identity()).eval()
    model[0].train()
    with pytest.raises(Refusal, match="0: a part of the model is in training") as caught:
        collect(model, [seam("a", "1")], ONE, lambda _: None)
    assert caught.value.reason is Reason.TRAINING


@pytest.mark.parametrize("name", [1, None, "", ("a",)])
def test_an_id_that_is_not_text_is_refused(name: Any) -> None:
    with pytest.raises(Refusal, match="id of a frame") as caught:
        collect(host(), [seam("a")], [*ONE, Frame(name)], lambda _: None)
    assert caught.value.reason is Reason.CONFLICT


@pytest.mark.parametrize(
    "asked", ["99", True, None, [99.0], 10**5000, float("nan")], ids=lambda v: type(v).__name__
)
def test_a_percentile_is_a_number(asked: Any) -> None:
    for refuses in (lambda: effective_percentile(asked, 8), lambda: TopK(1, 8, asked)):
        with pytest.raises(Refusal, match="is not a percentile") as caught:
            refuses()
        assert caught.value.reason is Reason.PERCENTILE


@pytest.mark.parametrize("asked", ["amax", True, 0, ["amax"], Statistic("amax", "tensor")], ids=str)
def test_a_statistic_is_a_statistic(asked: Any) -> None:
    with pytest.raises(Refusal, match="is no statistic") as caught:
        collect(host(), [seam("a")], ONE, lambda _: None, statistics={("a", "x"): asked})
    assert caught.value.reason is Reason.PERCENTILE


@pytest.mark.parametrize("most", [1.5, True, "3", -1, 10**30])
def test_max_samples_is_a_whole_number(most: Any) -> None:
    with pytest.raises(Refusal, match="max_samples is") as caught:
        choose(ONE, most, 0)
    assert caught.value.reason is Reason.CONFLICT
