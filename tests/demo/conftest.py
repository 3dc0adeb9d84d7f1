from __future__ import annotations

import shutil

import pytest

from tests.demo.support import Run, write_history


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """One real run for all tests; they get copies."""
    made = Run(tmp_path_factory.mktemp("finished"))
    write_history(made.history)
    assert made.replay() == 0
    return made


@pytest.fixture
def a_run(finished, tmp_path):
    """Whatever a run has left, to do with as one likes."""
    shutil.copytree(finished.history.parent, tmp_path, dirs_exist_ok=True)
    return Run(tmp_path)


@pytest.fixture
def to_run(tmp_path):
    """A run that has not taken place."""
    made = Run(tmp_path)
    write_history(made.history)
    return made
