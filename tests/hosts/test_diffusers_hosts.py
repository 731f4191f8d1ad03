"""Every diffusers host: its binding resolves, each region's reference gives the host's own numbers,
and a binding that says something untrue is refused or not proven."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from flashrt.binding import BindingSpec, bindings_root, load_binding, resolve
from flashrt.binding.proof import Proof, prove
from flashrt.document.problem import InputError
from flashrt.host.tiny import TinyHost, build
from flashrt_runtime.reason import Reason

# host: seams of the tiny host, structures the binding must have
HOSTS = {
    "wan22": (
        39,
        {
            "adaln_producer@1",
            "attention_core@1",
            "cadence_static@1",
            "linear_proj@1",
            "modnorm_qkv_chain@1",
            "norm_fused@1",
            "qkv_pack@1",
            "vision_ffn@1",
        },
    ),
    "cosmos3": (
        38,
        {
            "attention_core@1",
            "cadence_static@1",
            "decoder_ffn@1",
            "linear_proj@1",
            "qk_norm_rope@1",
            "qkv_pack@1",
        },
    ),
    "cosmos": (
        52,
        {
            "adaln_producer@1",
            "attention_core@1",
            "cadence_static@1",
            "linear_proj@1",
            "modnorm_qkv_chain@1",
            "qk_norm_rope@1",
            "qkv_pack@1",
        },
    ),
    "dit": (
        24,
        {
            "adaln_producer@1",
            "attention_core@1",
            "linear_proj@1",
            "modnorm_qkv_chain@1",
            "qkv_pack@1",
            "vision_ffn@1",
        },
    ),
}
HOSTS |= {"qwenimage": (40, HOSTS["dit"][1]), "flux": (58, HOSTS["dit"][1])}
# Outputs that the host shows in no call; nothing proves them.
UNSEEN = {"cosmos3": {("video_qk_rope", "k"), ("video_qk_rope", "v")}}
VIDEO = ("wan22", "cosmos3", "cosmos")


@pytest.fixture(scope="module", params=HOSTS)
def host(request: pytest.FixtureRequest) -> TinyHost:
    return build(request.param)


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str, str, str], BindingSpec]:
    """A packaged binding with the first occurrence of one text replaced."""

    def load(name: str, old: str, new: str) -> BindingSpec:
        text = (bindings_root() / f"{name}.yaml").read_text()
        assert old in text
        file = tmp_path / f"{name}.yaml"
        file.write_text(text.replace(old, new, 1))
        return load_binding(file)

    return load


def _failed(proofs: list[Proof]) -> set[tuple[str, str]]:
    return {(p.region, p.output) for p in proofs if not p.ok and not p.unseen}


def test_every_path_resolves(host: TinyHost) -> None:
    seams, structures = HOSTS[host.name]
    found = resolve(load_binding(host.name), host.model)
    assert len(found) == seams
    assert {seam.structure for seam in found} == structures
    assert len({(seam.structure, seam.id) for seam in found}) == seams


def test_every_reference_gives_the_hosts_own_numbers(host: TinyHost) -> None:
    binding = load_binding(host.name)
    proofs = prove(binding, host.model, host.forward)
    assert [p for p in proofs if not p.ok and not p.unseen] == []
    assert {(p.region, p.output) for p in proofs if p.unseen} == UNSEEN.get(host.name, set())
    assert {p.region for p in proofs} == set(binding.regions)
    assert binding.provisional is None


def test_the_forward_is_the_same_every_time(host: TinyHost) -> None:
    before = {name: tensor.clone() for name, tensor in host.model.state_dict().items()}
    first, second = host.forward(), host.forward()
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert torch.equal(first, second)
    assert torch.isfinite(first).all()
    assert all(torch.equal(before[n], t) for n, t in host.model.state_dict().items())


@pytest.mark.parametrize("name", VIDEO)
def test_the_whole_hot_path_of_a_video_host_is_classified(name: str) -> None:
    pipeline = load_binding(name, require_pipeline_coverage=True).pipeline
    assert pipeline is not None
    assert pipeline.spec.id == "video_generation_pipeline@1"
    assert pipeline.stages == ("condition", "init", "step", "decode")
    covered = [part for segment in pipeline.segments for part in segment.covers]
    assert sorted(covered) == sorted(pipeline.hot_path)
    assert pipeline.windows["latent"].at == "latents"
    assert pipeline.steps is not None


@pytest.mark.parametrize("name", sorted(set(HOSTS) - set(VIDEO)))
def test_an_image_host_has_no_pipeline(name: str) -> None:
    with pytest.raises(InputError, match="no pipeline"):
        load_binding(name, require_pipeline_coverage=True)


@pytest.mark.parametrize("name", HOSTS)
def test_a_wrong_path_is_refused(
    name: str, changed: Callable[[str, str, str], BindingSpec]
) -> None:
    bad = changed(name, ".to_k.weight", ".to_kk.weight")
    with pytest.raises(InputError, match="no tensor") as caught:
        resolve(bad, build(name).model)
    assert any(p.reason is Reason.BINDING for p in caught.value.problems)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('norm1", capture: input, name: temb', 'norm9", capture: input, name: temb', "no module"),
        ("input, name: temb", "input, name: tembs", "takes no tembs"),
    ],
)
def test_a_wrong_second_address_is_refused_at_its_own_path(
    old: str, new: str, said: str, changed: Callable[[str, str, str], BindingSpec]
) -> None:
    host = build("cosmos")
    bad = changed("cosmos", old, new)
    with pytest.raises(InputError, match=said) as caught:
        resolve(bad, host.model)
    paths = {p.path for p in caught.value.problems}
    assert any(".boundary.inputs.scale.then[0].plus" in path for path in paths)


def test_an_attention_that_was_not_made_is_said(
    changed: Callable[[str, str, str], BindingSpec],
) -> None:
    host = build("cosmos3")
    bad = changed("cosmos3", "nth: 1, name: output", "nth: 2, name: output")
    proofs = prove(bad, host.model, host.forward)
    failed = [p for p in proofs if not p.ok and not p.unseen]
    assert {p.region for p in failed} == {"video_attention"}
    assert all("ran after the first 2" in p.why for p in failed)


def test_counting_attentions_of_an_input_is_refused(
    changed: Callable[[str, str, str], BindingSpec],
) -> None:
    with pytest.raises(InputError, match="does not allow 1"):
        changed(
            "cosmos3",
            "capture: input, name: rotary_emb",
            "capture: input, nth: 1, name: rotary_emb",
        )


@pytest.mark.parametrize(
    ("name", "old", "new", "region"),
    [
        ("wan22", "chunk: [6, 1, 1]", "chunk: [6, 1, 2]", "self_chain"),
        ("wan22", 'eps: "1e-06"', 'eps: "1e-01"', "self_chain"),
        ("cosmos3", "mask: causal", "mask: none", "text_attention"),
        ("cosmos3", "{item: 2}", "{item: 3}", "video_qk_rope"),
        ("dit", 'eps: "1e-06"', 'eps: "1.2e-06"', "self_chain"),
        ("cosmos", 'eps: "1e-05"', 'eps: "1e-06"', "self_qk_rope"),
        ("cosmos", "norm_k.weight", "norm_q.weight", "self_qk_rope"),
        ("cosmos", ", name: temb}", ", name: embedded_timestep}", "self_chain"),
        ("dit", "activation: silu", "activation: none", "tables"),
        ("qwenimage", "{chunk: [6, 1, 0]}", "{chunk: [6, 1, 3]}", "image_chain"),
        ("flux", 'table_count: "6"', 'table_count: "3"', "image_tables"),
    ],
)
def test_a_binding_that_says_something_untrue_is_not_proven(
    name: str, old: str, new: str, region: str, changed: Callable[[str, str, str], BindingSpec]
) -> None:
    host = build(name)
    bad = changed(name, old, new)
    failed = {r for r, _ in _failed(prove(bad, host.model, host.forward))}
    assert failed == {region}
