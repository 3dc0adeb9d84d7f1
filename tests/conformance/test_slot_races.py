"""Scenarios 180 to 195: messages that cross each other, and messages out of date."""

from __future__ import annotations

import pytest

from actors.messages import Admit, AttemptEnded, Refused, Registered
from actors.runtime import deliver
from actors.testing import Script, scripted
from admission import Cancelled, Completed, RejectionKind, SlotStatus, TaskSpec
from admission.effects import Phase
from admission.run import AttemptReturned
from admission.slot import SlotMachine
from tests.admission.support import REPLACE, Slot, slot_in, state
from tests.conformance.support import COOP, COOP_CANCELLED, OK, Held, look, registry_of, seeds, slot_of
from tests.conformance.verdicts import adapted

ADMITTING, RUNNING, TERMINATING = SlotStatus.ADMITTING, SlotStatus.RUNNING, SlotStatus.TERMINATING
LEAVING = Script(100, cleanup=3, on_cancel="ok")
"""Takes its time to stop."""


def ended(id_):
    return AttemptEnded(id_, 1, AttemptReturned("late"), released=True)


def starts(effects):
    return [line for line in effects if line.startswith("register")]


def test_s180_new_slot(simulate):
    """A new slot is idle and empty; the same key is the same slot, another key another one."""
    machine = SlotMachine(Slot().rules)
    assert (machine.phase, machine.owner, len(machine.line)) == (Phase.ABSENT, None, 0)
    world, supervisor = simulate()
    for slot in ("a", "a", "b"):
        supervisor.submit(scripted(COOP), slot=slot)
    world.run_until_idle()
    assert list(registry_of(supervisor).slots) == ["a", "b"]
    assert slot_of(supervisor, "a") is not slot_of(supervisor, "b")
    assert [record["slot"] for record in world.of("slot_created")] == ["a", "b"]
    assert look(supervisor, "a")[2] == 1


@seeds
def test_s181_completion_before_the_decision(simulate, seed):
    """The end of an owner that is not registered yet is ignored."""
    world, supervisor = simulate(seed)
    held = Held(world, supervisor)
    owner = supervisor.submit(scripted(OK), slot="s")
    world.run_until_idle()
    deliver(slot_of(supervisor, "s"), ended(owner.id))
    assert look(supervisor) == (ADMITTING, owner.id, 0)
    held.let_go()
    assert owner.outcome() == Completed("ok")


@seeds
def test_s182_decision_about_somebody_else(simulate, seed):
    """While one owner waits for its decision, the decision about another id changes nothing."""
    world, supervisor = simulate(seed)
    former = supervisor.submit(scripted(OK), slot="s")
    former.outcome()
    held = Held(world, supervisor)
    owner = supervisor.submit(scripted(OK), slot="s")
    world.run_until_idle()
    deliver(slot_of(supervisor, "s"), Registered(former.id, 99))
    deliver(slot_of(supervisor, "s"), Refused(former.id, RejectionKind.ALREADY_EXISTS))
    assert look(supervisor) == (ADMITTING, owner.id, 0)
    assert world.count("task_remove_requested") == 0
    assert world.count("attempt_starting") == 1
    held.let_go()
    assert owner.outcome() == Completed("ok")


@seeds
def test_s183_completion_of_somebody_else(simulate, seed):
    """The end of another id does not free the slot of its owner."""
    world, supervisor = simulate(seed)
    former = supervisor.submit(scripted(OK), slot="s")
    former.outcome()
    owner = supervisor.submit(scripted(COOP), slot="s")
    world.run_until_idle()
    deliver(slot_of(supervisor, "s"), ended(former.id))
    assert look(supervisor) == (RUNNING, owner.id, 0)
    assert not owner.done()


def test_s184_completion_twice():
    """An end that is told twice starts who waits once."""
    slot = slot_in(Phase.RUNNING, 2)
    told = [*slot.do_finish(), *slot.do_finish()]
    assert state(slot) == "admitting #2"
    assert starts(told) == ["register #2"]


@seeds
def test_s185_replaced_owner_that_somebody_else_has_claimed(simulate, seed):
    """A replacement whose owner is already asked to stop changes nothing about that, and waits for its end."""
    world, supervisor = simulate(seed)
    owner = supervisor.submit(scripted(LEAVING), slot="s")
    world.run_until_idle()
    assert owner.cancel() is True
    replacement = supervisor.submit(scripted(COOP), slot="s", policy="replace")
    world.run_until_idle()
    before = len(world.records)
    world.advance(2)
    assert len(world.records) == before
    assert look(supervisor) == (TERMINATING, owner.id, 1)
    assert owner.outcome() == Cancelled()
    world.run_until_idle()
    assert look(supervisor) == (RUNNING, replacement.id, 0)
    assert world.count("runtime_failure") == 0


@seeds
def test_s188_replaced_owner_that_is_refused(simulate, seed):
    """A replacement of an owner that is then refused is admitted, and nobody is asked to stop."""
    world, supervisor = simulate(seed)
    supervisor.submit(TaskSpec.once(scripted(COOP), name="taken"), slot="other")
    world.run_until_idle()
    held = Held(world, supervisor)
    owner = supervisor.submit(TaskSpec.once(scripted(OK), name="taken"), slot="s")
    replacement = supervisor.submit(scripted(COOP), slot="s", policy="replace")
    world.run_until_idle()
    assert look(supervisor) == (TERMINATING, owner.id, 1)
    held.let_go()
    assert owner.outcome().kind is RejectionKind.ALREADY_EXISTS
    assert look(supervisor) == (RUNNING, replacement.id, 0)
    assert world.count("task_remove_requested") == 0


def test_s189_replacements_before_the_decision():
    """Of two replacements of an owner that is not registered yet the second stays; the owner is then ended once."""
    slot = slot_in(Phase.ADMITTING)
    told = [*slot.do_submit(2, REPLACE), *slot.do_submit(3, REPLACE)]
    assert [line for line in told if line.startswith("reject")] == ["reject #2 superseded_by_replace by #3"]
    assert state(slot) == "cancel_pending #1 | #3"
    told = slot.do_register(1)
    assert slot.do_register(1) is None
    assert state(slot) == "terminating #1 | #3"
    assert [line for line in told if "run" in line.split()] == ["start run #1 epoch 7 cancelled"]
    assert told.count("event task_remove_requested #1") == 1


@seeds
def test_s190_replacement_while_the_registry_is_silent(simulate, seed):
    """A replacement is dealt with at once although the registry says nothing; its owner ends without an attempt."""
    world, supervisor = simulate(seed)
    held = Held(world, supervisor)
    owner = supervisor.submit(scripted(OK), slot="s")
    replacement = supervisor.submit(scripted(COOP), slot="s", policy="replace")
    world.run_until_idle()
    assert look(supervisor) == (TERMINATING, owner.id, 1)
    held.let_go()
    assert owner.outcome() == Cancelled()
    assert world.count("attempt_starting", owner) == 0
    assert look(supervisor) == (RUNNING, replacement.id, 0)


@adapted("the slot asks its owner itself; there is no queue to the registry that could be full", rule="dropped")
@seeds
def test_s191_replacements_while_the_registry_is_silent(simulate, seed):
    """Two replacements of a running owner are dealt with although the registry says nothing; it is asked once."""
    world, supervisor = simulate(seed)
    owner = supervisor.submit(scripted(LEAVING), slot="s")
    world.run_until_idle()
    held = Held(world, supervisor)
    first, second = (supervisor.submit(scripted(OK), slot="s", policy="replace") for _ in range(2))
    world.run_until_idle()
    assert look(supervisor) == (TERMINATING, owner.id, 1)
    assert first.outcome().kind is RejectionKind.SUPERSEDED_BY_REPLACE
    assert world.count("task_remove_requested", owner) == 1
    assert owner.outcome() == Cancelled()
    held.let_go()
    assert second.outcome() == Completed("ok")


@seeds
def test_s192_completion_after_shutdown_has_begun(simulate, seed):
    """Once shutdown has begun, the end of an owner starts nobody who waits."""
    world, supervisor = simulate(seed)
    supervisor.submit(scripted(LEAVING), slot="s")
    waiting = supervisor.submit(scripted(OK), slot="s")
    world.run_until_idle()
    assert supervisor.shutdown().clean
    assert waiting.outcome().kind is RejectionKind.SHUTTING_DOWN
    assert world.count("body_entered", waiting) == 0
    assert world.edges("s")[-1] == "running>closed"


@adapted("a slot without work is not listed", rule="idle")
@seeds
def test_s193_snapshot(simulate, seed):
    """A look shows every phase by its public status, with owner, depth and age, sorted by key."""
    world, supervisor = simulate(seed)
    held = Held(world, supervisor, "2-admitting", "5-pending")
    supervisor.submit(scripted(OK), slot="4-idle").outcome()
    submit = lambda slot, script=COOP, policy="queue": supervisor.submit(scripted(script), slot=slot, policy=policy)  # noqa: E731
    owners = {slot: submit(slot, LEAVING) for slot in ("5-pending", "3-running", "1-terminating", "2-admitting")}
    for slot in ("2-admitting", "3-running", "3-running"):
        submit(slot)
    world.advance(1)
    for slot in ("5-pending", "1-terminating"):
        submit(slot, policy="replace")
    world.advance(2)
    snapshot = supervisor.snapshot()
    assert [(view.slot, view.status, view.queue_depth) for view in snapshot.slots] == [
        ("1-terminating", TERMINATING, 1),
        ("2-admitting", ADMITTING, 1),
        ("3-running", RUNNING, 2),
        ("5-pending", TERMINATING, 1),
    ]
    assert {view.slot: view.owner_id for view in snapshot.slots} == {slot: one.id for slot, one in owners.items()}
    assert [view.status_for for view in snapshot.slots] == [2, 3, 3, 2]
    assert snapshot.running_count == 1
    held.let_go()


@pytest.mark.parametrize("seed", range(3))
def test_s194_broken_handler(simulate, seed):
    """A handler that breaks is told of, with its message and error, and the actor goes on."""
    world, supervisor = simulate(seed)
    supervisor.submit(scripted(OK), slot="s").outcome()
    slot = slot_of(supervisor, "s")._actor_weakref()

    def broken(_slot, _message):
        raise RuntimeError("out of order")

    slot.handlers = {**slot.handlers, Admit: broken}
    lost = supervisor.submit(scripted(OK), slot="s")
    assert lost.outcome().kind is RejectionKind.ADMISSION_FAILED
    del slot.handlers
    (record,) = world.of("runtime_failure")
    assert record["task"] == "slot"
    assert "Admit" in record["reason"]
    assert "out of order" in record["reason"]
    assert supervisor.submit(scripted(OK), slot="s").outcome() == Completed("ok")


@seeds
def test_s195_owner_removed_by_id(simulate, seed):
    """An owner that is removed is shown as running until its end; who waits stays and starts then."""
    world, supervisor = simulate(seed)
    owner = supervisor.submit(scripted(LEAVING), slot="s")
    following = supervisor.submit(scripted(COOP_CANCELLED), slot="s")
    world.run_until_idle()
    assert supervisor.remove(owner.id) is True
    world.advance(2)
    assert look(supervisor) == (RUNNING, owner.id, 1)
    assert owner.outcome() == Cancelled()
    world.run_until_idle()
    assert look(supervisor) == (RUNNING, following.id, 0)
