"""vision_ffn, patch_projection, adaln_producer, modnorm_qkv_chain, cadence_static by capability."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

from flashrt.host.discovery import Discovery, discover
from flashrt.host.discovery.near_miss import (
    ADALN_PRODUCER,
    CADENCE_STATIC,
    MODNORM_QKV_CHAIN,
    PATCH_PROJECTION,
    QKV_PACK,
    VISION_FFN,
)
from flashrt_runtime.contract import Point
from flashrt_runtime.reason import Reason

D = 24
X = torch.randn(2, 7, D, generator=torch.Generator().manual_seed(0))


def find(model: nn.Module, *inputs: torch.Tensor) -> Discovery:
    torch.manual_seed(5)
    given = inputs or (X,)
    found = discover(model.eval(), lambda: model(*given))
    json.dumps(found.record())
    return found


def why(found: Discovery, path: str, structure: str) -> tuple[Reason, str]:
    return next(
        (m.because.reason, m.because.detail)
        for m in found.refusals
        if (m.path, m.structure) == (path, structure)
    )


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return f.gelu(x, approximate="tanh")


class Feed(nn.Module):
    """Two projections under names that lie; what else it does is asked for."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], does: str = "") -> None:
        super().__init__()
        torch.manual_seed(2)
        self.down = nn.Linear(D, 40, bias="bare" not in does)
        self.up = nn.Linear(40, D)
        self.first = nn.RMSNorm(D, eps=1e-6) if "rms" in does else nn.LayerNorm(D, eps=1e-6)
        nn.init.normal_(self.first.weight)
        self.gain = nn.Parameter(torch.randn(D))
        self.function, self.does = function, does

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x) if "norm" in self.does else x
        y = self.up(self.function(self.down(y)))
        y = y * self.gain if "scale" in self.does else y
        y = y * 2.0 if "double" in self.does else y
        return x + y if "add" in self.does else y


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *x: Any) -> Any:
        return self.inner(*x)


@pytest.mark.parametrize(("function", "name"), [(f.gelu, "gelu_erf"), (tanh_gelu, "gelu_tanh")])
@pytest.mark.parametrize("does", ["", "norm", "scale add", "norm scale add"])
def test_a_feed_forward_is_what_it_computes(
    function: Callable[[torch.Tensor], torch.Tensor], name: str, does: str
) -> None:
    (seam,) = find(Around(Feed(function, does))).of(VISION_FFN)
    assert seam.members == {"self": "inner"}
    assert seam.variant["activation"] == name
    assert seam.variant["norm"] == ("layer_affine" if "norm" in does else "host")
    assert seam.variant["layer_scale"] == ("present" if "scale" in does else "none")
    assert seam.variant["residual"] == ("add" if "add" in does else "host")
    assert seam.variant.get("eps") == ("1e-06" if "norm" in does else None)
    assert seam.weights["fc1"] == "inner.down.weight"
    assert seam.weights.get("layer_scale") == ("inner.gain" if "scale" in does else None)
    assert seam.weights.get("norm_bias") == ("inner.first.bias" if "norm" in does else None)
    assert seam.points["act_after_gelu"] == Point("inner.up", "input")


def test_small_values_are_probed_larger_to_tell_the_gelus_apart() -> None:
    for function, name in ((f.gelu, "gelu_erf"), (tanh_gelu, "gelu_tanh")):
        feed = Feed(function)
        with torch.no_grad():
            feed.down.weight.mul_(1e-3)
            feed.down.bias.mul_(1e-3)
        (seam,) = find(Around(feed)).of(VISION_FFN)
        assert seam.variant["activation"] == name


@pytest.mark.parametrize(
    ("does", "function", "reason", "says"),
    [
        ("bare", f.gelu, Reason.STRUCTURE, "no bias"),
        ("", f.silu, Reason.STRUCTURE, "its activation is silu"),
        ("norm rms", f.gelu, Reason.LAYOUT, "takes a LayerNorm"),
        ("double", f.gelu, Reason.LAYOUT, "other work after it"),
    ],
)
def test_what_is_nearly_a_vision_ffn_says_why_not(
    does: str, function: Callable[[torch.Tensor], torch.Tensor], reason: Reason, says: str
) -> None:
    found = find(Around(Feed(function, does)))
    assert found.of(VISION_FFN) == ()
    got, detail = why(found, "inner", VISION_FFN)
    assert got is reason
    assert says in detail


class Patches(nn.Module):
    """Reads flattened patches, or volumes where it says so."""

    def __init__(self, size: tuple[int, int, int] = (2, 4, 4), **conv: Any) -> None:
        super().__init__()
        torch.manual_seed(4)
        options = {"kernel_size": (2, 4, 4), "stride": (2, 4, 4)} | conv
        self.conv = nn.Conv3d(4, 16, **options)
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.view(-1, 4, *self.size)).flatten(1)


def rows(*size: int) -> torch.Tensor:
    count = 4
    for one in size:
        count *= one
    return torch.randn(6, count)


def test_whole_patches_times_one_kernel_are_found() -> None:
    (seam,) = find(Around(Patches()), rows(2, 4, 4)).of(PATCH_PROJECTION)
    assert seam.members == {"self": "inner"}
    assert seam.dims == {"N": 16, "C": 4, "Pt": 2, "Ph": 4, "Pw": 4}
    assert seam.weights == {"weight": "inner.conv.weight", "bias": "inner.conv.bias"}
    (bare,) = find(Around(Patches(bias=False)), rows(2, 4, 4)).of(PATCH_PROJECTION)
    assert bare.variant == {"bias": "none"}


@pytest.mark.parametrize(
    ("model", "size", "says"),
    [
        (Patches((2, 4, 4), stride=(2, 2, 2)), (2, 4, 4), "overlap"),
        (Patches((2, 4, 4), stride=(2, 6, 6)), (2, 4, 4), "leave gaps"),
        (Patches((2, 4, 4), padding=(0, 1, 1)), (2, 4, 4), "padded"),
        (Patches((3, 7, 7), dilation=2, stride=(2, 4, 4)), (3, 7, 7), "dilated"),
        (Patches((2, 4, 4), groups=2), (2, 4, 4), "2 groups"),
        (Patches((2, 8, 8)), (2, 8, 8), "ordinary volume"),
    ],
)
def test_kernels_that_slide_are_refused(
    model: nn.Module, size: tuple[int, int, int], says: str
) -> None:
    found = find(Around(model), rows(*size))
    assert found.of(PATCH_PROJECTION) == ()
    reason, detail = why(found, "inner.conv", PATCH_PROJECTION)
    assert reason is Reason.STRUCTURE
    assert says in detail


def test_images_and_bare_kernels_are_refused() -> None:
    image = find(Around(nn.Conv2d(3, 8, 4, stride=4)), torch.randn(1, 3, 8, 8))
    assert why(image, "inner", PATCH_PROJECTION)[0] is Reason.LAYOUT
    bare = find(Around(nn.Conv3d(4, 8, (2, 4, 4), stride=(2, 4, 4))), torch.randn(5, 4, 2, 4, 4))
    assert "no module around it" in why(bare, "inner", PATCH_PROJECTION)[1]

    class Positioned(Patches):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.arange(16.0)

    added = find(Around(Positioned()), rows(2, 4, 4))
    assert "not a patch times the kernel" in why(added, "inner.conv", PATCH_PROJECTION)[1]


class Adaptive(nn.Module):
    """A block whose norm is scaled and shifted by a condition before attention's projections."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        torch.manual_seed(6)
        self.how = how
        self.cond = nn.Sequential(nn.SiLU(), nn.Linear(16, 3 * D))
        self.n = nn.RMSNorm(D) if "rms" in how else nn.LayerNorm(D, elementwise_affine=False)
        self.a = nn.Linear(D, D, bias="half" in how)
        self.b, self.c = (nn.Linear(D, D, bias=False) for _ in range(2))
        self.pos = Positions() if "pos" in how else nn.Identity()
        self.table = nn.Parameter(torch.randn(1, 3, D))
        self.o = nn.Linear(D, D)

    def forward(self, x: torch.Tensor, cond: torch.Tensor) -> torch.Tensor:
        tables = self.cond(cond).unflatten(-1, (3, D))
        tables = tables + self.table if "base" in self.how else tables
        shift, scale, gate = tables.unbind(-2)
        y = self.n(x)
        y = self.pos(y) if "pos" in self.how else y * (1.0 + scale) + shift
        q = self.a(y)
        other = x if "cross" in self.how else y
        k, v = self.b(other), self.c(other)
        parts = (t.unflatten(-1, (-1, 4)).transpose(1, 2) for t in (q, k, v))
        mixed = nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        return x + gate * self.o(mixed)


class Positions(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.linspace(0.0, 1.0, x.shape[1])[:, None]


COND = torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(1))
BY_TOKEN = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("cond", [COND, BY_TOKEN])
def test_a_modulated_norm_and_what_modulates_it_are_found_by_value(cond: torch.Tensor) -> None:
    found = find(Adaptive(), X, cond)
    (chain,) = found.of(MODNORM_QKV_CHAIN)
    assert chain.members == {"norm": "n", "q": "a", "k": "b", "v": "c"}
    assert chain.variant == {
        "norm": "layer_identity",
        "eps": "1e-05",
        "attention": "self",
        "bias": "none",
    }
    assert chain.points == {"x_after_modulation": Point("a", "input")}
    (producer,) = found.of(ADALN_PRODUCER)
    assert producer.members == {"self": "cond"}
    assert producer.variant["activation"] == "silu"
    assert producer.dims == {"C": 16, "P": 3, "D": D}


def test_a_table_that_the_host_adds_stays_in_the_host() -> None:
    (producer,) = find(Adaptive("base"), X, COND).of(ADALN_PRODUCER)
    assert producer.variant == {
        "activation": "silu",
        "bias": "present",
        "base": "none",
        "table_count": "3",
    }


def test_the_query_alone_is_cross_attention() -> None:
    (chain,) = find(Adaptive("cross"), X, COND).of(MODNORM_QKV_CHAIN)
    assert chain.variant["attention"] == "cross"
    assert set(chain.weights) == {"q"}


@pytest.mark.parametrize(
    ("how", "reason", "says"),
    [
        ("pos", Reason.STRUCTURE, "pos stands between the norm n and the projections"),
        ("rms", Reason.STRUCTURE, "not a LayerNorm"),
        ("half", Reason.LAYOUT, "only some of q, k and v have a bias"),
    ],
)
def test_what_is_nearly_a_chain_says_why_not(how: str, reason: Reason, says: str) -> None:
    found = find(Adaptive(how), X, COND)
    assert found.of(MODNORM_QKV_CHAIN) == ()
    got, detail = why(found, "", MODNORM_QKV_CHAIN)
    assert got is reason
    assert says in detail


def test_a_plain_norm_is_no_chain_and_no_condition_produces_it() -> None:
    class Plain(Adaptive):
        def forward(self, x: torch.Tensor, cond: torch.Tensor) -> torch.Tensor:
            y = self.n(x)
            q = self.a(y)
            mixed = nn.functional.scaled_dot_product_attention(
                *(t.unflatten(-1, (-1, 4)).transpose(1, 2) for t in (q, self.b(y), self.c(y)))
            )
            return x + self.o(mixed.transpose(1, 2).flatten(2)) + 0.0 * self.cond(cond).mean()

    found = find(Plain(), X, COND)
    assert found.of(QKV_PACK)
    assert found.of(MODNORM_QKV_CHAIN) == found.of(ADALN_PRODUCER) == ()
    assert why(found, "", ADALN_PRODUCER)[0] is Reason.STRUCTURE


def test_what_is_computed_again_unchanged_is_an_opportunity_and_no_seam() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k, self.v, self.x = nn.Linear(D, 8), nn.Linear(D, 8), nn.Linear(8, 8)

        def forward(self, context: torch.Tensor) -> torch.Tensor:
            x = torch.ones(8)
            for _ in range(3):
                x = self.x(x) + self.k(context).mean() + self.v(context).mean()
            return x

    found = find(Steps(), X)
    assert found.of(CADENCE_STATIC) == ()
    reason, detail = why(found, "", CADENCE_STATIC)
    assert reason is Reason.KEPT_HOST
    assert "k, v read one unchanged tensor in all 3 calls" in detail
