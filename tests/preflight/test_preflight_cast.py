"""The interpreter's float casts, delegated to torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl

from flashrt.qualify.preflight_interpreter import torch_cast

HOLDERS = {8: torch.uint8, 16: torch.int16, 32: torch.int32}
EDGES = (0.4887, 500.0, 448.0, -448.0, 1e-9, 0.0, -0.0, 1.0625, 240.0, 3.0e38)


def refused(*arguments: Any) -> Any:
    raise AssertionError(f"the original conversion was asked: {arguments}")


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        (tl.float8e4nv, torch.float8_e4m3fn),
        (tl.float8e5, torch.float8_e5m2),
        (tl.bfloat16, torch.bfloat16),
        (tl.float16, torch.float16),
    ],
)
def test_down_casts_are_torch_s(target: Any, dtype: torch.dtype) -> None:
    values = torch.cat([torch.tensor(EDGES), torch.randn(200)]).reshape(-1, 10)
    bits = torch_cast(refused)(values.numpy(), tl.float32, target, None)
    expected = values.to(dtype).view(HOLDERS[target.primitive_bitwidth])
    assert bits.shape == values.shape
    assert np.array_equal(bits, expected.numpy().view(bits.dtype))


def test_up_casts_come_back_whole() -> None:
    values = torch.randn(32).to(torch.bfloat16)
    bits = values.view(torch.int16).numpy().view(np.uint16)
    wide = torch_cast(refused)(bits, tl.bfloat16, tl.float32, None).view(np.float32)
    assert np.array_equal(wide, values.float().numpy())


def test_a_dtype_that_torch_lacks_goes_to_the_original() -> None:
    asked: list[Any] = []

    def original(*arguments: Any) -> str:
        asked.append(arguments)
        return "original"

    assert torch_cast(original)(np.zeros(1), tl.float32, tl.float8e4b15, None) == "original"
    assert len(asked) == 1
