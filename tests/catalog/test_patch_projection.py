"""patch_projection against real patch embeddings and convolutions over whole volumes."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3VLConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionPatchEmbed

from flashrt.spec import load, load_reference
from flashrt.spec.reference import Reference
from flashrt_runtime.reason import Reason, Refusal


@pytest.fixture(scope="module")
def projection() -> Reference:
    return load_reference(load("patch_projection"))


def cut(volume: torch.Tensor, kernel: tuple[int, int, int]) -> torch.Tensor:
    """A volume [B, C, T, H, W] as rows of whole patches [B, patches, C*Pt*Ph*Pw]."""
    batch, channels = volume.shape[:2]
    for axis, size in enumerate(kernel, start=2):
        volume = volume.unfold(axis, size, size)
    return volume.permute(0, 2, 3, 4, 1, 5, 6, 7).reshape(batch, -1, channels * _product(kernel))


def _product(kernel: tuple[int, int, int]) -> int:
    return kernel[0] * kernel[1] * kernel[2]


@pytest.mark.parametrize("lead", [(1,), (6,), (2, 3)])
def test_it_is_qwen3_vls_patch_embedding(projection: Reference, lead: tuple[int, ...]) -> None:
    sizes = {"patch_size": 4, "temporal_patch_size": 2, "in_channels": 3, "hidden_size": 20}
    config = Qwen3VLConfig(vision_config=sizes).vision_config
    embed = Qwen3VLVisionPatchEmbed(config).requires_grad_(False)
    x = torch.randn(*lead, 3 * 2 * 4 * 4)
    weights = {"weight": embed.proj.weight, "bias": embed.proj.bias}
    got = projection.run({"x": x}, weights, {"bias": "present"})["y"]
    assert got.shape == (*lead, 20)
    torch.testing.assert_close(got.reshape(-1, 20), embed(x))


@pytest.mark.parametrize("kernel", [(2, 3, 4), (1, 2, 2), (1, 1, 1)])
def test_it_is_the_convolution_of_the_whole_volume(
    projection: Reference, kernel: tuple[int, int, int]
) -> None:
    conv = torch.nn.Conv3d(5, 8, kernel, stride=kernel, bias=False).requires_grad_(False)
    volume = torch.randn(2, 5, 2 * kernel[0], 3 * kernel[1], 2 * kernel[2])
    expected = conv(volume).flatten(2).transpose(1, 2)
    x = cut(volume, kernel)
    got = projection.run({"x": x}, {"weight": conv.weight}, {"bias": "none"})["y"]
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert projection.dims({"x": x}, {"weight": conv.weight}, {"bias": "none"}) == {
        "M": 2 * 2 * 3 * 2,
        "N": 8,
        "C": 5,
        "Pt": kernel[0],
        "Ph": kernel[1],
        "Pw": kernel[2],
    }


def test_sums_are_float32_at_a_bfloat16_boundary(projection: Reference) -> None:
    conv = torch.nn.Conv3d(32, 8, (2, 8, 8)).bfloat16().requires_grad_(False)
    x = torch.randn(3, 32 * 128).bfloat16()
    weights = {"weight": conv.weight, "bias": conv.bias}
    got = projection.run({"x": x}, weights, {"bias": "present"})["y"]
    exact = conv.double()(x.double().view(3, 32, 2, 8, 8)).flatten(1)
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got.double(), exact, rtol=2**-8, atol=1e-3)


def test_a_last_dim_that_is_not_one_whole_patch_is_refused(projection: Reference) -> None:
    weights = {"weight": torch.randn(8, 3, 2, 4, 4)}
    with pytest.raises(Refusal, match=r"x axis 1 says .* = 48, but weight") as caught:
        projection.run({"x": torch.randn(2, 48)}, weights, {"bias": "none"})
    assert caught.value.reason is Reason.SHAPE


def test_cost_is_the_hand_count(projection: Reference) -> None:
    sizes = {"M": 2, "N": 5, "C": 3, "Pt": 2, "Ph": 4, "Pw": 7}
    patch = 3 * 2 * 4 * 7
    bare = projection.cost(sizes, {"bias": "none"})
    assert bare.flops == 2 * 2 * 5 * patch
    assert bare.bytes == 4 * (5 * patch + 2 * patch + 2 * 5)
    biased = projection.cost(sizes, {"bias": "present"}, 1.0, 2.0)
    assert biased.flops == bare.flops + 2 * 5
    assert biased.bytes == 5 * patch + 2 * (5 + 2 * patch + 2 * 5)
