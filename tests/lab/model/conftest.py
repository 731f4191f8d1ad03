"""An untrained artifact of the real size, made once."""

import pytest

from flashrt.lab.model import ExactExecutor, LoadedArtifact


@pytest.fixture(scope="session")
def artifact():
    return LoadedArtifact.random(7)


@pytest.fixture(scope="session")
def executor(artifact):
    return ExactExecutor(artifact)
