"""A measuring process: its progress, its death, and that nothing it started outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from flashrt.qualify import processes
from flashrt.qualify.job import Job
from flashrt.qualify.processes import run_process
from flashrt.qualify.request import Budget
from flashrt_runtime.reason import Reason, Refusal

JOB = Job("host", "frames", (), {}, Budget(threads=3), {}, (), 0, 1)


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Replace the worker's program; ``sys.argv`` is the same as the real one's."""

    def use(program):
        script = tmp_path / "worker.py"
        script.write_text(f"import json, os, sys, time\n{program}")
        start = subprocess.Popen

        def popen(command, **options):
            assert command[:3] == [sys.executable, "-m", "flashrt.qualify.worker"]
            return start([sys.executable, str(script), *command[3:]], **options)

        monkeypatch.setattr(processes.subprocess, "Popen", popen)

    return use


def gone(pid):
    """Whether a process has ended (a zombie that nobody reaped has)."""
    for _ in range(500):
        try:
            with open(f"/proc/{pid}/stat") as handle:
                if handle.read().rpartition(")")[2].split()[0] in "ZX":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_evidence_comes_back_and_only_progress_is_told(worker):
    worker(
        "print('@ capture'); print('noise @ here'); print('@broken'); print(' @ x')\n"
        "print('@ race', flush=True); sys.stderr.write('@ from stderr\\n')\n"
        "job = json.load(open(sys.argv[1]))\n"
        "open(sys.argv[2], 'w').write(json.dumps({'threads': os.environ['OMP_NUM_THREADS'],"
        " 'process': job['process']}))"
    )
    told = []
    assert run_process(JOB, told.append) == {"threads": "3", "process": 1}
    assert told == ["capture", "race", "from stderr"]


def test_a_process_that_fails_is_refused_with_its_last_lines(worker):
    worker("print('\\n'.join(f'line {i}' for i in range(50)))\nraise SystemExit('out of luck')")
    told = []
    with pytest.raises(Refusal) as caught:
        run_process(JOB, told.append)
    assert caught.value.reason is Reason.INCOMPLETE
    assert caught.value.subject == "process 1"
    assert "code 1" in caught.value.what
    assert "line 49 | out of luck" in caught.value.what
    assert "line 40" not in caught.value.what
    assert told == []


def test_a_process_that_ends_well_without_evidence_is_refused(worker):
    worker("print('done')")
    with pytest.raises(Refusal) as caught:
        run_process(JOB, lambda text: None)
    assert caught.value.reason is Reason.INCOMPLETE
    assert "code 0: done" in caught.value.what


def test_a_killed_process_takes_its_helpers_with_it(worker):
    worker(
        "import subprocess\n"
        "helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(f'@ {helper.pid}', flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    told = []
    with pytest.raises(Refusal) as caught:
        run_process(JOB, told.append)
    assert caught.value.reason is Reason.INCOMPLETE
    assert "code -9" in caught.value.what
    assert gone(int(told[0]))


def test_helpers_that_a_finished_process_left_behind_are_ended(worker):
    worker(
        "import subprocess\n"
        "helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(f'@ {helper.pid}', flush=True)\n"
        "open(sys.argv[2], 'w').write('{}')"
    )
    told = []
    assert run_process(JOB, told.append) == {}
    assert gone(int(told[0]))


def test_an_interrupt_ends_the_process_first(worker):
    worker("print(f'@ {os.getpid()}', flush=True)\ntime.sleep(600)")
    told = []

    def interrupt(text):
        told.append(text)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_process(JOB, interrupt)
    assert gone(int(told[0]))


def test_a_terminals_interrupt_reaches_the_parent_alone(worker):
    before = signal.getsignal(signal.SIGINT)  # ignored where the tests run in the background
    worker("print(f'@ {os.getpgid(0)}', flush=True)\nopen(sys.argv[2], 'w').write('{}')")
    told = []
    run_process(JOB, told.append)
    assert int(told[0]) != os.getpgid(0)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_real_worker_dies_of_a_host_that_is_not_there(tmp_path):
    job = Job(
        f"transformers:{tmp_path}/absent", "text:none", (), {}, Budget(threads=1), {}, (), 0, 0
    )
    with pytest.raises(Refusal) as caught:
        run_process(job, lambda text: None)
    assert caught.value.reason is Reason.INCOMPLETE
    assert "FRT051 HOST" in caught.value.what
