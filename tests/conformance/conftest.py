from __future__ import annotations

import pytest

from actors.testing import Verdict, check
from tests.actors.conftest import body, nothing_is_left, runtime, start, supervisor  # noqa: F401 - fixtures
from tests.conformance.direct import Lagging
from tests.conformance.support import GRACE, World


@pytest.fixture
def simulate():
    """Makes simulated worlds, each with its supervisor; what must always hold has held in all of them."""
    made = []

    def make(seed=0, **options):
        options.setdefault("grace", GRACE)
        world = World(seed)
        world.start()
        face = world.supervisor(**options).start()
        made.append((world, face))
        return world, face

    yield make
    for world, face in made:
        face.shutdown()
        world.advance(1000)
        finding = check(world.records)
        world.close()
        assert finding.verdict is Verdict.HOLDS, f"{finding}\n{world.timeline()}"


@pytest.fixture
def lagging():
    """A subscriber that is stuck in its first event, until the end of the test."""
    subscriber = Lagging()
    yield subscriber
    subscriber.open.set()
