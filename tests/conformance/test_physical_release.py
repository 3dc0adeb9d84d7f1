"""Scenarios 240 to 246: a body that goes on after its run has its outcome."""

from __future__ import annotations

import pytest

from actors.testing import scripted
from admission import (
    AdmissionLimits,
    Completed,
    ForceAborted,
    RejectionKind,
    ResourceLimitError,
    SlotStatus,
    TaskExistsError,
    TaskSpec,
)
from tests.actors.support import call_in_thread, noop
from tests.conformance.support import GRACE, OK, look, seeds, stubborn
from tests.conformance.verdicts import adapted

BODY = 60.0
"""Seconds that the stubborn body stays inside, whatever is asked."""


def given_up(world, supervisor, following="another"):
    """Cancel an owner that does not stop, with one of this name behind it; returns both."""
    owner = supervisor.submit(TaskSpec.once(scripted(stubborn(BODY)), name="first"), slot="s")
    world.run_until_idle()
    waiting = supervisor.submit(TaskSpec.once(scripted(OK), name=following), slot="s")
    assert supervisor.cancel(owner.id) is True
    assert owner.outcome() == ForceAborted()
    assert world.now == GRACE
    return owner, waiting


@seeds
def test_s240_slot_of_a_body_that_was_given_up(simulate, seed):
    """The slot of a body that was given up stays taken until the body has left; who waits starts then."""
    world, supervisor = simulate(seed)
    owner, waiting = given_up(world, supervisor)
    world.advance(BODY - GRACE - 1)
    assert look(supervisor)[1:] == (owner.id, 1)
    assert waiting.outcome() == Completed("ok")
    (entered,) = world.of("body_entered", waiting)
    assert entered["entered_at"] == BODY


@seeds
def test_s241_name_of_a_body_that_was_given_up(simulate, seed):
    """Who waits under the same name is admitted after the release, and not refused for the name."""
    world, supervisor = simulate(seed)
    _, waiting = given_up(world, supervisor, "first")
    assert waiting.outcome() == Completed("ok")
    assert world.now == BODY
    assert world.count("task_add_failed") == 0


@seeds
def test_s242_replaced_body_that_was_given_up(simulate, seed):
    """A replaced owner that does not stop is shown as terminating all the time until it has left."""
    world, supervisor = simulate(seed)
    owner = supervisor.submit(scripted(stubborn(BODY)), slot="s")
    world.run_until_idle()
    replacement = supervisor.submit(scripted(OK), slot="s", policy="replace")
    world.run_until_idle()
    while world.now < BODY:
        assert look(supervisor) == (SlotStatus.TERMINATING, owner.id, 1)
        world.advance(1)
    assert owner.outcome() == ForceAborted()
    assert replacement.outcome() == Completed("ok")
    assert world.now == BODY


@seeds
def test_s243_name_is_still_taken(simulate, seed):
    """The name of a body that was given up is taken and shown as alive, though its run is not listed any more."""
    world, supervisor = simulate(seed)
    owner, _ = given_up(world, supervisor)
    with pytest.raises(TaskExistsError) as refused:
        supervisor.add(TaskSpec.once(noop, name="first"))
    assert refused.value.name == "first"
    submitted = supervisor.submit(TaskSpec.once(noop, name="first"), slot="another")
    assert submitted.outcome().kind is RejectionKind.ALREADY_EXISTS
    assert supervisor.alive() == ("first",)
    assert owner.id not in [id_ for id_, _ in supervisor.tasks()]
    world.advance(BODY)
    assert supervisor.alive() == ()
    assert supervisor.add(TaskSpec.once(scripted(OK), name="first")).outcome() == Completed("ok")


@seeds
def test_s244_shutdown_does_not_wait_for_it(simulate, seed):
    """A body that was given up before does not delay the shutdown."""
    world, supervisor = simulate(seed)
    given_up(world, supervisor)
    before = world.now
    report = supervisor.shutdown()
    assert world.now == before
    assert report.still_inside == ("first",)


@adapted("it is always admitted", rule="outcome")
def test_s245_drop_if_running_after_every_outcome(supervisor):
    """Who has seen an outcome and submits to that slot without waiting has an outcome each time."""

    def one_after_the_other(which):
        slot = f"s{which}"
        for _ in range(500):
            policy = "drop_if_running"
            assert supervisor.submit(noop, slot=slot, policy=policy).outcome(20) == Completed("done")

    for join in [call_in_thread(one_after_the_other, which) for which in range(4)]:
        join(50)


@seeds
def test_s246_limit_of_runs(simulate, seed):
    """A body that was given up counts as a run until it has left."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(max_tasks=1))
    owner = supervisor.submit(scripted(stubborn(BODY)), slot="s")
    world.run_until_idle()
    supervisor.cancel(owner.id)
    assert supervisor.tasks() == []
    assert supervisor.submit(scripted(OK), slot="t").outcome().kind is RejectionKind.RESOURCE_LIMIT
    with pytest.raises(ResourceLimitError):
        supervisor.add(scripted(OK))
    world.advance(BODY)
    assert supervisor.submit(scripted(OK), slot="t").outcome() == Completed("ok")
    assert supervisor.add(scripted(OK)).outcome() == Completed("ok")
