"""Events and whoever subscribes to them: what an event carries, full queues, faults, the end, the log."""

from __future__ import annotations

import logging

import pytest

from actors import Supervisor
from actors.observers.log import as_fields, open_sink
from actors.observers.subscribers import check_subscriber
from actors.publisher import level_of
from actors.testing import Script, scripted
from admission import (
    Backoff,
    Completed,
    Event,
    EventKind,
    FatalError,
    OutcomeKind,
    RejectionKind,
    TaskFailedError,
    TaskSpec,
)
from tests.actors.support import SOON, Log, call_in_thread, eventually, noop
from tests.conformance.direct import registry_of
from tests.conformance.support import OK, seeds
from tests.conformance.verdicts import adapted


class Keeper:
    """A subscriber that keeps what it is told."""

    def __init__(self):
        self.events = []

    def on_event(self, event):
        self.events.append(event)

    def kinds(self):
        return [event.kind for event in self.events]


class Raising(Keeper):
    """One that raises over everything."""

    def on_event(self, event):
        super().on_event(event)
        msg = "boom"
        raise ValueError(msg)


def publish(supervisor, kind=EventKind.SHUTDOWN_REQUESTED, number=1):
    """Publish so many events, as an actor does."""
    for _ in range(number):
        supervisor._core.publisher.publish(kind)


# -- events ----------------------------------------------------------------------------------------------------------


@seeds
@adapted("durations are seconds without an upper bound, and events are not built field by field", rule="dropped")
def test_s300_what_an_event_carries(simulate, seed):
    """Numbers strictly rise, an event has only the fields of its kind, and a negative exit code is kept."""
    told = Keeper()
    world, supervisor = simulate(seed, subscribers=[told])
    plain = Event(1, EventKind.SHUTDOWN_REQUESTED, at=0.0, mono=0.0)
    assert (plain.id, plain.task, plain.slot, plain.attempt, plain.fields) == (None, None, None, None, {})
    never = TaskSpec.once(scripted(Script(result=FatalError("no", exit_code=-9))))
    assert supervisor.submit(never, slot="k").outcome().exit_code == -9
    supervisor.submit(scripted(Script(1e10)), slot="busy")
    assert supervisor.submit(scripted(OK), slot="busy", policy="drop_if_running").outcome().kind == "slot_busy"
    world.run_until_idle()
    numbers = [event.seq for event in told.events]
    assert numbers == sorted(set(numbers))
    (failed,) = (event for event in told.events if event.kind is EventKind.ATTEMPT_FAILED)
    assert failed.fields["exit_code"] == -9
    (rejected,) = (event for event in told.events if event.kind is EventKind.SUBMISSION_REJECTED)
    assert rejected.fields["rejection_kind"] is RejectionKind.SLOT_BUSY
    assert rejected.fields["outcome_kind"] is OutcomeKind.REJECTED


def test_s301_what_a_diagnostic_is():
    """The internal diagnostics are a subscriber's panic, its overflow, and a failure of the runtime."""
    diagnostics = {kind for kind in EventKind if kind.is_diagnostic}
    assert diagnostics == {"subscriber_panicked", "subscriber_overflow", "runtime_failure"}


# -- no bus ----------------------------------------------------------------------------------------------------------


@adapted("the oldest stay and the newest are lost, for the slow subscriber only; the notice says `full`", rule="events")
def test_s303_a_slow_receiver_is_told_how_much_it_has_missed(start, lagging):
    """Of many events behind a slow subscriber with a small queue the first come, and then how many are missing."""
    told, kept = [], Keeper()
    supervisor = start(subscribers=[kept])

    def slow(event):
        lagging.on_event(event)
        told.append(event)

    supervisor.subscribe(slow, name="slow", capacity=2)
    publish(supervisor)
    assert lagging.inside.wait(SOON)
    publish(supervisor, number=499)
    lagging.open.set()
    assert eventually(lambda: len(told) == 4)
    assert [event.seq for event in told[:3]] == [event.seq for event in kept.events[:3]]
    assert told[3].kind is EventKind.SUBSCRIBER_OVERFLOW
    assert (told[3].task, told[3].fields) == ("slow", {"reason": "full", "dropped": 497})
    assert eventually(lambda: len(kept.events) == 500)


@seeds
def test_s304_what_nobody_hears_is_gone(simulate, seed):
    """What is published while nobody listens is dropped: who comes later sees nothing of it."""
    world, supervisor = simulate(seed)
    supervisor.submit(scripted(OK), slot="k").outcome()
    world.run_until_idle()
    late = Keeper()
    supervisor.subscribe(late)
    world.run_until_idle()
    assert late.events == []


# -- subscribers -----------------------------------------------------------------------------------------------------


def test_s305_a_full_queue_is_told_of_ordinary_events_and_not_of_diagnostics(start, lagging):
    """With a queue of one and a blocked callback, lost ordinary events are told as an overflow, diagnostics not."""
    log = Log()
    supervisor = start(logger=log)
    publisher = supervisor._core.publisher
    supervisor.subscribe(lagging, capacity=1)
    publish(supervisor)
    assert lagging.inside.wait(SOON)
    publish(supervisor)
    publish(supervisor, number=7)
    for _ in range(5):
        publisher.failure("slot", noop, ValueError())
    lagging.open.set()
    assert eventually(lambda: log.of("subscriber_overflow"))
    (notice,) = log.of("subscriber_overflow")
    assert (notice["task"], notice["reason"], notice["dropped"]) == ("Lagging", "full", 7)
    assert eventually(lambda: lagging.told == 3)


@seeds
def test_s306_a_subscriber_that_raises_costs_the_others_nothing(simulate, seed):
    """The others see everything in order, and a panic under the raising one's name for each of its ordinary events."""
    good, raising = Keeper(), Raising()
    world, supervisor = simulate(seed, subscribers=[good])
    supervisor.subscribe(raising, name=f"raising-{seed}")
    supervisor.submit(scripted(OK), slot="k").outcome()
    supervisor._core.publisher.failure("slot", noop, ValueError())
    world.run_until_idle()
    numbers = [event.seq for event in good.events]
    assert numbers == sorted(set(numbers))
    panics = [event for event in good.events if event.kind is EventKind.SUBSCRIBER_PANICKED]
    others = [event.kind for event in good.events if event.kind is not EventKind.SUBSCRIBER_PANICKED]
    assert others == raising.kinds()
    assert {(event.task, event.fields["reason"]) for event in panics} == {(f"raising-{seed}", "ValueError: boom")}
    assert len(panics) == len(others) - 1  # none for the failure of the runtime


@seeds
def test_s307_subscribers_start_once_and_end_once(simulate, seed):
    """Started twice each event comes once; the end drains; ended before the start, or in no time, it drops."""
    told, never, dropped = Keeper(), Keeper(), Keeper()
    world, supervisor = simulate(seed, subscribers=[told])
    supervisor.start().submit(scripted(OK), slot="k").outcome()
    supervisor.shutdown()
    supervisor.shutdown()
    numbers = [event.seq for event in told.events]
    assert numbers == sorted(set(numbers))
    assert told.kinds()[-1] is EventKind.ALL_STOPPED_WITHIN_GRACE

    unstarted = world.supervisor(subscribers=[never])
    assert unstarted.shutdown().clean

    other_world, hasty = simulate(seed, subscribers=[dropped], observer_timeout=0)
    publish(hasty, number=20)
    report = hasty.shutdown()
    other_world.run_until_idle()
    assert len(dropped.events) + report.events_dropped == 22
    assert never.events == []


class AllBlocked:
    """A dispatcher all of whose threads are inside code that does not come back."""

    forked = False

    def schedule(self, _runnable):
        pass


@seeds
def test_s308_blocked_subscribers_share_one_timeout(simulate, seed):
    """Two subscribers that are blocked delay the end by the timeout once, not twice."""
    world, supervisor = simulate(seed, observer_timeout=10)
    both = [Keeper(), Keeper()]
    threads, world.observers = world.observers, AllBlocked()
    for each in both:
        supervisor.subscribe(each)
    world.observers = threads
    publish(supervisor, number=3)
    before = world.now
    report = supervisor.shutdown()
    assert 8 < world.now - before <= 10
    assert (report.events_dropped, report.log_dropped) == (2 * 5, 0)
    assert both[0].events == both[1].events == []


def test_s309_what_a_subscriber_is_called_and_how_much_may_wait_for_it():
    """Its name is that of its type, and its capacity 1024, unless it says otherwise."""
    wanted = check_subscriber(Keeper())
    assert (wanted.name, wanted.capacity) == ("Keeper", 1024)


def test_s310_a_blocked_callback_holds_up_nothing(start, lagging):
    """While a callback blocks, runs go on and the supervisor answers."""
    supervisor = start(subscribers=[lagging])
    publish(supervisor)
    assert lagging.inside.wait(SOON)
    handles = [supervisor.submit(noop, slot=f"k{number % 5}") for number in range(50)]
    assert {handle.outcome(SOON) for handle in handles} == {Completed("done")}
    assert supervisor.tasks() == []
    assert supervisor.alive() == ()
    assert lagging.told == 0
    lagging.open.set()


# -- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["shutdown", "run"])
def test_s260_a_blocked_callback_does_not_keep_the_end(start, lagging, way):
    """With a callback that blocks, a shutdown and a run that is over return after the timeout while it still runs."""
    supervisor = start(subscribers=[lagging], observer_timeout=0.05)
    if way == "run":
        report = call_in_thread(supervisor.run, [noop])()
    else:
        supervisor.submit(noop, slot="k").result(SOON)
        report = call_in_thread(supervisor.shutdown)()
    assert report.clean
    assert lagging.inside.is_set()
    assert (lagging.told, report.events_dropped > 0) == (0, True)


def test_s261_a_callback_that_comes_back_is_waited_for(start, lagging):
    """Both who shut down are answered once the callback that blocked is back and everything has been told."""
    kept = Keeper()

    def late(event):
        lagging.on_event(event)
        kept.on_event(event)

    supervisor = start(subscribers=[late], observer_timeout=5)
    supervisor.submit(noop, slot="k").result(SOON)
    assert lagging.inside.wait(SOON)
    both = [call_in_thread(supervisor.shutdown) for _ in range(2)]
    assert eventually(lambda: registry_of(supervisor).unflushed == 1)
    lagging.open.set()
    one, other = (down() for down in both)
    assert one is other
    assert (one.clean, one.events_dropped) == (True, 0)
    assert kept.kinds()[-1] is EventKind.ALL_STOPPED_WITHIN_GRACE


# -- the log ---------------------------------------------------------------------------------------------------------

LEVELS = {
    logging.ERROR: "attempt_failed subscriber_panicked runtime_failure",
    logging.WARNING: "attempt_timed_out grace_exceeded subscriber_overflow task_add_failed submission_rejected",
    logging.INFO: "attempt_succeeded attempt_cancelled task_added task_removed shutdown_requested "
    "all_stopped_within_grace submission_accepted",
    logging.DEBUG: "attempt_starting backoff_scheduled task_add_requested task_remove_requested slot_transition",
}
OUTCOME_LEVELS = {
    logging.ERROR: "outcome_fatal outcome_panicked",
    logging.WARNING: "outcome_failed outcome_force_aborted",
    logging.INFO: "outcome_completed outcome_cancelled",
}


@pytest.mark.parametrize("level", LEVELS)
def test_s316_levels_fields_and_numbers_of_the_log(level, caplog):
    """Each kind has its level; fields that an event lacks are left out, and its number is written in full."""
    assert {level_of(EventKind(kind), {}) for kind in LEVELS[level].split()} == {level}
    ends = OUTCOME_LEVELS.get(level, "").split()
    assert all(level_of(EventKind.TASK_FINISHED, {"outcome_kind": OutcomeKind(end)}) == level for end in ends)

    bare = Event(98_765_432_109, EventKind(LEVELS[level].split()[0]), at=0.0, mono=0.0)
    fields = as_fields(bare, "me")
    assert set(fields) == {"schema", "supervisor", "seq", "mono", "at"}
    with caplog.at_level(logging.DEBUG, "slotkeeper"):
        open_sink().write(level, bare.kind.value, fields)
    (record,) = caplog.records
    assert (record.levelno, "seq=98765432109" in record.getMessage()) == (level, True)


def test_what_really_happens_has_its_level(caplog):
    spec = TaskSpec.restartable(_fails_once(), backoff=Backoff.constant(0))
    with caplog.at_level(logging.DEBUG, "slotkeeper"), Supervisor(grace=1) as supervisor:
        supervisor.submit(spec, slot="k").outcome(SOON)
    levels = {
        record.getMessage().split()[0]: record.levelno for record in caplog.records if record.name == "slotkeeper"
    }
    expected = {kind: level for level, kinds in LEVELS.items() for kind in kinds.split() if kind in levels}
    assert len(expected) > 8
    assert {kind: levels[kind] for kind in expected} == expected


def _fails_once():
    errors = iter([TaskFailedError("no")])

    def body(_ctx):
        for error in errors:
            raise error

    return body
