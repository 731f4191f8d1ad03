from dataclasses import replace

from flashrt.host.discovery.near_miss import NearMiss
from flashrt.host.match import match
from flashrt_runtime.contract import Point, Seam
from flashrt_runtime.reason import Reason

SEAM = Seam(
    id="a.qkv",
    structure="qkv_pack@1",
    members={"q": "a.q", "k": "a.k", "v": "a.v"},
    variant={"bias": "none"},
    dims={"D": 8},
    weights={"q": "a.q.weight", "k": "a.k.weight", "v": "a.v.weight"},
    points={"x": Point("a.q", "input")},
)


def test_names_and_sizes_that_only_one_side_knows_are_no_contradiction() -> None:
    other = replace(
        SEAM, id="a.other", members={"x": "a.v", "y": "a.q", "z": "a.k"}, dims={"D": 8, "Nq": 16}
    )  # the same three modules
    said = match([SEAM], [other])
    assert said.contradicted == said.unseen == ()


def test_another_variant_size_weight_or_point_is_a_contradiction() -> None:
    for field, other in {
        "variant": replace(SEAM, variant={"bias": "present"}),
        "dims": replace(SEAM, dims={"D": 9}),
        "weights": replace(SEAM, weights={**SEAM.weights, "v": "b.v.weight"}),
        "points": replace(SEAM, points={"x": Point("a.k", "input")}),
    }.items():
        said = match([SEAM], [other])
        assert [because.detail for because in said.contradicted] == [
            f"binding and discovery differ in {field}"
        ]
        assert said.contradicted[0].reason is Reason.BINDING
        assert said.contradicted[0].subject == "a.qkv"


def test_one_of_several_found_seams_that_agrees_is_enough() -> None:
    twice = [replace(SEAM, id="a.qkv.0", variant={"bias": "present"}), replace(SEAM, id="a.qkv.1")]
    assert match([SEAM], twice).contradicted == ()


def test_an_unseen_seam_says_what_discovery_said_there() -> None:
    miss = NearMiss.of("a.k", "qkv_pack@1", Reason.LAYOUT, "it reads a view")
    said = match([SEAM], [replace(SEAM, structure="linear_proj@1")], [miss])
    assert said.contradicted == ()
    assert said.unseen[0].reason is Reason.LAYOUT
    assert "it reads a view" in said.unseen[0].detail
    assert match([SEAM], []).unseen[0].reason is Reason.STRUCTURE


def test_what_is_bound_and_not_seen_says_why_it_cannot_be_seen() -> None:
    (other,) = match([SEAM], []).unseen
    assert other.reason is Reason.STRUCTURE
    assert "nothing at its modules was like it" in other.detail
    (cadence,) = match([replace(SEAM, structure="cadence_static@1")], []).unseen
    assert cadence.subject == "a.qkv"
    assert "a forward shows no schedule" in cadence.detail
