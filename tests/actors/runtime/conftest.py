from __future__ import annotations

import logging

import pykka
import pytest

from actors.runtime import Runtime
from tests.actors.runtime.support import WAIT, NoBodies, threads_named


@pytest.fixture
def make_runtime():
    """Makes runtimes; in the end they are closed, and no thread of theirs is left."""
    made = []
    before = set(threads_named("slotkeeper-"))

    def make(**settings):
        made.append(Runtime(NoBodies(), **settings))
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()
        runtime.join(WAIT)
    left = set(threads_named("slotkeeper-")) - before
    assert {thread for thread in left if not thread.name.startswith("slotkeeper-application")} == set()


@pytest.fixture
def runtime(make_runtime):
    runtime = make_runtime()
    runtime.start()
    return runtime


@pytest.fixture
def empty_registry():
    """The test ends with no actor in Pykka's registry, as it began."""
    assert pykka.ActorRegistry.get_all() == []
    yield
    try:
        assert pykka.ActorRegistry.get_all() == []
    finally:
        pykka.ActorRegistry._actor_refs.clear()  # one test fails, not all behind it


@pytest.fixture
def raising_log_filter():
    """An application's log filter that raises on whatever Pykka logs."""
    logger = logging.getLogger("pykka")
    level = logger.level

    def refuse(record):
        raise RuntimeError("a filter of the application")

    logger.setLevel(logging.DEBUG)
    logger.addFilter(refuse)
    yield
    logger.removeFilter(refuse)
    logger.setLevel(level)
