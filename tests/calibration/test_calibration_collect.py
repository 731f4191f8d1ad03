from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

from flashrt.calibration.collect import addresses_of, collect
from flashrt.calibration.kinds import capture_content
from flashrt.calibration.meter import Meter
from flashrt.calibration.statistic import (
    AMAX,
    Granularity,
    Kind,
    Statistic,
    require_measurable,
)
from flashrt.host.discovery import discover
from flashrt.host.seams import served
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason, Refusal

Build = Callable[..., nn.Module]


@dataclass(frozen=True)
class Tokens:
    id: str
    token_ids: torch.Tensor


FRAMES = [Tokens(f"f{i}", torch.arange(i, i + 12)) for i in range(4)]


def seams(model: nn.Module) -> tuple[Seam, ...]:
    return served(discover(model, lambda: model(torch.arange(12)[None])).seams)


def run(model: nn.Module) -> Callable[[Any], object]:
    return lambda frame: model(frame.token_ids[None])


def test_amax_is_what_the_host_saw(llama: Build) -> None:
    model = llama()
    found = seams(model)
    kept: dict[str, torch.Tensor] = {}
    down = model.get_submodule("model.layers.1.mlp.down_proj")
    handle = down.register_forward_pre_hook(lambda _m, args: kept.update(x=args[0].clone()))
    samples = collect(model, found, FRAMES, run(model))
    handle.remove()
    column = [a.name for a in samples.addresses].index("model.layers.1.mlp:act_after_mul")
    assert samples.amax[-1, column] == kept["x"].abs().max().item()
    assert samples.seen.all()
    assert samples.observations[column].record() == {
        "rows": [12, 12],
        "width": 96,
        "dtype": "float32",
    }
    assert samples.observations[column].calls == 4


def test_frames_in_another_order_give_the_same_samples(llama: Build) -> None:
    model = llama()
    found = seams(model)
    one = collect(model, found, FRAMES, run(model))
    two = collect(model, found, FRAMES[::-1], run(model))
    assert one.frames == two.frames
    assert (one.amax == two.amax).all()


def test_points_at_one_place_are_measured_once(
    llama: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = llama()
    found = seams(model)
    measured = []
    whole = torch.aminmax
    monkeypatch.setattr(torch, "aminmax", lambda t, out: measured.append(1) or whole(t, out=out))
    samples = collect(model, found, FRAMES[:1], run(model))
    # two layers of: q, k, v and o input, feed-forward input, product; and the head
    assert len(measured) == 13
    assert len(samples.addresses) == 15
    by_name = dict(zip([a.name for a in samples.addresses], samples.amax[0], strict=True))
    q, v = (f"model.layers.0.self_attn.{n}_proj:x" for n in "qv")
    assert by_name[q] == by_name[v] == by_name["model.layers.0.self_attn.qkv:x"]


class Loop(nn.Module):
    """Calls one projection several times in a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(4, 4, bias=False)
        self.unused = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for scale in (1.0, 8.0, 2.0):
            self.step(x * scale)
        return x


def loop_seam(module: str, capture: str = "input") -> Seam:
    return Seam(
        module, "linear_proj@1", {"self": module}, {}, {}, {}, {"x": Point(module, capture)}
    )


@dataclass(frozen=True)
class Values:
    id: str
    values: torch.Tensor


def test_within_a_frame_the_maximum_over_calls_is_kept() -> None:
    model = Loop().eval()
    frames = [Values("a", -torch.ones(2, 4)), Values("b", torch.full((3, 4), 0.5))]
    samples = collect(
        model, [loop_seam("step"), loop_seam("unused")], frames, lambda f: model(f.values)
    )
    assert samples.amax[:, 0].tolist() == [8.0, 4.0]
    assert samples.seen.tolist() == [[True, False], [True, False]]
    assert samples.observations[0].record()["rows"] == [2, 3]
    assert samples.observations[1] is None


def test_the_output_of_a_module_can_be_a_point() -> None:
    model = Loop().eval()
    nn.init.eye_(model.step.weight)
    frames = [Values("a", torch.ones(2, 4))]
    samples = collect(model, [loop_seam("step", "output")], frames, lambda f: model(f.values))
    assert samples.amax[0, 0] == 8.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_names_frame_and_point(bad: float) -> None:
    model = Loop().eval()
    values = torch.ones(2, 4)
    values[1, 2] = bad
    frames = [Values("good", torch.ones(2, 4)), Values("zbad", values)]
    with pytest.raises(Refusal, match=r"frame zbad: step:x was NaN") as caught:
        collect(model, [loop_seam("step")], frames, lambda f: model(f.values))
    assert caught.value.reason is Reason.NONFINITE
    assert not model.step._forward_pre_hooks


def test_a_nan_weight_is_found_at_the_first_point_it_reaches(llama: Build) -> None:
    model = llama()
    found = seams(model)
    model.get_submodule("model.layers.0.mlp.up_proj").weight.data[3, 5] = float("nan")
    with pytest.raises(Refusal, match=r"model\.layers\.0\.mlp:act_after_mul"):
        collect(model, found, FRAMES, run(model))


def test_hooks_go_when_the_forward_fails(llama: Build) -> None:
    model = llama()
    found = seams(model)

    def fails(_frame: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(model, found, FRAMES, fails)
    assert all(not m._forward_pre_hooks for m in model.modules())


def test_a_point_that_nothing_locates_is_refused(llama: Build) -> None:
    model = llama()
    seam = seams(model)[0]
    lost = replace(seam, points={"x": Point("model.nowhere", "input")})
    with pytest.raises(Refusal, match="not in the host") as caught:
        collect(model, [lost], FRAMES, run(model))
    assert caught.value.reason is Reason.BINDING
    with pytest.raises(Refusal):
        Meter(model, addresses_of([replace(seam, points={"x": Point(seam.id, "sideways")})]))


def test_no_frames_twice_a_frame_and_training_are_refused(llama: Build) -> None:
    model = llama()
    found = seams(model)
    for frames, reason in (([], Reason.EMPTY_CORPUS), (FRAMES[:1] * 2, Reason.CONFLICT)):
        with pytest.raises(Refusal) as caught:
            collect(model, found, frames, run(model))
        assert caught.value.reason is reason
    with pytest.raises(Refusal) as caught:
        collect(model.train(), found, FRAMES, run(model))
    assert caught.value.reason is Reason.TRAINING


def test_a_statistic_that_nothing_measures_names_the_collector() -> None:
    require_measurable(AMAX, "s:x")
    require_measurable(None, "s:x")
    wanted = Statistic(Kind.SECOND_MOMENT, Granularity.BLOCK_32)
    with pytest.raises(Refusal, match="add a collector for second_moment per block_32") as caught:
        require_measurable(wanted, "s:x")
    assert caught.value.reason is Reason.PERCENTILE


def test_content_is_kept_whole() -> None:
    model = Loop().eval()
    x = torch.ones(2, 4)
    content = capture_content(model, Point("step", "input"), lambda: model(x))
    assert torch.equal(content.tensor, x * 2.0)
    with pytest.raises(Refusal) as caught:
        capture_content(model, Point("unused", "input"), lambda: model(x))
    assert caught.value.reason is Reason.NEVER_CALLED


class Restless(nn.Module):
    """q, k and v whose calls go wrong in one frame: in another order, or on another tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, way: str) -> torch.Tensor:
        order = "qvk" if way == "order" else "qk" if way == "fewer" else "qkv"
        read = {"q": x, "k": x, "v": x + 0 if way == "copy" else x}
        if way == "write":
            self.q(x)
            x.mul_(2.0)
            order = "kv"
        parts = [getattr(self, name)(read[name]) for name in order]
        return torch.cat(parts, dim=-1)


@dataclass(frozen=True)
class Way:
    id: str
    way: str


@pytest.mark.parametrize("way", ["order", "copy", "fewer", "write"])
def test_siblings_are_watched_in_every_frame(way: str) -> None:
    model = Restless().eval()
    members = {role: role for role in "qkv"}
    packs = [Seam("qkv", "qkv_pack@1", members, {}, {}, {}, {"x": Point("q", "input")})]
    steady = [Way("a", ""), Way("b", "")]

    def one(frame: Way) -> object:
        return model(torch.randn(3, 8), frame.way)

    assert collect(model, packs, steady, one).frames == ("a", "b")
    with pytest.raises(Refusal, match="frame c") as caught:
        collect(model, packs, [*steady, Way("c", way)], one)
    assert caught.value.reason is Reason.SHARED_INPUT
    assert not any(m._forward_pre_hooks for m in model.modules())
