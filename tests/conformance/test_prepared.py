"""Submissions whose id is known before they are handed in."""

from __future__ import annotations

import gc

import pytest

from actors.testing import scripted
from admission import Completed
from tests.conformance.direct import named, registry_of, tables_of
from tests.conformance.support import OK, gate, seeds


def told_about(world, id_):
    world.run_until_idle()
    return [record["event"] for record in world.records if record.get("id") == id_]


@seeds
def test_s290_an_id_is_known_before_anything_happens(simulate, seed):
    """A prepared submission has its id and no event; handed in, once, it runs under that id."""
    world, supervisor = simulate(seed)
    prepared = supervisor.prepare(named("svc", OK), slot="k")
    world.advance(1)
    assert told_about(world, prepared.id) == []
    handle = prepared.submit()
    assert handle.id == prepared.id
    assert handle.outcome() == Completed("ok")
    (starting,) = world.of("attempt_starting", handle)
    assert starting["attempt"] == 1
    assert world.count("task_removed", handle) == 1
    with pytest.raises(RuntimeError):
        prepared.submit()
    assert world.count("body_entered") == 1


@seeds
def test_s291_a_prepared_submission_that_is_dropped_is_silent(simulate, seed):
    """One that is prepared and dropped runs nothing and tells nothing; other work is not touched."""
    world, supervisor = simulate(seed)
    dropped = supervisor.prepare(scripted(OK), slot="k")
    number = dropped.id
    running = supervisor.submit(scripted(gate(1)), slot="k")
    del dropped
    gc.collect()
    assert running.outcome() == Completed("ok")
    assert running.id > number
    assert told_about(world, number) == []
    assert supervisor._core.intake.inside == 0
    assert set(tables_of(registry_of(supervisor)).values()) == {0}


@seeds
def test_s292_a_prepared_submission_is_handed_in_without_waiting(simulate, seed):
    """One that is handed in by the way that never waits brings its outcome."""
    _, supervisor = simulate(seed)
    prepared = supervisor.prepare(scripted(OK), slot="k")
    handle = prepared.try_submit()
    assert handle.id == prepared.id
    assert handle.outcome() == Completed("ok")
