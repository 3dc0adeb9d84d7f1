from __future__ import annotations

import contextvars
import gc
import random
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from actors.runtime import Clock, TimerFired, Timers, TimerToken
from tests.actors.runtime.support import (
    ESCAPING,
    WAIT,
    HandClock,
    Pause,
    failing_thread_starts,
    fire_due,
    in_turn,
    threads_named,
    without_collector,
)
from tests.actors.support import call_in_thread, eventually

NAME = "test-timers"
FAR_AWAY = [float("inf"), 1e12, 1e308, 10**30, 10**400, threading.TIMEOUT_MAX, threading.TIMEOUT_MAX * 2]


class Inbox:
    """An actor, as far as timers know one: keeps what arrives, and says when it has `enough`."""

    def __init__(self, enough=1):
        self.tokens = []
        self.done = threading.Event()
        self._enough = enough
        self.actor_inbox = self

    def put(self, message):
        assert type(message) is TimerFired
        self.tokens.append(message.token)
        if len(self.tokens) >= self._enough:
            self.done.set()


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def hand(clock):
    """Timers without a thread: `fire_due` fires what is due by the clock."""
    return Timers(clock)


@pytest.fixture
def running():
    timers = Timers(Clock(), name=NAME)
    timers.start()
    yield timers
    timers.close()
    timers.join(WAIT)
    assert threads_named(NAME) == []


def in_no_time(timers):
    """An instant that is due at once."""
    return timers._clock.monotonic()


# -- order -----------------------------------------------------------------------------------------------------------


def test_timers_fire_in_the_order_in_which_they_are_due(hand, clock):
    inbox = Inbox()
    late, soon, middle = (hand.schedule(clock.now + delay, inbox) for delay in (3, 1, 2))
    clock.now += 3
    fire_due(hand)
    assert inbox.tokens == [soon, middle, late]


def test_timers_due_at_the_same_instant_fire_in_the_order_in_which_they_were_set(hand, clock):
    inbox = Inbox()
    tokens = [hand.schedule(clock.now, inbox) for _ in range(20)]
    fire_due(hand)
    assert inbox.tokens == tokens


def test_only_what_is_due_fires(hand, clock):
    inbox = Inbox()
    due = hand.schedule(clock.now + 1, inbox)
    later = hand.schedule(clock.now + 1.001, inbox)
    clock.now += 1
    fire_due(hand)
    assert inbox.tokens == [due]
    assert len(hand) == 1
    clock.now += 0.001
    fire_due(hand)
    assert inbox.tokens == [due, later]
    assert len(hand) == 0


@pytest.mark.parametrize("due", [-5.0, 0.0, float("-inf")])
def test_what_was_due_long_ago_fires_at_once(hand, due):
    inbox = Inbox()
    token = hand.schedule(due, inbox)
    fire_due(hand)
    assert inbox.tokens == [token]


def test_it_never_fires_early(running):
    fired_at = []
    done = threading.Event()
    clock = Clock()
    due = clock.monotonic() + 0.03
    running.call_at(due, in_turn(lambda: fired_at.append(clock.monotonic()), done.set))
    assert done.wait(WAIT)
    assert fired_at[0] >= due


def test_an_earlier_timer_is_not_kept_waiting_by_a_later_one(running):
    far = in_no_time(running) + 3600
    running.call_at(far, lambda: None)
    assert eventually(lambda: running._waits_until == far, WAIT)  # asleep for an hour
    inbox = Inbox()
    running.schedule(in_no_time(running) + 0.001, inbox)
    assert inbox.done.wait(WAIT)


def test_the_first_timer_wakes_a_thread_that_had_none(running):
    assert eventually(lambda: running._waits_until == float("inf"), WAIT)
    inbox = Inbox()
    running.schedule(in_no_time(running), inbox)
    assert inbox.done.wait(WAIT)


def test_a_hundred_thousand_timers_fire_in_order(hand, clock):
    number = 100_000
    chance = random.Random(1)  # noqa: S311 - the same instants every time
    inbox = Inbox()
    tokens = [hand.schedule(clock.now + chance.random() * 60, inbox) for _ in range(number)]
    for token in tokens[::2]:
        hand.cancel(token)
    assert len(hand) == number // 2
    for _ in range(60):
        clock.now += 1
        fire_due(hand)
    assert len(hand) == 0
    assert inbox.tokens == sorted(tokens[1::2], key=lambda token: token[0])


# -- cancelling ------------------------------------------------------------------------------------------------------


def test_a_cancelled_timer_never_fires(hand, clock):
    inbox = Inbox()
    kept, cancelled, last = (hand.schedule(clock.now, inbox) for _ in range(3))
    hand.cancel(cancelled)
    assert len(hand) == 2
    fire_due(hand)
    assert inbox.tokens == [kept, last]


def test_to_cancel_twice_or_after_it_fired_does_nothing(hand, clock):
    inbox = Inbox()
    fired = hand.schedule(clock.now, inbox)
    fire_due(hand)
    hand.cancel(fired)
    cancelled = hand.schedule(clock.now, inbox)
    waiting = hand.schedule(clock.now, inbox)
    for _ in range(3):
        hand.cancel(cancelled)
    assert len(hand) == 1
    fire_due(hand)
    assert inbox.tokens == [fired, waiting]


def test_a_timer_that_is_cancelled_when_it_was_taken_but_has_not_fired_does_not_fire(hand, clock):
    """The first of two that are due together cancels the second."""
    fired = []
    tokens: list[TimerToken] = [
        hand.call_at(clock.now, in_turn(lambda: fired.append("first"), lambda: hand.cancel(tokens[1]))),
        hand.call_at(clock.now, lambda: fired.append("second")),
    ]
    for _ in range(10):
        hand.call_at(clock.now + 1, lambda: None)
    fire_due(hand)
    assert fired == ["first"]
    assert len(hand) == 10


def test_the_cancelled_are_swept_out_when_they_are_more_than_half(hand, clock):
    inbox = Inbox()
    tokens = [hand.schedule(clock.now + number, inbox) for number in range(1000)]
    for token in tokens[:500]:
        hand.cancel(token)
    assert len(hand._heap) == 1000
    hand.cancel(tokens[500])
    assert len(hand._heap) == len(hand) == 499
    clock.now += 1000
    fire_due(hand)
    assert inbox.tokens == tokens[501:]


def test_to_set_and_cancel_timers_for_ever_keeps_the_heap_small(hand, clock):
    longest = 0
    inbox = Inbox()
    hand.schedule(clock.now + 1, inbox)
    for _ in range(10_000):
        hand.cancel(hand.schedule(clock.now + 2, inbox))
        longest = max(longest, len(hand._heap))
    assert longest <= 3


def test_a_timer_that_is_cancelled_while_it_fires_fires_once_or_never(running):
    """On two threads at once: whatever happens, nothing is counted twice and nobody's thread ends."""
    for _ in range(300):
        inbox = Inbox()
        token = running.schedule(in_no_time(running) + 0.0002, inbox)
        call_in_thread(running.cancel, token)()
        assert inbox.tokens in ([], [token])
    assert len(running) == 0
    last = Inbox()
    running.schedule(in_no_time(running), last)
    assert last.done.wait(WAIT)


# -- instants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("due", FAR_AWAY, ids=repr)
def test_what_is_due_practically_never_keeps_nothing_from_firing(running, due):
    never = Inbox()
    token = running.schedule(due, never)
    assert eventually(lambda: running._waits_until == due, WAIT)
    soon = Inbox()
    running.schedule(in_no_time(running), soon)
    assert soon.done.wait(WAIT)
    assert never.tokens == []
    running.cancel(token)
    assert len(running) == 0


@pytest.mark.parametrize(
    ("due", "error"), [(float("nan"), ValueError), ("soon", TypeError), (None, TypeError)], ids=repr
)
def test_what_is_no_instant_is_refused_at_the_call(hand, clock, due, error):
    inbox = Inbox()
    late, soon = hand.schedule(clock.now + 2, inbox), hand.schedule(clock.now + 1, inbox)
    with pytest.raises(error):
        hand.schedule(due, inbox)
    clock.now += 2
    fire_due(hand)
    assert inbox.tokens == [soon, late]


# -- the thread ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ESCAPING, ids=repr)
def test_the_thread_survives_whatever_a_timer_raises(running, error):
    def raising():
        raise error

    running.call_at(in_no_time(running), raising)
    broken = SimpleNamespace(actor_inbox=SimpleNamespace(put=lambda message: raising()))
    running.schedule(in_no_time(running), broken)
    inbox = Inbox()
    running.schedule(in_no_time(running), inbox)
    assert inbox.done.wait(WAIT)
    assert len(threads_named(NAME)) == 1


def test_its_thread_is_a_daemon_in_an_empty_context():
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("of the one who started it")
    running = Timers(Clock(), name=NAME)
    running.start()
    seen: list[Any] = []
    done = threading.Event()
    look = in_turn(lambda: seen.append((variable.get(), threading.current_thread().daemon)), done.set)
    running.call_at(in_no_time(running), look)
    assert done.wait(WAIT)
    assert seen == [("default", True)]
    running.close()
    running.join(WAIT)


def test_the_close_drops_every_timer_and_ends_the_thread():
    timers = Timers(Clock(), name=NAME)
    timers.start()
    inbox = Inbox()
    tokens = [timers.schedule(in_no_time(timers) + 3600, inbox) for _ in range(10)]
    for token in tokens[:4]:
        timers.cancel(token)
    timers.close()
    timers.join(WAIT)
    assert threads_named(NAME) == []
    assert len(timers) == 0
    timers.schedule(in_no_time(timers), inbox)
    timers.cancel(tokens[5])
    assert len(timers) == 0
    assert inbox.tokens == []


def test_a_timer_may_close_and_join_its_own_thread():
    timers = Timers(Clock(), name=NAME)
    timers.start()
    closed = threading.Event()
    timers.call_at(in_no_time(timers), in_turn(timers.close, lambda: timers.join(WAIT), closed.set))
    assert closed.wait(WAIT)
    timers.join(WAIT)
    assert threads_named(NAME) == []


def test_a_thread_that_can_not_be_started_raises_and_leaves_nothing(monkeypatch):
    timers = Timers(Clock(), name=NAME)
    with failing_thread_starts(monkeypatch, NAME, lambda _: True), pytest.raises(RuntimeError, match="can't start"):
        timers.start()
    timers.close()
    timers.join(WAIT)
    assert threads_named(NAME) == []


def test_what_sets_a_timer_never_waits_for_one_that_fires(running):
    pause = Pause()
    running.call_at(in_no_time(running), pause)
    assert pause.reached.wait(WAIT)
    token = call_in_thread(running.schedule, in_no_time(running) + 3600, Inbox())()
    call_in_thread(running.cancel, token)()
    pause.let_go()


def test_a_finalizer_that_sets_a_timer_does_not_deadlock():
    """The collector may run it anywhere, also where the lock of the timers is held."""

    class CollectingClock(Clock):
        def monotonic(self):
            gc.collect()  # the clock is read under the lock
            return super().monotonic()

    class Finalized:
        def __init__(self):
            self.itself = self  # for the collector only

        def __del__(self):
            timers.schedule(0.0, inbox)

    timers = Timers(CollectingClock(), name=NAME)
    inbox = Inbox()
    Finalized()
    timers.call_at(0.0, lambda: None)
    timers.start()
    assert inbox.done.wait(WAIT)
    call_in_thread(timers.close)()
    timers.join(WAIT)


# -- what is kept alive ----------------------------------------------------------------------------------------------


def watched_ref():
    """A ref, and an event that is set when its inbox is gone."""
    inbox = Inbox()
    del inbox.actor_inbox  # a cycle
    gone = threading.Event()
    weakref.finalize(inbox, gone.set)
    return SimpleNamespace(actor_inbox=inbox), gone


def test_a_thread_that_waits_keeps_nothing_alive_of_what_has_fired(running):
    with without_collector():
        ref, gone = watched_ref()
        token = running.schedule(in_no_time(running), ref)
        del ref
        assert eventually(lambda: token[2] is None, WAIT)
        assert gone.wait(WAIT)  # though its token is kept


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_timer_that_will_not_fire_keeps_nothing_alive(hand, clock, end):
    with without_collector():
        ref, gone = watched_ref()
        token = hand.schedule(clock.now + 1, ref)
        del ref
        assert not gone.is_set()
        if end == "cancel":
            hand.cancel(token)
        else:
            hand.close()
        del token
        assert gone.is_set()
