"""Designs: those of the catalog are whole, and a wrong one is refused where it is wrong."""

import re

import pytest

from flashrt.document.problem import InputError
from flashrt.document.yaml_source import parse_yaml
from flashrt.lab import ontology
from flashrt.lab.execution import controls, design_of, find_design, list_designs, problems_of
from flashrt.lab.execution.design import designs_root
from flashrt_runtime.reason import Reason

NAMES = sorted(path.stem for path in designs_root().glob("*.yaml"))


def changed(name, *changes):
    text = (designs_root() / f"{name}.yaml").read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return parse_yaml(text.encode(), "mine.yaml")


def test_the_catalog_asks_at_least_eight_questions_and_no_two_alike():
    designs = [found.design for found in list_designs()]
    assert len(designs) >= 8
    questions = {design.question for design in designs}
    assert len(questions) == len(designs)
    assert all(question.endswith("?") for question in questions)


@pytest.mark.parametrize("name", NAMES)
def test_each_design_is_whole(name):
    found = find_design(name)
    design = found.design
    assert design.name == name
    assert len(found.arms) >= 2
    contract = design.contract
    assert contract.executed
    assert contract.assumed
    assert contract.absent
    assert len(contract.concludes) > 40
    assert design.missing_controls
    assert not {one.control for one in design.missing_controls} & set(controls())
    owners = {owner.name for owner in ontology.load().owners}
    assert set(design.subjects) <= owners
    for arm in found.arms:
        setup = found.setup(arm)
        assert setup.design.arm == arm
        assert setup.design.digest == found.digest


def test_an_arm_must_be_named_where_there_are_several():
    with pytest.raises(InputError, match=r"it has 3 arms; give --arm: one of one, two, four"):
        find_design("rotation").setup(None)
    with pytest.raises(InputError, match=r"it has no arm 'five'"):
        find_design("rotation").setup("five")


def test_a_name_of_no_design_lists_those_there_are():
    with pytest.raises(InputError, match="rotation") as found:
        find_design("rotations")
    assert found.value.reason is Reason.UNKNOWN_CELL


def test_a_file_of_ones_own_is_read(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes((designs_root() / "rotation.yaml").read_bytes())
    assert find_design(str(path)).design == find_design("rotation").design


DEVICE = "    - {control: kv_cache.device_kv_bytes, setting: 1048576, subject: KVCache}\n"
ONE = "{control: scheduling.max_active_requests, setting: 1, subject: RequestScheduling}"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            DEVICE,
            DEVICE + DEVICE,
            r"\$\.arms\[0\]: kv_cache\.device_kv_bytes: it is assigned twice",
        ),
        (DEVICE, "", r"no setting for kv_cache\.device_kv_bytes"),
        (DEVICE, f"{DEVICE}    - {ONE}\n", "it is assigned twice: 1 and 1"),
        ("device_kv_bytes", "device_bytes", "no control has this path"),
        ("setting: 1048576", "setting: -1", "is below 0"),
        ("setting: 1048576", "setting: 1.5", r"\$\.settings\.controls\[0\]\.setting"),
        ("name: two", "name: one", "an arm before is named 'one' too"),
        ("request_id: short_1", "request_id: long", "several requests are named 'long'"),
        ("flashrt.lab.design/1", "flashrt.lab.design/2", r"\$\.schema: it is not flashrt"),
        ("question:", "questions:", r"\$\.questions: there is no such field"),
        ("max_output_tokens: 12", "max_output_tokens: 0", "is below 1"),
        ("arrival_us: 0", "arrival_us: 0.5", r"arrival_us"),
        ("name: rotation", r'name: "a\nb"', r"\$\.name: 'a\\nb' is no name"),
        ("name: two", 'name: ""', r"\$\.arms\[1\]\.name: '' is no name"),
    ],
)
def test_what_is_wrong_in_a_design_is_named_with_its_line(old, new, said):
    document = changed("rotation", (old, new))
    problems = problems_of(document)
    assert problems
    text = "\n".join(map(str, problems))
    assert re.search(said, text), text
    assert all(problem.file == "mine.yaml" and problem.line >= 1 for problem in problems)
    with pytest.raises(InputError):
        design_of(document)


@pytest.mark.parametrize(
    ("line", "said"), [('question: " "', "it asks nothing"), ("subjects: []", "about no owner")]
)
def test_a_design_asks_something_about_somebody(line, said):
    text = (designs_root() / "rotation.yaml").read_text()
    key = line.partition(":")[0]
    text = re.sub(rf"(?m)^{key}:.*$", line, text)
    assert said in str(problems_of(parse_yaml(text.encode(), "mine.yaml"))[0])


def test_a_problem_stands_at_the_line_of_its_arm():
    document = changed("rotation", ("name: two", "name: one"))
    line = problems_of(document)[0].line
    assert document.value["arms"][1]["name"] == "one"
    assert line == document.line("$.arms[1]") > document.line("$.arms[0]")


def test_a_design_without_arms_or_requests_is_refused():
    body = changed("slow_reader").value
    text = (designs_root() / "slow_reader.yaml").read_text()
    assert body["workload"] == {"requests": []}
    assert problems_of(parse_yaml(text.encode(), "mine.yaml")) == []
    cut = text[: text.index("customers:")]
    assert "no request is made" in str(problems_of(parse_yaml(cut.encode(), "mine.yaml"))[0])
    start, end = text.index("arms:"), text.index("missing_controls:")
    none = text[:start] + "arms: []\n" + text[end:]
    assert "it has no arm" in str(problems_of(parse_yaml(none.encode(), "mine.yaml"))[0])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("transfer.link_bytes_per_us, setting: 500", "transfer.link_bytes_per_us, setting: 400",
         "the spec sets 400, and what is placed in the graph has 500"),
        ("compute_flops_per_us, setting: 10000", "compute_flops_per_us, setting: 1",
         "the spec sets 1, and what is placed in the graph has 10000"),
        ("device_node: accelerator", "device_node: gpu", "gpu"),
        ("to_device: [down_1, down_2]", "to_device: [down_2, down_1]", "down"),
    ],
)  # fmt: skip
def test_a_graph_that_says_something_else_than_the_spec_is_refused(old, new, said):
    problems = problems_of(changed("two_hops", (old, new)))
    assert said in "\n".join(map(str, problems))


def test_what_is_no_mapping_is_refused():
    assert "an object was expected" in str(problems_of(parse_yaml(b"- 1\n", "mine.yaml"))[0])
