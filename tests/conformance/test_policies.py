"""Scenarios 150 to 174: what a submission does that finds its slot idle or busy."""

from __future__ import annotations

import threading

import pytest

from actors.testing import Script, scripted
from admission import (
    AdmissionLimits,
    Cancelled,
    Completed,
    IntakeFullError,
    RejectionKind,
    SlotStatus,
    TaskSpec,
)
from admission.effects import Phase
from tests.actors.support import SOON, Gauge, Log, call_in_thread, eventually, noop, outcome_of
from tests.admission.support import slot_in
from tests.conformance.support import COOP, COOP_CANCELLED, OK, gate, look, seeds

BUSY, FULL = RejectionKind.SLOT_BUSY, RejectionKind.QUEUE_FULL
SUPERSEDED, EXISTS = RejectionKind.SUPERSEDED_BY_REPLACE, RejectionKind.ALREADY_EXISTS
ONLY_OF_RUNS = {"task_added", "attempt_starting", "body_entered", "task_finished", "task_removed"}


def named(name, *attempts):
    return TaskSpec.once(scripted(*attempts), name=name)


def busy(world, supervisor, slot="s", *waiting):
    """Make a slot whose owner stays until it is asked to stop, with these behind it; returns the handles."""
    owner = supervisor.submit(scripted(COOP_CANCELLED), slot=slot)
    world.run_until_idle()
    return owner, *(supervisor.submit(scripted(script), slot=slot) for script in waiting)


# -- an idle slot --------------------------------------------------------------------------------------------------


@seeds
def test_s151_into_an_idle_slot(simulate, seed):
    """A submission into an idle slot is accepted before its slot runs; slot and task keep their own names."""
    world, supervisor = simulate(seed)
    handle = supervisor.submit(named("runner-7", OK), slot="web")
    handle.outcome()
    (accepted,) = world.of("submission_accepted", handle)
    assert (accepted["slot"], accepted["status"]) == ("web", "admitting")
    assert accepted["seq"] < world.edge("web", "admitting>running")["seq"]
    for event in ("task_added", "attempt_starting"):
        (record,) = world.of(event, handle)
        assert record["task"] == "runner-7"


@seeds
def test_s152_one_after_the_other(simulate, seed):
    """Three runs of one slot run in the order in which they were submitted and never overlap."""
    world, supervisor = simulate(seed)
    handles = [supervisor.submit(named(f"t{number}", Script(1)), slot="s") for number in (1, 2, 3)]
    assert {handle.outcome() for handle in handles} == {Completed(None)}
    spans = [
        (entered["task"], entered["entered_at"], left["left_at"])
        for entered, left in zip(world.of("body_entered"), world.of("body_left"), strict=True)
    ]
    assert spans == [("t1", 0, 1), ("t2", 1, 2), ("t3", 2, 3)]


@seeds
def test_s153_replace(simulate, seed):
    """A replacement has the owner stopped and runs in its place."""
    world, supervisor = simulate(seed)
    old = supervisor.submit(named("run-1", COOP_CANCELLED), slot="s")
    world.run_until_idle()
    new = supervisor.submit(named("run-2", COOP), slot="s", policy="replace")
    assert old.outcome() == Cancelled()
    world.run_until_idle()
    assert supervisor.tasks() == [(new.id, "run-2")]
    assert world.order("s") == [old.id, new.id]
    assert world.edge("s", "running>terminating")["reason"] == "replace"


def test_s154_replace_nobody(simulate):
    """A replacement into an idle slot is admitted like any other."""
    world, supervisor = simulate()
    assert supervisor.submit(scripted(OK), slot="s", policy="replace").outcome() == Completed("ok")
    assert not any("terminating" in edge for edge in world.edges("s"))


@seeds
def test_s155_drop_if_running(simulate, seed):
    """A submission that does not want to wait is turned away by a busy slot, and nothing else happens to it."""
    world, supervisor = simulate(seed)
    (owner,) = busy(world, supervisor)
    handle = supervisor.submit(scripted(OK), slot="s", policy="drop_if_running")
    assert handle.outcome().kind is BUSY
    (record,) = world.of("submission_rejected", handle)
    assert (record["rejection_kind"], record["reason"]) == ("slot_busy", handle.outcome().reason)
    assert ONLY_OF_RUNS.isdisjoint(world.events(handle))
    assert look(supervisor) == (SlotStatus.RUNNING, owner.id, 0)


def test_s156_drop_if_running_into_an_idle_slot(simulate):
    """A submission that does not want to wait is admitted by an idle slot."""
    world, supervisor = simulate()
    assert supervisor.submit(scripted(OK), slot="s", policy="drop_if_running").outcome() == Completed("ok")
    assert world.count("submission_rejected") == 0


@pytest.mark.parametrize("slots", [2, 128])
def test_s157_slots_side_by_side(simulate, slots):
    """Different slots run at the same time."""
    world, supervisor = simulate()
    for number in range(slots):
        supervisor.submit(scripted(COOP), slot=f"s{number}")
    world.run_until_idle()
    snapshot = supervisor.snapshot()
    assert (len(snapshot), snapshot.running_count, snapshot.total_queued) == (slots, slots, 0)
    assert (world.count("body_entered"), world.count("body_left")) == (slots, 0)


# -- names ---------------------------------------------------------------------------------------------------------


@seeds
def test_s158_name_of_another_slot(simulate, seed):
    """A name that runs in one slot is refused in another one, by the registry and not by the slot."""
    world, supervisor = simulate(seed)
    supervisor.submit(named("dup", COOP), slot="s1")
    world.run_until_idle()
    second = supervisor.submit(named("dup", OK), slot="s2")
    assert second.outcome().kind is EXISTS
    assert supervisor.snapshot().slot("s2") is None
    assert world.count("submission_rejected", second) == 0
    assert world.count("task_add_failed", second) == 1


@seeds
def test_s159_same_slot_again(simulate, seed):
    """A second run of a slot gets it after the first has been released."""
    world, supervisor = simulate(seed)
    handles = [supervisor.submit(scripted(OK), slot="s") for _ in range(2)]
    assert [handle.outcome() for handle in handles] == [Completed("ok")] * 2
    (released, _), (_, entered) = world.of("body_left"), world.of("body_entered")
    assert released["seq"] < entered["seq"]


@seeds
def test_s171_same_name_again(simulate, seed):
    """The same name twice in one slot: both complete, in order, and nothing is left of the slot."""
    world, supervisor = simulate(seed)
    first, second = (supervisor.submit(named("same", script), slot="s") for script in (gate(5), OK))
    assert [first.outcome(), second.outcome()] == [Completed("ok")] * 2
    assert world.order("s") == [first.id, second.id]
    assert supervisor.snapshot().slot("s") is None


@seeds
def test_s172_bad_head(simulate, seed):
    """A head of the line whose name is taken is refused, and does not block who waits behind it."""
    world, supervisor = simulate(seed)
    supervisor.submit(named("taken", COOP), slot="elsewhere")
    owner = supervisor.submit(scripted(gate(1)), slot="s")
    world.run_until_idle()
    head = supervisor.submit(named("taken", OK), slot="s")
    second = supervisor.submit(named("free", COOP), slot="s")
    assert owner.outcome() == Completed("ok")
    assert head.outcome().kind is EXISTS
    world.run_until_idle()
    assert look(supervisor) == (SlotStatus.RUNNING, second.id, 0)


# -- the line ------------------------------------------------------------------------------------------------------


@seeds
def test_s160_full_line(simulate, seed):
    """With one place in the line, the second who wants to wait is turned away."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(max_slot_queue=1))
    _, first, second = busy(world, supervisor, "s", OK, OK)
    assert second.outcome().kind is FULL
    assert not first.done()
    assert look(supervisor)[2] == 1


@seeds
def test_s161_line_without_places(simulate, seed):
    """Where nobody may wait, a replacement still may, and another one displaces it."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(max_slot_queue=0))
    owner = supervisor.submit(scripted(Script(100, cleanup=1)), slot="s")
    world.run_until_idle()
    assert supervisor.submit(scripted(OK), slot="s").outcome().kind is FULL
    first = supervisor.submit(scripted(OK), slot="s", policy="replace")
    world.run_until_idle()
    assert look(supervisor) == (SlotStatus.TERMINATING, owner.id, 1)
    second = supervisor.submit(scripted(OK), slot="s", policy="replace")
    assert first.outcome().kind is SUPERSEDED
    assert second.outcome() == Completed("ok")


@pytest.mark.parametrize(("depth", "taken"), [(0, True), (2, True), (3, False), (10, False)])
def test_s162_boundary(depth, taken):
    """With a limit of three, a line of none and of two takes one more, a line of three and of ten does not."""
    slot = slot_in(Phase.RUNNING, *range(2, 2 + depth))
    slot.rules.max_queue = 3
    slot.do_submit(99)
    assert (99 in slot.waiting) is taken


@seeds
def test_s163_replace_displaces_the_head(simulate, seed):
    """A replacement takes the place of the head of the line; who waits behind it stays and runs after it."""
    world, supervisor = simulate(seed)
    owner, first, second = busy(world, supervisor, "s", OK, OK)
    world.run_until_idle()
    replacement = supervisor.submit(scripted(OK), slot="s", policy="replace")
    assert first.outcome().kind is SUPERSEDED
    assert first.outcome().cause_id == replacement.id
    assert world.of("submission_accepted", replacement)[0]["depth"] == 2
    assert second.outcome() == Completed("ok")
    assert world.order("s") == [owner.id, replacement.id, second.id]


@seeds
def test_s164_replacements_in_a_row(simulate, seed):
    """Of three replacements only the last waits and runs, and the owner is asked to stop once."""
    world, supervisor = simulate(seed)
    owner = supervisor.submit(scripted(Script(100, cleanup=1)), slot="s")
    world.run_until_idle()
    first, second, third = (supervisor.submit(scripted(OK), slot="s", policy="replace") for _ in range(3))
    world.run_until_idle()
    assert look(supervisor) == (SlotStatus.TERMINATING, owner.id, 1)
    assert [handle.outcome().kind for handle in (first, second)] == [SUPERSEDED] * 2
    assert third.outcome() == Completed("ok")
    assert world.count("task_remove_requested", owner) == 1
    assert world.order("s") == [owner.id, third.id]


def test_s168_snapshot(simulate):
    """A look at a slot shows who owns it and how many wait."""
    world, supervisor = simulate()
    owner, _ = busy(world, supervisor, "s", OK)
    snapshot = supervisor.snapshot()
    assert look(supervisor) == (SlotStatus.RUNNING, owner.id, 1)
    assert (snapshot.running_count, snapshot.total_queued) == (1, 1)


# -- many at once --------------------------------------------------------------------------------------------------


def at_once(number, call):
    """Call from so many threads at the same time; returns the results."""
    barrier = threading.Barrier(number)

    def enter(which):
        barrier.wait(SOON)
        return call(which)

    return [join() for join in [call_in_thread(enter, which) for which in range(number)]]


def test_s165_many_replace_at_once(supervisor):
    """Fifty replacements at the same time: all are taken in, one is left running, nobody waits."""

    def work(ctx):
        ctx.wait(30)
        ctx.raise_if_cancelled()

    handles = at_once(
        50,
        lambda which: supervisor.submit(TaskSpec.once(work, name=f"run-{which}"), slot="s", policy="replace"),
    )
    assert eventually(lambda: sum(handle.done() for handle in handles) == 49)
    (alive,) = (handle for handle in handles if not handle.done())
    assert eventually(lambda: look(supervisor) == (SlotStatus.RUNNING, alive.id, 0))
    assert [id_ for id_, _ in supervisor.tasks()] == [alive.id]


def test_s166_many_drop_if_running_at_once(start, body):
    """Forty submissions that do not want to wait, at the same time: one runs, the others are turned away."""
    log, gauge, work = Log(), Gauge(), body()
    supervisor = start(logger=log)
    handles = at_once(40, lambda _which: supervisor.submit(gauge(work), slot="s", policy="drop_if_running"))
    assert work.is_inside()
    assert eventually(lambda: sum(handle.done() for handle in handles) == 39)
    work.let_go()
    supervisor.join(SOON)
    supervisor.shutdown()
    assert (work.runs, gauge.most["s"]) == (1, 1)
    assert log.events().count("attempt_starting") == 1
    assert [fields["rejection_kind"] for fields in log.of("submission_rejected")] == [BUSY] * 39


@seeds
def test_s167_full_intake(simulate, seed):
    """With one place in the intake a burst that does not wait finds it full, and what found it full was never there."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(intake=1))
    handles, full = [], 0
    for _ in range(5):
        try:
            handles.append(supervisor.try_submit(scripted(OK), slot="s"))
        except IntakeFullError:
            full += 1
            world.step()
    assert full >= 1
    assert {handle.outcome() for handle in handles} == {Completed("ok")}
    world.run_until_idle()
    assert {record["id"] for record in world.records if "id" in record} == {handle.id for handle in handles}


def test_s169_least_capacities(simulate):
    """With one place everywhere a submission works."""
    _, supervisor = simulate(limits=AdmissionLimits(intake=1, max_slot_queue=1))
    handles = [supervisor.submit(scripted(OK), slot="s") for _ in range(2)]
    assert [handle.outcome() for handle in handles] == [Completed("ok")] * 2


def test_s170_cancel_of_an_added_run(simulate):
    """A run that was added directly can be cancelled by its id beside all slots."""
    world, supervisor = simulate()
    (owner,) = busy(world, supervisor)
    handle = supervisor.add(scripted(COOP_CANCELLED))
    assert supervisor.cancel(handle.id) is True
    assert handle.outcome() == Cancelled()
    assert not owner.done()


def test_s173_flood(start, body):
    """A flood of submissions that are turned away does not keep the owner from ending and the slot from going on."""
    supervisor = start(limits=AdmissionLimits(intake=1))
    owner, full, over = body("done"), threading.Event(), threading.Event()
    first = supervisor.submit(owner, slot="s")
    assert owner.is_inside()
    second = supervisor.submit(noop, slot="s")

    def flood():
        while not over.is_set():
            try:
                supervisor.try_submit(noop, slot="s", policy="drop_if_running")
            except IntakeFullError:
                full.set()

    producers = [call_in_thread(flood) for _ in range(4)]
    try:
        assert full.wait(SOON)
        owner.let_go()
        assert [outcome_of(first), outcome_of(second)] == [Completed("done")] * 2
    finally:
        over.set()
    for join in producers:
        join()
    assert supervisor.shutdown().clean


class Deaf:
    """A logger that wants nothing, or fails over everything."""

    def __init__(self, *, wants):
        self.wants = wants

    def is_enabled_for(self, _level):
        return self.wants

    def fail(self, *_, **__):
        raise RuntimeError("nobody listens")

    debug = info = warning = error = critical = fail


@pytest.mark.parametrize("listener", ["nobody", "deaf log", "failing log", "stuck subscriber with one place"])
def test_s174_nobody_listens(start, body, listener):
    """Without anybody who hears of events, admission, completion and cancellation of who waits all work."""
    loggers = {"deaf log": Deaf(wants=False), "failing log": Deaf(wants=True)}
    supervisor, owner, stuck = start(logger=loggers.get(listener)), body("done"), threading.Event()
    if listener not in {"nobody", *loggers}:
        supervisor.subscribe(lambda _event: stuck.wait(30), capacity=1)
    first = supervisor.submit(owner, slot="s")
    victim, last = (supervisor.submit(noop, slot="s") for _ in range(2))
    try:
        assert owner.is_inside()
        assert supervisor.cancel(victim.id) is True
        assert outcome_of(victim).kind is RejectionKind.REMOVED_FROM_QUEUE
        owner.let_go()
        assert [outcome_of(first), outcome_of(last)] == [Completed("done")] * 2
    finally:
        stuck.set()
    assert supervisor.shutdown().clean
