"""``flashrt lab`` and ``flashrt ledger --execution``, on the committed model."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashrt.document.canonical import canonical_bytes, seal
from flashrt_cli.main import run

COMMANDS = ("designs", "run", "sweep", "verify", "compare", "explain", "prepare")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A folder with a sweep's records in its default store; their digests by arm."""
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["lab", "sweep", "repeated_prompt"]) == 0
    digests = {}
    for path in (folder / ".flashrt" / "lab").iterdir():
        body = json.loads(path.read_bytes())
        digests[body["design"]["arm"]] = body["digest"]
    return folder, digests


@pytest.fixture
def lab(swept, monkeypatch, capsys):
    folder, digests = swept
    monkeypatch.chdir(folder)
    capsys.readouterr()
    return digests


def result(capsys, *args, code=0):
    assert run([*args, "--format", "json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_without_torch(name):
    script = (
        "import sys; from flashrt_cli.main import run; "
        f"code = run(['lab', {name!r}, '--help']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Usage" in done.stdout


def test_designs_are_listed_and_shown(capsys):
    listed = result(capsys, "lab", "designs")["designs"]
    assert len(listed) >= 8
    shown = result(capsys, "lab", "designs", "rotation")
    assert shown["question"] in {one["question"] for one in listed}
    assert run(["lab", "designs", "rotation"]) == 0
    text = capsys.readouterr().out
    assert "scheduling.batch_size" in text
    assert "concludes:" in text
    assert run(["lab", "designs", "nothing"]) == 2


def test_a_sweep_tells_arms_apart(lab, capsys):
    arms = {one["arm"]: one for one in result(capsys, "lab", "sweep", "repeated_prompt")["arms"]}
    assert arms["none"]["reused_positions"] == 0
    assert arms["exact_prefix_lru"]["reused_positions"] > 0
    assert {arm: one["digest"] for arm, one in arms.items()} == lab
    assert all(one["other_outputs"] == [] for one in arms.values())


def test_a_refused_request_makes_no_arm_look_faster(lab, capsys, tmp_path):
    arms = result(capsys, "lab", "sweep", "refusals", "--store", str(tmp_path))["arms"]
    ceilings = next(arm for arm in arms if arm["arm"] == "ceilings")
    assert (ceilings["served"], ceilings["requests"]) == (1, 4)
    assert ceilings["mean_latency_us"] == ceilings["longest_latency_us"]


def test_a_run_shows_its_outcomes_and_keeps_its_record(lab, capsys):
    shown = result(capsys, "lab", "run", "repeated_prompt", "--arm", "none")
    assert shown["digest"] == lab["none"]
    assert [one["request_id"] for one in shown["outcomes"]] == ["first", "again", "other", "third"]
    assert run(["lab", "run", "repeated_prompt", "--arm", "none"]) == 0
    assert "of virtual time" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["repeated_prompt"], "it has 2 arms"),
        (["repeated_prompt", "--arm", "x"], "it has no arm 'x'"),
        (
            ["repeated_prompt", "--arm", "none", "--set", "kv_cache.host_kv_bytes=0"],
            "twice: 0 and 0",
        ),
        (["repeated_prompt", "--arm", "none", "--set", "kv_cache.host"], "no = in it"),
        (["repeated_prompt", "--arm", "none", "--set", "host=1"], "no control has this path"),
        (["repeated_prompt", "--arm", "none", "--artifact", "nowhere"], "nowhere"),
        (["repeated_prompt", "--arm", "none", "--store", ""], "an empty name is no folder"),
    ],
)  # fmt: skip
def test_a_run_that_is_refused_says_why(lab, capsys, args, said):
    assert run(["lab", "run", *args]) == 2
    assert said in capsys.readouterr().err


def test_a_control_that_the_arm_leaves_open_may_be_set(lab, capsys, tmp_path):
    args = ["--set", "ceilings.max_requests=1", "--store", str(tmp_path)]
    shown = result(capsys, "lab", "run", "repeated_prompt", "--arm", "none", *args)
    assert shown["design"] is None
    assert [one["stop_reason"] for one in shown["outcomes"]].count("refused") == 3


def test_verify_repeats_every_record(lab, capsys):
    shown = result(capsys, "lab", "verify")
    assert shown["verified"]
    assert {one["repeats"] for one in shown["records"]} == {"reproduced"}
    shown = result(capsys, "lab", "verify", lab["none"], "--no-rerun")
    assert [one["repeats"] for one in shown["records"]] == ["-"]


def body_of(digest):
    return json.loads(Path(f".flashrt/lab/{digest.removeprefix('sha256:')}.json").read_bytes())


def test_a_changed_record_is_refused(lab, capsys, tmp_path):
    body = body_of(lab["none"])
    path = tmp_path / "changed.json"
    path.write_bytes(canonical_bytes(body | {"events": []}))
    assert run(["lab", "verify", str(path)]) == 2
    assert "changed after it was sealed" in capsys.readouterr().out


def test_a_record_that_does_not_follow_fails(lab, capsys, tmp_path):
    body = body_of(lab["none"])
    body["ledger"][0]["latency_us"] = 1
    path = tmp_path / "forged.json"
    path.write_bytes(canonical_bytes(seal(body)))
    assert run(["lab", "verify", str(path), "--no-rerun"]) == 1
    assert "the ledger says 1 us" in capsys.readouterr().out


def test_another_binding_is_said_and_is_no_failure(lab, capsys, tmp_path, monkeypatch):
    from flashrt.lab.execution import provenance
    from flashrt.record import Provenance

    there = provenance.provenance()
    other = Provenance("sha256:" + "0" * 64, there.python, there.git)
    monkeypatch.setattr(provenance, "provenance", lambda: other)
    shown = result(capsys, "lab", "verify", lab["none"], code=3)
    assert shown["verified"]
    record = shown["records"][0]
    assert record["repeats"] == "another binding; all evidence is the same"
    assert [one["subject"] for one in record["bindings"]] == ["provenance.source_digest"]


def test_a_record_that_is_not_reproduced_fails(lab, capsys, tmp_path):
    body = body_of(lab["none"])
    body["outcomes"][0]["display"] = "something else"
    path = tmp_path / "forged.json"
    path.write_bytes(canonical_bytes(seal(body)))
    assert run(["lab", "verify", str(path)]) == 1
    said = capsys.readouterr().out
    assert "executed again under the same binding it has another digest" in said


def test_compare_finds_the_first_diverging_event(lab, capsys):
    shown = result(capsys, "lab", "compare", lab["none"], lab["exact_prefix_lru"])
    assert shown["outputs_identical"]
    assert shown["logits_equal"] == shown["logits_compared"] > 0
    parting = shown["first_diverging_event"]
    assert parting["first"]["kind"] != parting["second"]["kind"] == "retained"
    assert run(["lab", "compare", lab["none"], lab["none"]]) == 0
    assert "first diverging event: none" in capsys.readouterr().out
    assert run(["lab", "compare", lab["none"], "000000"]) == 2


def test_the_segments_of_a_chain_sum_to_the_latency(lab, capsys):
    from flashrt.record import exact

    shown = result(capsys, "lab", "explain", lab["exact_prefix_lru"], "again")
    parts = [exact(one["us"]) for one in shown["segments"]]
    assert sum(parts) == exact(shown["latency_us"]) > 0
    assert sum(map(exact, shown["spent_us"].values())) == exact(shown["latency_us"])
    assert run(["lab", "explain", lab["none"], "again"]) == 0
    assert "exactly the latency" in capsys.readouterr().out
    assert run(["lab", "explain", lab["none"], "nobody"]) == 2


def test_the_ledger_accounts_for_an_executions_positions(lab, capsys):
    shown = result(capsys, "ledger", "--execution", lab["exact_prefix_lru"])
    assert shown["total"]["reused_positions"] > 0
    assert len(shown["requests"]) == 4
    assert run(["ledger", "--execution", lab["none"]]) == 0
    assert "nothing was reused" in capsys.readouterr().out
    assert run(["ledger", "other.jsonl", "--execution", lab["none"]]) == 2


def test_prepare_overwrites_nothing(tmp_path, capsys):
    (tmp_path / "there").mkdir()
    assert run(["lab", "prepare", "--out", str(tmp_path / "there")]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err


def test_prepare_writes_an_artifact_that_runs(tmp_path, capsys, monkeypatch):
    from flashrt.lab import model

    def quick(folder, *, seed, steps, progress):
        progress(steps, steps, 1.0)
        assert (seed, steps) == (3, 2)
        return model.LoadedArtifact.load()

    monkeypatch.setattr(model, "prepare", quick)
    out = str(tmp_path / "new")
    shown = result(capsys, "lab", "prepare", "--out", out, "--seed", "3", "--steps", "2")
    assert shown["folder"] == out
    assert shown["model_artifact"]["family"] == "tiny_gpt"


def test_an_absent_store_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["lab", "verify", "--store", "nowhere"]) == 2
    assert "there is no store of the lab here" in capsys.readouterr().err
    assert result(capsys, "lab", "verify")["records"] == []


def test_what_both_refused_is_not_called_identical(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = []
    for arm in ("ceilings", "no_ceiling"):
        assert run(["lab", "run", "refusals", "--arm", arm]) == 0
        names.append(re.search(r"\w{64}(?=\.json)", capsys.readouterr().out)[0])
    assert run(["lab", "compare", *names]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    said = {row[0]: " ".join(row[-3:]) for row in rows if row and row[0] in ("fits", "long_prompt")}
    assert said["fits"].endswith("identical")
    assert said["long_prompt"] == "none in both"
