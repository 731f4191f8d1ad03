from __future__ import annotations

import os

import pytest

from flashrt.document.canonical import read_json
from flashrt.document.problem import InputError
from flashrt.document.read import read_regular
from flashrt.document.yaml_source import load_yaml


@pytest.mark.parametrize("read", [read_json, load_yaml, lambda p: read_regular(p, 10)])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="not a regular file"):
        read(tmp_path / "pipe.json")


@pytest.mark.parametrize("read", [read_json, load_yaml])
def test_a_device_behind_a_link_is_refused(tmp_path, read):
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="not a regular file"):
        read(tmp_path / "zero.yaml")


def test_a_file_over_the_limit_is_refused_unread(tmp_path):
    file = tmp_path / "large"
    file.write_bytes(b"x" * 11)
    with pytest.raises(InputError, match="11 bytes is over the limit of 10"):
        read_regular(file, 10)
    assert read_regular(file, 11) == b"x" * 11
