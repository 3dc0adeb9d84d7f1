"""Subscribers: who may be one, what each is told and in which order, and what none of them can do to the others."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
import time
from queue import Queue
from unittest.mock import Mock

import pykka
import pytest

from actors import DispatchedActor, Lifecycle, RegistryActor, Shutdown, SlotActor, Submit, Subscription, Supervisor
from actors.observers.subscribers import Listener, check_subscriber, check_subscribers
from actors.publisher import Publisher
from actors.testing import Script, Simulation, scripted
from admission import Event, EventKind, NotStartedError, Submission, SupervisorClosedError, TaskSpec
from tests.actors.support import SOON, Log, call_in_thread, eventually, noop

EVENTS_OF_A_JOB = [
    "task_add_requested",
    "submission_accepted",
    "task_added",
    "slot_transition",
    "attempt_starting",
    "attempt_succeeded",
    "task_finished",
    "task_removed",
]
"""What subscribers hear of a job in an idle slot."""

LAST = ["shutdown_requested", "all_stopped_within_grace"]
seeds = pytest.mark.parametrize("seed", range(12))


def kinds(events):
    return [event.kind.value for event in events]


def ordinary(events):
    return [event for event in events if not event.kind.is_diagnostic]


class Taker:
    """A subscriber that keeps what it is told; `until` waits for the first event of a kind."""

    def __init__(self):
        self.events = []
        self._changed = threading.Condition()

    def on_event(self, event):
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def until(self, kind):
        with self._changed:
            assert self._changed.wait_for(lambda: kind in kinds(self.events), SOON), kinds(self.events)
        return self.events

    def of(self, kind):
        return [event for event in self.events if event.kind == kind]


class Blocked(Taker):
    """One that stays inside its first event until it is let go."""

    def __init__(self):
        super().__init__()
        self.inside = threading.Event()
        self.open = threading.Event()

    def on_event(self, event):
        self.inside.set()
        self.open.wait(30)
        super().on_event(event)


class Raising(Taker):
    """One that raises over every event."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error or ValueError("boom")

    def on_event(self, event):
        super().on_event(event)
        raise self.error


@pytest.fixture
def blocked():
    """Makes blocked subscribers; all are let go in the end."""
    made = []

    def make():
        made.append(Blocked())
        return made[-1]

    yield make
    for each in made:
        each.open.set()


def run(supervisor, number=1, slot="s"):
    """Run so many jobs in one slot, one after the other."""
    for _ in range(number):
        assert supervisor.submit(noop, slot=slot).result(SOON) == "done"


def one_event(supervisor):
    """Have one event told, whenever it is: that somebody asked for an unknown run to be removed."""
    assert supervisor.remove(supervisor._core.runtime.new_id()) is False


# -- who may be one ------------------------------------------------------------------------------------------------


def named_function(event):
    return event


class Callable:
    def __call__(self, event):
        return event

    def method(self, event):
        return event


class Actor(pykka.ThreadingActor):
    pass


@pytest.mark.parametrize(
    ("subscriber", "name"),
    [
        (named_function, "named_function"),
        (lambda _event: None, "<lambda>"),
        (Callable(), "Callable"),
        (Callable().method, "Callable.method"),
        (Taker(), "Taker"),
        (Taker().on_event, "Taker.on_event"),
        (functools.partial(named_function), "partial"),
        ([].append, "list.append"),
        (print, "print"),
        (Mock(), "Mock"),
    ],
)
def test_a_subscriber_is_called_after_its_type_or_function(subscriber, name):
    wanted = check_subscriber(subscriber)
    assert (wanted.name, wanted.capacity) == (name, 1024)
    assert check_subscriber(subscriber, "mine", 3).name == "mine"


def test_an_actor_that_subscribes_is_called_after_its_class():
    ref = Actor.start()
    try:
        assert check_subscriber(ref).name == "Actor"
    finally:
        ref.stop()


async def coroutine(event):
    return event


class AsyncCallable:
    async def __call__(self, event):
        return event


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"subscriber": None}, TypeError, "subscriber must be .* not NoneType"),
        ({"subscriber": 3}, TypeError, "subscriber must be .* not int"),
        ({"subscriber": Taker}, TypeError, "subscriber must be .* not the class Taker"),
        ({"subscriber": coroutine}, TypeError, "subscriber must not be a coroutine function.*: coroutine"),
        ({"subscriber": AsyncCallable()}, TypeError, "subscriber must not be a coroutine function.*: AsyncCallable"),
        ({"subscriber": noop, "name": 3}, TypeError, "name must be a str"),
        ({"subscriber": noop, "name": ""}, ValueError, "name must not be empty"),
        ({"subscriber": noop, "capacity": 0}, ValueError, "capacity must be at least 1"),
        ({"subscriber": noop, "capacity": None}, TypeError, "capacity must be an int"),
        ({"subscriber": noop, "capacity": 1.5}, TypeError, "capacity must be an int"),
        ({"subscriber": noop, "capacity": True}, TypeError, "capacity must be an int"),
    ],
)
def test_what_can_not_be_a_subscriber_is_an_error_at_the_call(supervisor, arguments, error, message):
    with pytest.raises(error, match=message):
        supervisor.subscribe(**arguments)


@pytest.mark.parametrize("subscribers", [3, noop, (noop, 3), "ab"])
def test_what_is_no_row_of_subscribers_is_an_error_at_the_call(subscribers):
    with pytest.raises(TypeError, match="subscribers must be an iterable of subscribers"):
        Supervisor(subscribers=subscribers)


def test_a_row_of_subscribers_may_be_any_iterable():
    assert [wanted.name for wanted in check_subscribers(each for each in (print, Taker()))] == ["print", "Taker"]


def test_nobody_subscribes_before_the_start_or_after_the_end():
    supervisor = Supervisor()
    with pytest.raises(NotStartedError):
        supervisor.subscribe(print)
    with supervisor:
        pass
    with pytest.raises(SupervisorClosedError):
        supervisor.subscribe(print)


def test_nobody_subscribes_once_the_last_record_is_written():
    with Simulation(0) as world:
        publisher = Publisher(world)
        publisher.close()
        with pytest.raises(SupervisorClosedError):
            publisher.subscribe(check_subscriber(print))


# -- what is told, and in which order --------------------------------------------------------------------------------


@seeds
def test_a_subscriber_is_told_what_happens_in_order_and_nothing_that_is_only_for_the_log(seed):
    taker = Taker()
    world = Simulation(seed)
    with world.supervisor(subscribers=(taker,)) as supervisor:
        handle = supervisor.submit(noop, slot="s")
        handle.outcome()
    events = taker.events
    assert sorted(kinds(events)) == sorted(EVENTS_OF_A_JOB + LAST)
    assert kinds(events)[-2:] == LAST
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    logged = {record["seq"]: record["event"] for record in world.records}
    assert [logged[event.seq] for event in events] == kinds(events)
    assert {(event.id, event.task) for event in events if event.id is not None} == {(handle.id, "s")}
    (transition,) = taker.of("slot_transition")
    assert (transition.id, transition.slot, transition.fields["to_phase"]) == (None, "s", "running")


@seeds
def test_every_subscriber_is_told_the_same(seed):
    takers = [Taker(), [], Taker()]
    with Simulation(seed).supervisor(subscribers=(takers[0], takers[1].append)) as supervisor:
        with supervisor.subscribe(takers[2]):
            for slot in "ab":
                supervisor.submit(scripted(Script(1)), slot=slot)
            supervisor.join()
        supervisor.shutdown()
    one, other, third = takers[0].events, takers[1], takers[2].events
    assert len(one) == 2 * len(EVENTS_OF_A_JOB) + 2
    assert [(event.seq, event.kind) for event in one] == [(event.seq, event.kind) for event in other]
    assert kinds(third) == kinds(one)[: len(third)]


def test_an_event_of_a_subscriber_is_its_own():
    told, log = Taker(), Log()

    def vandal(event):
        event.kind = event.seq = None
        event.fields.clear()
        event.fields["broken"] = True

    with Supervisor(subscribers=(vandal, told), logger=log) as supervisor:
        run(supervisor)
    assert sorted(kinds(told.events)) == sorted(EVENTS_OF_A_JOB + LAST)
    assert not any("broken" in event.fields for event in told.events)
    assert not any("broken" in fields for _, fields in log.records)


def test_what_a_subscriber_binds_it_finds_again_and_nobody_else_does():
    bound = contextvars.ContextVar("bound", default=0)
    mine, others = [], []

    def count(_event):
        bound.set(bound.get() + 1)
        mine.append(bound.get())

    with Supervisor(subscribers=(count, lambda _event: others.append(bound.get()))) as supervisor:
        run(supervisor)
    assert mine == list(range(1, len(mine) + 1))
    assert set(others) == {0}


def test_a_fault_of_the_machinery_is_told():
    taker = Taker()
    with Supervisor(subscribers=(taker,)) as supervisor:
        supervisor._core.publisher.failure("slot", noop, ValueError("boom"))
        (event,) = taker.until("runtime_failure")
    assert (event.task, event.fields) == ("slot", {"reason": "function: ValueError: boom"})


def test_an_unknown_id_that_is_removed_is_named(start):
    taker = Taker()
    supervisor = start(subscribers=(taker,))
    number = supervisor._core.runtime.new_id()
    assert supervisor.remove(number) is False
    (event,) = taker.until("task_remove_requested")
    assert (event.id, event.task) == (number, None)


# -- coming and going ------------------------------------------------------------------------------------------------


def test_where_nobody_listens_no_event_is_built(start, monkeypatch):
    built = []
    monkeypatch.setattr("actors.publisher.Event", lambda *args: built.append(Event(*args)) or built[-1])
    monkeypatch.setattr(logging.getLogger("slotkeeper"), "level", logging.CRITICAL)
    supervisor = start()
    publisher = supervisor._core.publisher
    run(supervisor)
    assert (built, publisher._quiet) == ([], True)
    taker = Taker()
    with supervisor.subscribe(taker) as subscription:
        assert not publisher._quiet
        run(supervisor)
        taker.until("task_removed")
        assert eventually(lambda: len(taker.events) == len(EVENTS_OF_A_JOB))
    assert (subscription.closed, publisher._quiet, kinds(taker.events)) == (True, True, kinds(built))
    run(supervisor)
    assert kinds(built) == EVENTS_OF_A_JOB


@seeds
def test_who_subscribes_is_told_of_what_comes_and_who_leaves_of_nothing_more(seed):
    world, taker = Simulation(seed), Taker()
    with world.supervisor() as supervisor:
        supervisor.submit(noop, slot="before").outcome()
        world.run_until_idle()
        with supervisor.subscribe(taker) as subscription:
            supervisor.submit(noop, slot="within").outcome()
            world.run_until_idle()
            assert (subscription.name, subscription.dropped, subscription.closed) == ("Taker", 0, False)
        supervisor.submit(noop, slot="after").outcome()
        world.run_until_idle()
    assert kinds(taker.events) == EVENTS_OF_A_JOB
    assert {event.slot for event in taker.events} == {"within"}
    subscription.close()
    assert repr(subscription) == "<Subscription 'Taker' closed, 0 dropped>"


def test_what_waits_for_a_subscriber_that_leaves_is_dropped_and_nobody_waits_for_its_callback(start, blocked):
    subscriber = blocked()
    supervisor = start()
    subscription = supervisor.subscribe(subscriber)
    run(supervisor)
    assert subscriber.inside.wait(SOON)
    call_in_thread(subscription.close)()
    subscriber.open.set()
    run(supervisor)
    assert supervisor.shutdown().events_dropped == 0
    assert eventually(lambda: len(subscriber.events) == 1)


def test_a_subscriber_may_leave_from_its_own_callback_even_while_the_end_waits_for_it(start, blocked):
    first = blocked()
    supervisor = start()
    held = []

    def leave(event):
        first.on_event(event)
        held[0].close()

    held.append(supervisor.subscribe(leave))
    run(supervisor)
    assert first.inside.wait(SOON)
    down = call_in_thread(supervisor.shutdown)
    assert eventually(lambda: supervisor._core.registry._actor_weakref().unflushed == 1)
    first.open.set()
    report = down(SOON)  # and not after the five seconds of `observer_timeout`
    assert (report.events_dropped, len(first.events)) == (0, 1)


def test_a_subscription_that_nobody_keeps_goes_on(start):
    taker = Taker()
    supervisor = start()
    supervisor.subscribe(taker)
    run(supervisor)
    taker.until("task_removed")


def test_subscribers_come_and_go_on_many_threads(start):
    supervisor = start()
    stop = threading.Event()
    kept = Taker()
    everything = supervisor.subscribe(kept, capacity=100_000)

    def come_and_go():
        seen = 0
        while not stop.is_set():
            taker = Taker()
            with supervisor.subscribe(taker):
                run(supervisor, slot=threading.current_thread().name)
                assert eventually(lambda: taker.events)  # noqa: B023
            numbers = [event.seq for event in list(taker.events)]
            assert numbers == sorted(set(numbers))
            seen += 1
        return seen

    joins = [call_in_thread(come_and_go) for _ in range(4)]
    run(supervisor, 200)
    stop.set()
    assert all(join(10) for join in joins)
    supervisor.shutdown()
    numbers = [event.seq for event in kept.events]
    assert numbers == sorted(set(numbers))
    assert kinds(kept.events).count("task_removed") >= 200 + 4
    assert everything.dropped == 0


# -- what one does to the others -------------------------------------------------------------------------------------


def test_a_subscriber_that_blocks_delays_nobody(start, blocked, body):
    subscriber, taker, log = blocked(), Taker(), Log()
    supervisor = start(subscribers=(subscriber, taker, subscriber), logger=log)
    running = body()
    handle = supervisor.submit(running, slot="long")
    assert subscriber.inside.wait(SOON)
    run(supervisor, 20)
    assert [name for _, name in supervisor.tasks()] == ["long"]
    assert len(supervisor.snapshot()) == 1
    assert supervisor.cancel(handle.id, timeout=SOON) is True
    assert eventually(lambda: kinds(taker.events).count("task_removed") == 21)
    assert eventually(lambda: log.events().count("task_removed") == 21)
    assert subscriber.events == []


def test_what_does_not_fit_is_lost_for_one_and_told_once_it_has_caught_up(start, blocked):
    subscriber, taker, log = blocked(), Taker(), Log()
    supervisor = start(subscribers=(taker,), logger=log)
    subscription = supervisor.subscribe(subscriber, name="slow", capacity=2)
    one_event(supervisor)
    assert subscriber.inside.wait(SOON)
    run(supervisor, 3)
    assert eventually(lambda: kinds(taker.events).count("task_removed") == 3)
    lost = 3 * len(EVENTS_OF_A_JOB) - 2  # two wait
    assert subscription.dropped == lost
    subscriber.open.set()
    events = subscriber.until("subscriber_overflow")
    assert kinds(events) == ["task_remove_requested", *kinds(taker.events)[1:3], "subscriber_overflow"]
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert (events[-1].task, events[-1].fields) == ("slow", {"reason": "full", "dropped": lost})
    assert taker.of("subscriber_overflow") == []
    assert eventually(lambda: log.of("subscriber_overflow"))
    (record,) = log.of("subscriber_overflow")
    assert (record["task"], record["dropped"], record["seq"]) == ("slow", lost, events[-1].seq)
    one_event(supervisor)
    assert eventually(lambda: len(subscriber.events) == 5)
    assert subscriber.events[-1].kind is EventKind.TASK_REMOVE_REQUESTED
    assert subscription.dropped == lost


@seeds
def test_every_event_is_told_or_counted(seed):
    world, everything, some = Simulation(seed), [], []
    with world.supervisor(subscribers=(everything.append,)) as supervisor:
        subscription = supervisor.subscribe(some.append, capacity=2)
        for number in range(10):
            supervisor.submit(scripted(Script(number % 3)), slot=f"s{number % 4}")
        supervisor.join()
    told = [event for event in some if event.kind is EventKind.SUBSCRIBER_OVERFLOW]
    assert sum(event.fields["dropped"] for event in told) == subscription.dropped > 0
    assert len(ordinary(some)) + subscription.dropped == len(everything)
    assert [event.seq for event in some] == sorted(event.seq for event in some)


def test_a_diagnostic_that_does_not_fit_is_not_counted(start, blocked):
    subscriber = blocked()
    supervisor = start()
    subscription = supervisor.subscribe(subscriber, capacity=1)
    one_event(supervisor)
    assert subscriber.inside.wait(SOON)
    one_event(supervisor)  # waits; there is no room for what follows
    for _ in range(5):
        supervisor._core.publisher.failure("slot", noop, ValueError())
    subscriber.open.set()
    assert eventually(lambda: len(subscriber.events) == 2)
    one_event(supervisor)
    assert eventually(lambda: len(subscriber.events) == 3)
    assert (subscription.dropped, len(ordinary(subscriber.events))) == (0, 3)


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_what_a_subscriber_raises_is_told_to_the_others_and_delivery_goes_on(error):
    raising, good, log = Raising(error), Taker(), Log()
    with Supervisor(subscribers=(raising, good), logger=log) as supervisor:
        run(supervisor)
    assert sorted(kinds(raising.events)) == sorted(EVENTS_OF_A_JOB + LAST)
    assert sorted(kinds(ordinary(good.events))) == sorted(EVENTS_OF_A_JOB + LAST)
    panics = good.of("subscriber_panicked")
    assert len(panics) == len(raising.events) == len(log.of("subscriber_panicked"))
    assert {(event.task, event.id) for event in panics} == {("Raising", None)}
    assert {event.fields["reason"].partition(":")[0] for event in panics} == {type(error).__name__}


@seeds
def test_what_is_raised_over_a_diagnostic_is_swallowed(seed):
    one, other = Raising(), Raising()
    world = Simulation(seed)
    with world.supervisor(subscribers=(one, other)) as supervisor:
        supervisor.submit(noop, slot="s").outcome()
        supervisor._core.publisher.failure("slot", noop, ValueError())
    expected = len(EVENTS_OF_A_JOB) + len(LAST)
    for each in (one, other):
        assert len(ordinary(each.events)) == expected
        assert len(each.of("subscriber_panicked")) == expected
        assert len(each.of("runtime_failure")) == 1
    assert [record["event"] for record in world.records].count("subscriber_panicked") == 2 * expected


def test_a_text_that_can_not_be_shown_is_no_second_fault():
    class HostileError(Exception):
        def __str__(self):
            raise ValueError

    good = Taker()
    with Supervisor(subscribers=(Raising(HostileError()), good)) as supervisor:
        run(supervisor)
    assert {event.fields["reason"] for event in good.of("subscriber_panicked")} == {
        "HostileError (its text can not be shown)"
    }


# -- actors ----------------------------------------------------------------------------------------------------------


class Collecting:
    """What both kinds of actors below do."""

    def __init__(self, events):
        super().__init__()
        self.events = events

    def on_receive(self, message):
        self.events.put(message)


class CollectingThread(Collecting, pykka.ThreadingActor):
    pass


class CollectingDispatched(Collecting, DispatchedActor):
    pass


@pytest.mark.parametrize("kind", [CollectingThread, CollectingDispatched])
def test_an_actor_is_told_until_it_stops(start, kind):
    events = Queue()
    ref = kind.start(events)
    supervisor = start()
    subscription = supervisor.subscribe(ref)
    try:
        run(supervisor)
        told = [events.get(timeout=SOON) for _ in EVENTS_OF_A_JOB]
    finally:
        ref.stop()
    assert kinds(told) == EVENTS_OF_A_JOB
    assert subscription.name == kind.__name__
    assert not subscription.closed
    run(supervisor)
    assert eventually(lambda: subscription.closed)
    assert supervisor.shutdown().events_dropped == 0


def test_an_actor_whose_inbox_is_full_blocks_nobody(start, blocked):
    class Narrow(pykka.ThreadingActor):
        @staticmethod
        def _create_actor_inbox():
            return Queue(maxsize=1)

        def on_receive(self, message):
            inside.on_event(message)

    inside = blocked()
    ref = Narrow.start()
    supervisor = start(observer_timeout=0.05)
    subscription = supervisor.subscribe(ref, capacity=1)
    try:
        one_event(supervisor)
        assert inside.inside.wait(SOON)  # one inside, then one in the inbox, one on its way there, one in our queue
        while not subscription.dropped:
            one_event(supervisor)
        run(supervisor)
        assert call_in_thread(supervisor.shutdown)().events_dropped == 1
    finally:
        inside.open.set()
        ref.stop()


@pytest.mark.parametrize("face", [RegistryActor, SlotActor])
def test_the_actor_faces_take_subscribers_too(runtime, face):
    taker = Taker()
    key = ("s",) if face is SlotActor else ()
    settings = {"runtime": runtime, "subscribers": [taker]}
    ref = face.start(*key, **settings)
    handle = ref.ask(Submit(Submission(noop, slot="s")))
    assert handle.result(SOON) == "done"
    assert ref.ask(Shutdown()).clean
    assert sorted(kinds(taker.events)) == sorted(EVENTS_OF_A_JOB + LAST)


def test_both_the_log_and_whoever_follows_one_submission_hear_of_it_as_well(runtime):
    events, taker, log = Queue(), Taker(), Log()
    ref = CollectingThread.start(events)
    registry = RegistryActor.start(runtime, subscribers=[taker], logger=log)
    registry.tell(Submit(Submission(noop, slot="s"), notify=ref, token=1))
    told = [events.get(timeout=SOON) for _ in EVENTS_OF_A_JOB]  # one of them, of the slot, it is not told; but the end
    ref.stop()
    registry.ask(Shutdown())
    by_number = {event.seq: event for event in taker.events}
    for lifecycle in (message for message in told if isinstance(message, Lifecycle)):
        lifecycle.event.fields["changed"] = True
        assert "changed" not in by_number[lifecycle.event.seq].fields
    assert len(log.of("task_removed")) == len(taker.of("task_removed")) == 1


async def _subscribe_async(taker):
    async with Supervisor() as supervisor:
        with supervisor.subscribe(taker, name="mine", capacity=70) as subscription:
            await (await supervisor.submit(noop, slot="s"))
            await supervisor.shutdown()
            return subscription


def test_the_face_for_event_loops_subscribes_without_waiting():
    taker = Taker()
    subscription = asyncio.run(_subscribe_async(taker))
    assert isinstance(subscription, Subscription)
    assert subscription.name == "mine"
    assert kinds(taker.events)[-2:] == LAST


# -- the end ---------------------------------------------------------------------------------------------------------


@seeds
def test_at_the_end_everything_that_waits_is_told_before_the_last_record(seed):
    world, raising, narrow = Simulation(seed), Raising(), []
    with world.supervisor(subscribers=(raising,)) as supervisor:
        supervisor.subscribe(narrow.append, capacity=1)
        for number in range(5):
            supervisor.submit(noop, slot=f"s{number}").outcome()
        report = supervisor.shutdown()
    assert (report.events_dropped, report.log_dropped, report.clean) == (0, 0, True)
    assert kinds(ordinary(raising.events))[-2:] == LAST
    written = [record["event"] for record in world.records]
    assert written[-1] == "shutdown_finished"
    assert written.count("subscriber_panicked") == len(ordinary(raising.events))
    missed = sum(event.fields["dropped"] for event in narrow if event.kind is EventKind.SUBSCRIBER_OVERFLOW)
    assert len(ordinary(narrow)) + missed == len(ordinary(raising.events))


def test_a_callback_that_blocks_delays_the_end_by_its_timeout_and_is_left_running(start, blocked):
    subscribers, taker, log = [blocked(), blocked()], Taker(), Log()
    supervisor = start(subscribers=(*subscribers, taker), observer_timeout=0.5, logger=log)
    run(supervisor)
    assert all(each.inside.wait(SOON) for each in subscribers)
    before = time.monotonic()
    report = call_in_thread(supervisor.shutdown)()
    took = time.monotonic() - before
    assert 0.4 < took < 1.5  # nobody joins their threads, which would take a second for each
    assert report.clean
    assert report.events_dropped == 2 * (len(EVENTS_OF_A_JOB) + len(LAST) - 1)
    assert eventually(lambda: log.events()[-1] == "shutdown_finished")
    assert kinds(taker.events)[-2:] == LAST
    for each in subscribers:
        each.open.set()
    assert eventually(lambda: all(len(each.events) == 1 for each in subscribers))  # and no second call


def test_a_callback_that_comes_back_in_time_gets_the_rest(start, blocked):
    subscriber = blocked()
    supervisor = start(subscribers=(subscriber,), observer_timeout=30)
    run(supervisor)
    assert subscriber.inside.wait(SOON)
    downs = [call_in_thread(supervisor.shutdown) for _ in range(2)]
    assert eventually(lambda: supervisor._core.registry._actor_weakref().unflushed == 1)
    subscriber.open.set()
    one, other = (down() for down in downs)
    assert one is other
    assert one.events_dropped == 0
    assert kinds(subscriber.events)[-2:] == LAST


def test_with_no_time_at_all_nobody_is_waited_for(start, blocked):
    subscriber = blocked()
    supervisor = start(subscribers=(subscriber,), observer_timeout=0)
    run(supervisor)
    assert subscriber.inside.wait(SOON)
    report = call_in_thread(supervisor.shutdown)()
    assert report.events_dropped == len(EVENTS_OF_A_JOB) + len(LAST) - 1
    subscriber.open.set()
    assert eventually(lambda: len(subscriber.events) == 1)


@seeds
def test_with_no_time_at_all_what_waits_is_dropped_and_counted(seed):
    told = []
    with Simulation(seed).supervisor(subscribers=(told.append,), observer_timeout=0) as supervisor:
        supervisor.submit(noop, slot="s").outcome()
        report = supervisor.shutdown()
    assert len(told) + report.events_dropped == len(EVENTS_OF_A_JOB) + len(LAST)


def test_without_a_limit_the_end_waits_until_all_is_told():
    told = []
    with Simulation(0).supervisor(subscribers=(told.append,), observer_timeout=float("inf")) as supervisor:
        supervisor.submit(noop, slot="s").outcome()
        assert supervisor.shutdown().events_dropped == 0
    assert len(told) == len(EVENTS_OF_A_JOB) + len(LAST)


def test_a_log_that_blocks_takes_no_time_from_subscribers_that_do_not(start, blocked):
    log, stuck, taker = Log(), blocked(), Taker()
    log.info = lambda event, **_fields: stuck.on_event(event)
    supervisor = start(subscribers=(taker,), observer_timeout=0.1, logger=log)
    run(supervisor)
    report = call_in_thread(supervisor.shutdown)()
    assert (report.events_dropped, kinds(taker.events)[-2:]) == (0, LAST)
    assert report.log_dropped > 0


def test_a_subscriber_may_shut_down(start):
    reports = Queue()

    def at_the_first(event):
        if event.kind is EventKind.TASK_REMOVED:
            reports.put(supervisor.shutdown())

    supervisor = start(observer_timeout=0.1)
    supervisor.subscribe(at_the_first)
    run(supervisor)
    report = reports.get(timeout=SOON)
    assert report.clean
    assert report is supervisor.shutdown()


def test_a_subscriber_on_a_runtime_of_the_application_ends_with_its_registry(runtime, blocked):
    subscriber = blocked()
    first = RegistryActor.start(runtime, subscribers=[subscriber], observer_timeout=0.05)
    first.ask(Submit(Submission(noop, slot="s"))).result(SOON)
    assert subscriber.inside.wait(SOON)
    assert first.ask(Shutdown()).events_dropped > 0
    taker = Taker()
    second = RegistryActor.start(runtime, subscribers=[taker])
    second.ask(Submit(Submission(noop, slot="s"))).result(SOON)
    second.ask(Shutdown())
    assert kinds(taker.events)[-2:] == LAST
    subscriber.open.set()
    assert eventually(lambda: len(subscriber.events) == 1)


# -- faults of our own -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "method"), [(Listener, "_take_one"), (Publisher, "catch_up"), (Publisher, "panicked"), (Event, "copy")]
)
def test_a_part_that_fails_loses_an_event_at_most(monkeypatch, start, part, method):
    original, failed = getattr(part, method), threading.Event()

    def fails_once(*args):
        if not failed.is_set():
            failed.set()
            raise MemoryError
        return original(*args)

    monkeypatch.setattr(part, method, fails_once)
    raising, good = Raising(), Taker()
    supervisor = start(subscribers=(raising, good), observer_timeout=1)
    run(supervisor, 3)
    report = call_in_thread(supervisor.shutdown)(2 * SOON)
    assert failed.is_set()
    assert report.clean
    assert kinds(ordinary(good.events))[-2:] == LAST
    assert len(ordinary(good.events)) >= 3 * len(EVENTS_OF_A_JOB) + len(LAST) - 1


def test_a_spec_is_submitted_by_a_subscriber(start):
    handles = Queue()

    def follow_up(event):
        if event.kind is EventKind.TASK_REMOVED and event.task == "first":
            handles.put(supervisor.submit(TaskSpec.once(noop, name="second"), slot="t"))

    supervisor = start()
    supervisor.subscribe(follow_up)
    supervisor.submit(TaskSpec.once(noop, name="first"), slot="s")
    assert handles.get(timeout=SOON).result(SOON) == "done"
