"""Scenarios 220 to 236: limits, and who waits at them."""

from __future__ import annotations

import pytest

from actors.budget import Budget, Intake
from actors.messages import AttemptEnded, Cancel, Granted, Remove, Shutdown, Withdrawn
from actors.runtime import deliver
from actors.testing import scripted
from admission import (
    AdmissionLimits,
    Cancelled,
    Completed,
    IntakeFullError,
    RejectionKind,
    SlotStatus,
)
from admission.run import AttemptReturned
from tests.actors.support import noop
from tests.conformance.support import COOP, OK, Held, ask, gate, look, registry_of, seeds, slot_of
from tests.conformance.verdicts import adapted

LIMIT = RejectionKind.RESOURCE_LIMIT


# -- before the registry has decided -------------------------------------------------------------------------------


@adapted("it ends as cancelled when the registry has decided: an owner does not wait for a place", rule="dropped")
@seeds
def test_s221_owner_cancelled_before_the_decision(simulate, seed):
    """An owner that is removed before it is registered never starts, and the next one does."""
    world, supervisor = simulate(seed)
    held = Held(world, supervisor)
    owner, following = (supervisor.submit(scripted(OK), slot="s") for _ in range(2))
    claimed = ask(supervisor, Remove(owner.id))
    world.run_until_idle()
    assert look(supervisor) == (SlotStatus.ADMITTING, owner.id, 1)
    held.let_go()
    assert claimed.get(timeout=0) is True
    assert owner.outcome() == Cancelled()
    assert world.count("attempt_starting", owner) == 0
    assert following.outcome() == Completed("ok")


@adapted("the only permits are those of `max_concurrent`", rule="dropped")
def test_s224_permit_for_who_has_left(simulate):
    """A permit that arrives when its run has just been cancelled is not lost: the next one has it."""
    crossed = 0
    for seed in range(100):
        world, supervisor = simulate(seed, limits=AdmissionLimits(max_concurrent=1))
        first, second, third = (supervisor.submit(noop, slot=slot) for slot in "abc")
        while "b" not in registry_of(supervisor).slots:
            world.step()
        came_late = watch_permits(slot_of(supervisor, "b")._actor_weakref())
        for _ in range(seed % 40):
            world.step()
        ask(supervisor, Cancel(second.id, wait=False))
        assert third.outcome() == first.outcome() == Completed("done")
        assert isinstance(second.outcome(), Cancelled | Completed)
        if came_late == [True]:
            assert world.count("attempt_starting", second) == 0
            crossed += 1
    assert crossed


def watch_permits(slot):
    """Note of every permit that comes to this slot whether its run has left."""
    late, handle = [], slot.handlers[Granted]

    def note(slot, message):
        late.append(slot.run is None)
        handle(slot, message)

    slot.handlers = {**slot.handlers, Granted: note}
    return late


@adapted("an accepted owner is cancelled without an attempt; no place is waited for that could fail", rule="dropped")
@seeds
def test_s225_shutdown_before_the_decision(simulate, seed):
    """Shutdown while the registry has not decided: the owner never starts, and neither does who waits."""
    world, supervisor = simulate(seed)
    held = Held(world, supervisor)
    owner, waiting = (supervisor.submit(scripted(OK), slot="s") for _ in range(2))
    world.run_until_idle()
    report = ask(supervisor, Shutdown())
    world.run_until_idle()
    assert waiting.outcome().kind is RejectionKind.SHUTTING_DOWN
    held.let_go()
    assert owner.outcome() == Cancelled()
    assert report.get(timeout=0).clean
    assert world.count("body_entered") == 0


# -- limits of the slots -------------------------------------------------------------------------------------------


def busy(world, supervisor, *slots):
    """Make these slots busy; returns their owners."""
    owners = [supervisor.submit(scripted(COOP), slot=slot) for slot in slots]
    world.run_until_idle()
    return owners


@seeds
def test_s226_waiting_in_all_slots(simulate, seed):
    """Who waits in one slot takes the place of who would wait in another one, unless it displaces somebody."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(max_total_pending=1))
    _, second = busy(world, supervisor, "s1", "s2")
    waiting = supervisor.submit(scripted(OK), slot="s1")
    world.run_until_idle()
    assert supervisor.submit(scripted(OK), slot="s2").outcome().kind is LIMIT
    assert supervisor.submit(scripted(OK), slot="s2", policy="replace").outcome().kind is LIMIT
    assert look(supervisor, "s2") == (SlotStatus.RUNNING, second.id, 0)
    replacement = supervisor.submit(scripted(OK), slot="s1", policy="replace")
    assert waiting.outcome().kind is RejectionKind.SUPERSEDED_BY_REPLACE
    assert replacement.outcome() == Completed("ok")
    assert world.count("task_remove_requested", second) == 0


def test_s227_both_limits(simulate):
    """Where the slot's line is full and nobody more may wait anywhere, the line is what is told."""
    world, supervisor = simulate(limits=AdmissionLimits(max_slot_queue=1, max_total_pending=1))
    busy(world, supervisor, "s")
    supervisor.submit(scripted(OK), slot="s")
    assert supervisor.submit(scripted(OK), slot="s").outcome().kind is RejectionKind.QUEUE_FULL


@seeds
def test_s228_slots(simulate, seed):
    """Past the limit of slots another key is turned away and leaves nothing; once a slot is free it is taken."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(max_slots=1))
    (owner,) = busy(world, supervisor, "a")
    assert supervisor.submit(scripted(OK), slot="b").outcome().kind is LIMIT
    assert [view.slot for view in supervisor.snapshot().slots] == ["a"]
    assert "b" not in registry_of(supervisor).slots
    owner.cancel(wait=True)
    assert supervisor.submit(scripted(OK), slot="b").outcome() == Completed("ok")


class Watched(Budget):
    """A budget that counts who asks."""

    asked = 0

    def take(self):
        self.asked += 1
        return super().take()


@pytest.mark.parametrize(
    ("policy", "kind"), [("drop_if_running", RejectionKind.SLOT_BUSY), ("queue", RejectionKind.QUEUE_FULL)]
)
def test_s229_turned_away_without_a_budget(simulate, policy, kind):
    """Who is turned away by a busy slot or a full line touches no budget."""
    world, supervisor = simulate(limits=AdmissionLimits(max_slot_queue=1, max_total_pending=5))
    services = registry_of(supervisor).services
    services.budget = budget = Watched(5)
    busy(world, supervisor, "s")
    supervisor.submit(scripted(OK), slot="s")
    world.run_until_idle()
    assert (budget.asked, budget.out) == (1, 1)
    assert supervisor.submit(scripted(OK), slot="s", policy=policy).outcome().kind is kind
    assert (budget.asked, budget.out) == (1, 1)


# -- the intake ----------------------------------------------------------------------------------------------------

SUBMITTING = {
    "try_submit": lambda supervisor, work: supervisor.try_submit(work, slot="s"),
    "prepared": lambda supervisor, work: supervisor.prepare(work, slot="s").try_submit(),
}


@adapted("what is waited for is a place in the intake, without a deadline", rule="dropped")
@seeds
@pytest.mark.parametrize("way", SUBMITTING)
def test_s230_full_intake(simulate, seed, way):
    """Where nothing more is taken in, who does not wait has an error and no trace; who waits is let in, in order."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(intake=1))
    first = SUBMITTING[way](supervisor, scripted(OK))
    with pytest.raises(IntakeFullError):
        SUBMITTING[way](supervisor, scripted(OK))
    second, third = (supervisor.submit(scripted(OK), slot="s") for _ in range(2))
    assert {handle.outcome() for handle in (first, second, third)} == {Completed("ok")}
    assert world.order("s") == [first.id, second.id, third.id]
    assert {record["id"] for record in world.records if "id" in record} == {first.id, second.id, third.id}
    let_in, intake = [], Intake(1)
    intake.take()
    for name in "ab":
        intake.take(lambda granted, name=name: not let_in.append((name, granted)))
    intake.give()
    intake.give()
    assert let_in == [("a", True), ("b", True)]


@adapted("what is waited for is a place in the intake", rule="dropped")
def test_s233_waiting_at_the_intake_given_up(simulate):
    """Who gives up waiting leaves its place in the line to the next."""
    let_in, intake = [], Intake(1)
    intake.take()
    waiters = {name: lambda granted, name=name: not let_in.append((name, granted)) for name in "ab"}
    for waiter in waiters.values():
        intake.take(waiter)
    assert intake.withdraw(waiters["a"]) is True
    intake.give()
    assert let_in == [("b", True)]
    assert intake.inside == 1
    assert intake.withdraw(waiters["b"]) is False


# -- nobody starves ------------------------------------------------------------------------------------------------


class Watch:
    """Notes what an actor handles, in order."""

    def __init__(self, actor):
        self.handled = []
        actor.handlers = {kind: self._noting(kind, handle) for kind, handle in actor.handlers.items()}

    def _noting(self, kind, handle):
        def note(actor, message):
            self.handled.append(kind.__name__)
            return handle(actor, message)

        return note


@seeds
@pytest.mark.parametrize(("who", "before"), [("registry", 200), ("slot", 400)])
def test_s236_command_among_results(simulate, seed, who, before):
    """A command among hundreds of results is handled in its turn; it waits for none that comes later."""
    world, supervisor = simulate(seed)
    owner = supervisor.submit(scripted(gate(1)), slot="s")
    world.run_until_idle()
    if who == "registry":
        actor, result, command = registry_of(supervisor), Withdrawn(owner.id, "stale", claimed=True), "Ticket"
    else:
        actor, command = slot_of(supervisor, "s")._actor_weakref(), "Admit"
        result = AttemptEnded(owner.id, 99, AttemptReturned("stale"), released=True)
    watch = Watch(actor)
    for _ in range(200):
        deliver(actor.actor_ref, result)
    following = supervisor.submit(scripted(OK), slot="s")
    for _ in range(200):  # behind the submission for the registry; a slot may get them before it does
        deliver(actor.actor_ref, result)
    assert following.outcome() == Completed("ok")
    assert watch.handled.index(command) <= before
    assert watch.handled.count(type(result).__name__) >= 400
