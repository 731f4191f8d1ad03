"""What the bindings of the video hosts call static over the loop is, and what is not, is not."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

from flashrt.host.tiny import TinyHost, build


def _outputs(host: TinyHost, paths: list[str]) -> dict[str, list[torch.Tensor]]:
    """What each module returned in every step."""
    seen: dict[str, list[torch.Tensor]] = defaultdict(list)

    def watch(path: str) -> object:
        return lambda _module, _args, output: seen[path].append(output.clone())

    handles = [host.model.get_submodule(p).register_forward_hook(watch(p)) for p in paths]
    try:
        host.forward()
    finally:
        for handle in handles:
            handle.remove()
    return seen


@pytest.mark.parametrize(
    ("name", "static", "moving"),
    [
        ("wan22", "blocks.1.attn2.to_{}", "blocks.1.attn1.to_{}"),
        ("cosmos", "transformer_blocks.1.attn2.to_{}", "transformer_blocks.1.attn1.to_{}"),
        ("cosmos3", "layers.1.self_attn.to_{}", "layers.1.self_attn.add_{}_proj"),
    ],
)
def test_keys_and_values_of_the_condition_do_not_change_between_steps(
    name: str, static: str, moving: str
) -> None:
    seen = _outputs(build(name), [form.format(r) for form in (static, moving) for r in "kv"])
    assert {len(steps) for steps in seen.values()} == {2}
    for role in "kv":
        first, second = seen[static.format(role)]
        assert torch.equal(first, second)
        first, second = seen[moving.format(role)]
        assert not torch.equal(first, second)
