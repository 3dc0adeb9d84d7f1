"""Scenarios 200 to 211: removing and cancelling by id what runs and what waits."""

from __future__ import annotations

import pytest

from actors.messages import Cancel
from actors.testing import Script, scripted
from admission import Cancelled, Completed, RejectionKind, SlotStatus, SupervisorClosedError, TaskSpec
from tests.conformance.support import COOP_CANCELLED, OK, ask, look, seeds

REMOVED = RejectionKind.REMOVED_FROM_QUEUE
LEAVING = Script(100, cleanup=3, on_cancel="ok")


def owned(world, supervisor, *waiting, script=COOP_CANCELLED):
    """Make slot s with an owner and these names behind it; returns the handles."""
    owner = supervisor.submit(TaskSpec.once(scripted(script), name="owner"), slot="s")
    world.run_until_idle()
    return owner, *(supervisor.submit(TaskSpec.once(scripted(OK), name=name), slot="s") for name in waiting)


@seeds
@pytest.mark.parametrize("settled", [False, True], ids=["at once", "later"])
def test_s200_cancel_who_waits(simulate, seed, settled):
    """Who waits can be cancelled right after it was submitted, once."""
    world, supervisor = simulate(seed)
    _, victim = owned(world, supervisor, "victim")
    if settled:
        world.run_until_idle()
    assert supervisor.cancel(victim.id) is True
    assert supervisor.cancel(victim.id) is False
    assert victim.outcome().kind is REMOVED


@seeds
def test_s201_remove_who_waits_then_cancel_the_owner(simulate, seed):
    """Who was removed from the line does not start when the owner ends."""
    world, supervisor = simulate(seed)
    owner, victim = owned(world, supervisor, "victim")
    assert supervisor.remove(victim.id) is True
    assert supervisor.cancel("owner") is True
    assert owner.outcome() == Cancelled()
    world.run_until_idle()
    assert world.order("s") == [owner.id]
    (record,) = world.of("submission_rejected", victim)
    assert record["rejection_kind"] == REMOVED
    assert look(supervisor) is None


WAYS = {
    "remove": lambda supervisor, handle: supervisor.remove(handle.id),
    "cancel": lambda supervisor, handle: supervisor.cancel(handle.id),
    "cancel in time": lambda supervisor, handle: supervisor.cancel(handle.id, timeout=1),
    "cancel of the handle": lambda _, handle: handle.cancel(),
    "cancel of the handle, waiting": lambda _, handle: handle.cancel(wait=True),
}


@seeds
@pytest.mark.parametrize("way", WAYS)
def test_s202_every_way_to_withdraw(simulate, seed, way):
    """Each way to remove or cancel takes who waits out of the line; the slot is free once its owner ends."""
    world, supervisor = simulate(seed)
    owner, victim = owned(world, supervisor, "victim")
    assert WAYS[way](supervisor, victim) is True
    assert victim.outcome().kind is REMOVED
    assert look(supervisor) == (SlotStatus.RUNNING, owner.id, 0)
    owner.cancel(wait=True)
    world.run_until_idle()
    assert look(supervisor) is None
    assert world.order("s") == [owner.id]


@seeds
def test_s205_caller_that_leaves(simulate, seed):
    """A cancellation goes on although whoever asked for it has stopped waiting."""
    world, supervisor = simulate(seed)
    (owner,) = owned(world, supervisor, script=LEAVING)
    with pytest.raises(TimeoutError):
        supervisor.cancel(owner.id, timeout=1)
    assert supervisor.tasks() == [(owner.id, "owner")]
    world.advance(2)
    assert owner.outcome(0) == Cancelled()
    assert supervisor.tasks() == []


@seeds
def test_s206_cancellation_overtaken_by_shutdown(simulate, seed):
    """A caller who waits for a cancellation when shutdown begins is told of it."""
    world, supervisor = simulate(seed)
    (owner,) = owned(world, supervisor, script=LEAVING)
    waiting = ask(supervisor, Cancel(owner.id, wait=True))
    world.run_until_idle()
    supervisor.shutdown()
    with pytest.raises(SupervisorClosedError):
        waiting.get(timeout=0)
    assert owner.outcome() == Cancelled()


@seeds
def test_s209_cancel_who_waits_by_name(simulate, seed):
    """A name finds only who is registered, and not who waits."""
    world, supervisor = simulate(seed)
    owner, _ = owned(world, supervisor, "victim")
    assert supervisor.cancel("victim") is False
    assert look(supervisor) == (SlotStatus.RUNNING, owner.id, 1)


@seeds
def test_s210_remove_from_the_middle(simulate, seed):
    """Who is removed from the middle of the line leaves the order of the others as it was."""
    world, supervisor = simulate(seed)
    owner, first, second, third = owned(world, supervisor, "a", "b", "c")
    assert supervisor.remove(second.id) is True
    owner.cancel()
    assert third.outcome() == Completed("ok")
    assert world.order("s") == [owner.id, first.id, third.id]


@seeds
def test_s211_cancel_a_replacement(simulate, seed):
    """A replacement that is cancelled while it waits leaves its owner stopped, and the slot free."""
    world, supervisor = simulate(seed)
    (owner,) = owned(world, supervisor, script=LEAVING)
    replacement = supervisor.submit(scripted(OK), slot="s", policy="replace")
    assert supervisor.cancel(replacement.id) is True
    assert replacement.outcome().kind is REMOVED
    assert look(supervisor) == (SlotStatus.TERMINATING, owner.id, 0)
    assert owner.outcome() == Cancelled()
    assert look(supervisor) is None
