from __future__ import annotations

import itertools
import queue
import statistics
import threading
import time
import weakref
from typing import Any

import pykka
import pytest

from actors.runtime import Clock, ElasticDispatcher, Timers
from tests.actors.runtime.support import (
    ESCAPING,
    WAIT,
    HandClock,
    HandTimers,
    Pause,
    Turn,
    failing_thread_starts,
    in_turn,
    threads_named,
    without_collector,
)
from tests.actors.support import call_in_thread, eventually

PREFIX = "test-elastic"


@pytest.fixture
def timers():
    timers = Timers(Clock(), name="test-timers")
    timers.start()
    yield timers
    timers.close()
    timers.join(WAIT)
    assert threads_named("test-timers") == []


@pytest.fixture
def make(timers):
    made = []

    def make(timers=timers, clock=None, **settings):
        made.append(ElasticDispatcher(PREFIX, clock or Clock(), timers, **settings))
        return made[-1]

    yield make
    for dispatcher in made:
        dispatcher.close()
    assert eventually(lambda: threads_named(PREFIX) == [], WAIT)


@pytest.fixture
def dispatcher(make):
    return make()


class Hand:
    """An elastic dispatcher whose watch looks when the test says so."""

    def __init__(self, make):
        self.clock = HandClock()
        self.timers = HandTimers()
        self.dispatcher = make(timers=self.timers, clock=self.clock, patience=0.25)

    def schedule(self, function):
        self.dispatcher.schedule(Turn(function))

    def block(self):
        """Have one more turn block its thread."""
        pause = Pause()
        self.schedule(pause)
        return pause

    @property
    def size(self):
        return len(threads_named(PREFIX))


@pytest.fixture
def hand(make):
    return Hand(make)


def block_by_a_lock(gate):
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=in_turn(lambda: gate.wait(WAIT), lock.release), daemon=True).start()
    return lambda: lock.acquire(timeout=WAIT)


def block_by_a_future(gate):
    future: pykka.ThreadingFuture[None] = pykka.ThreadingFuture()
    threading.Thread(target=in_turn(lambda: gate.wait(WAIT), future.set), daemon=True).start()
    return lambda: future.get(timeout=WAIT)


def block_by_sleeping(gate):
    def sleep():
        while not gate.is_set():
            time.sleep(0.01)

    return sleep


# -- it grows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [block_by_a_lock, block_by_a_future, block_by_sleeping])
def test_a_turn_that_blocks_holds_up_the_others_for_milliseconds_only(dispatcher, block):
    gate = threading.Event()
    late = []
    try:
        for _ in range(9):
            dispatcher.schedule(Turn(block(gate)))
            ran = threading.Event()
            since = time.monotonic()
            dispatcher.schedule(Turn(ran.set))
            assert ran.wait(WAIT)
            late.append(time.monotonic() - since)
    finally:
        gate.set()
    assert statistics.median(late) < 0.05


def test_many_turns_that_wait_for_one_another_all_run(dispatcher):
    barrier = threading.Barrier(20)
    for _ in range(20):
        dispatcher.schedule(Turn(lambda: barrier.wait(WAIT)))
    assert eventually(lambda: barrier.broken or barrier.n_waiting == 0, WAIT)
    assert not barrier.broken


def test_a_thread_is_added_when_something_is_ready_and_none_took_anything_for_a_while(hand):
    pause = hand.block()
    assert pause.reached.wait(WAIT)
    ran = threading.Event()
    hand.schedule(ran.set)
    for _ in range(2):  # the first look may have seen the turn being taken that blocks now
        assert hand.size == 1 or ran.wait(WAIT)
        hand.timers.fire()
    assert hand.size == 2
    assert ran.wait(WAIT)
    pause.let_go()


def test_no_thread_is_added_while_threads_keep_taking(hand):
    pauses = [hand.block() for _ in range(6)]
    for this, following in itertools.pairwise(pauses):
        assert this.reached.wait(WAIT)
        this.let_go()
        assert following.reached.wait(WAIT)
        hand.timers.fire()
    assert hand.size == 1
    pauses[-1].let_go()


def test_it_looks_after_its_patience_and_while_something_is_ready(hand):
    assert hand.timers.armed == []
    pause = hand.block()
    assert [due - hand.clock.now for due, _ in hand.timers.armed] == [0.25]
    assert pause.reached.wait(WAIT)
    hand.schedule(lambda: None)
    assert len(hand.timers.armed) == 1  # one watch for all
    hand.timers.fire()
    assert len(hand.timers.armed) == 1
    pause.let_go()
    assert eventually(hand.dispatcher._ready.empty)
    hand.timers.fire()
    assert hand.timers.armed == []
    hand.schedule(lambda: None)
    assert len(hand.timers.armed) == 1


def test_what_is_scheduled_while_the_watch_is_about_to_end_is_watched(hand):
    """It relies on a watch that has found nothing ready, and has not yet said that it ends."""

    class Crossing(queue.SimpleQueue[Any]):
        crossed = False

        def empty(self):
            empty = super().empty()
            if empty and not self.crossed:
                self.crossed = True
                hand.schedule(lambda: None)
            return empty

    pause = hand.block()
    assert pause.reached.wait(WAIT)
    hand.dispatcher._ready = Crossing()  # which no thread reads
    hand.timers.fire()
    assert len(hand.timers.armed) >= 1
    hand.timers.fire()
    assert hand.size == 2
    pause.let_go()


# -- it shrinks ------------------------------------------------------------------------------------------------------


def test_surplus_threads_end_when_idle_and_one_stays(make):
    dispatcher = make(idle=0.02)
    barrier = threading.Barrier(6)
    for _ in range(5):
        dispatcher.schedule(Turn(lambda: barrier.wait(WAIT)))
    assert eventually(lambda: barrier.n_waiting == 5, WAIT)
    assert len(threads_named(PREFIX)) >= 5
    barrier.wait(WAIT)
    assert eventually(lambda: len(threads_named(PREFIX)) == 1, WAIT)
    (last,) = threads_named(PREFIX)
    last.join(0.1)  # five times as long as the others stayed
    assert last.is_alive()
    ran = threading.Event()
    dispatcher.schedule(Turn(ran.set))
    assert ran.wait(WAIT)


def test_a_busy_thread_is_not_surplus(make):
    dispatcher = make(idle=0.02)
    pause = Pause()
    dispatcher.schedule(Turn(pause))
    assert pause.reached.wait(WAIT)
    for _ in range(20):  # while the idle ones beside it come and go
        ran = threading.Event()
        dispatcher.schedule(Turn(ran.set))
        assert ran.wait(WAIT)
        assert eventually(lambda: len(threads_named(PREFIX)) == 1, WAIT)
    pause.let_go()


# -- a thread can not be started -------------------------------------------------------------------------------------


def test_a_failed_start_is_kept_for_whoever_asks_and_tried_again_with_every_look(hand, monkeypatch):
    ran = threading.Event()
    with failing_thread_starts(monkeypatch, PREFIX, lambda n: n <= 4) as tried:
        hand.schedule(ran.set)  # raises nothing
        assert "can't start new thread" in str(hand.dispatcher.start_failure)
        for attempt in (2, 3, 4):
            hand.timers.fire()
            assert len(tried) == attempt
            assert hand.dispatcher.start_failure is not None
        hand.timers.fire()
        assert hand.dispatcher.start_failure is None
        assert ran.wait(WAIT)


def test_a_failed_start_is_tried_again_within_milliseconds(dispatcher, monkeypatch):
    with failing_thread_starts(monkeypatch, PREFIX, lambda _: True) as tried:
        ran = threading.Event()
        dispatcher.schedule(Turn(ran.set))
        assert eventually(lambda: len(tried) >= 5, WAIT)
        assert not ran.is_set()
    assert ran.wait(WAIT)


def test_ctrl_c_while_a_thread_is_started_is_not_mistaken_for_a_failed_start(hand, monkeypatch):
    def interrupted(thread):
        raise KeyboardInterrupt

    ran = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hand.schedule(lambda: None)
    assert hand.dispatcher.start_failure is None
    hand.schedule(ran.set)
    assert ran.wait(WAIT)


def test_ctrl_c_while_a_watch_is_set_costs_the_next_turn_nothing(hand):
    armed = hand.timers.call_at

    def interrupted(due, action):
        hand.timers.call_at = armed
        raise KeyboardInterrupt

    hand.timers.call_at = interrupted
    with pytest.raises(KeyboardInterrupt):
        hand.schedule(lambda: None)
    hand.schedule(lambda: None)
    assert len(hand.timers.armed) == 1


# -- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ESCAPING, ids=repr)
def test_the_thread_survives_whatever_a_turn_raises(hand, error):
    on = []
    ran = threading.Event()

    def raising():
        on.append(threading.current_thread())
        raise error

    hand.schedule(raising)
    hand.schedule(in_turn(lambda: on.append(threading.current_thread()), ran.set))
    assert ran.wait(WAIT)
    assert len(on) == 3  # what failed may have failed before it looked at its items: it is run once more
    assert len(set(on)) == 1


def test_it_starts_with_one_thread(make):
    dispatcher = make()
    assert threads_named(PREFIX) == []
    dispatcher.start()
    assert len(threads_named(PREFIX)) == 1


def test_close_and_join_end_every_thread_once_nothing_is_ready(make):
    dispatcher = make()
    barrier = threading.Barrier(4)
    ran: list[None] = []

    def turn():
        barrier.wait(WAIT)
        dispatcher.schedule(Turn(lambda: ran.append(None)))

    for _ in range(3):
        dispatcher.schedule(Turn(turn))
    assert eventually(lambda: barrier.n_waiting == 3, WAIT)
    dispatcher.close()
    dispatcher.close()
    barrier.wait(WAIT)
    dispatcher.join(WAIT)
    assert threads_named(PREFIX) == []
    assert len(ran) == 3


def test_nobody_waits_for_a_thread_that_is_left_behind_and_it_ends_when_it_comes_back(make):
    dispatcher = make(idle=0.02)
    pause, threads, ran = Pause(), [], threading.Event()
    dispatcher.schedule(Turn(lambda: (threads.append(threading.current_thread()), pause())))
    assert pause.reached.wait(WAIT)
    dispatcher.leave_behind(threads[0])
    dispatcher.leave_behind(threads[0])
    dispatcher.schedule(Turn(ran.set))
    assert ran.wait(WAIT)
    before = set(threads_named(PREFIX))
    pause.let_go()
    assert eventually(lambda: before - set(threads_named(PREFIX)) == set(threads), WAIT)  # surplus, now that it is idle
    assert len(threads_named(PREFIX)) == 1


def test_the_end_waits_for_no_thread_that_is_left_behind(make):
    dispatcher = make()
    pause, threads = Pause(), []
    dispatcher.schedule(Turn(lambda: (threads.append(threading.current_thread()), pause())))
    assert pause.reached.wait(WAIT)
    dispatcher.leave_behind(threads[0])
    dispatcher.close()
    call_in_thread(dispatcher.join, 60)()
    assert threads_named(PREFIX) == threads
    pause.let_go()


def test_no_thread_is_added_after_the_close(hand):
    pause = hand.block()
    assert pause.reached.wait(WAIT)
    hand.schedule(lambda: None)
    hand.dispatcher.close()
    hand.timers.fire()
    assert hand.size == 1
    assert hand.timers.armed == []
    pause.let_go()


def test_no_thread_is_started_for_what_is_scheduled_after_the_close(hand, monkeypatch):
    hand.dispatcher.close()
    with failing_thread_starts(monkeypatch, PREFIX, lambda _: False) as tried:
        hand.schedule(lambda: None)
        hand.timers.fire()
    assert tried == []


def test_an_idle_thread_keeps_nothing_alive(dispatcher):
    with without_collector():
        gone = threading.Event()
        turn = Turn(lambda: None)
        weakref.finalize(turn, gone.set)
        dispatcher.schedule(turn)
        del turn
        assert gone.wait(WAIT)


def test_a_finalizer_that_sends_a_message_while_a_thread_is_started_does_not_deadlock(hand, monkeypatch):
    """The collector may run it anywhere, also under the lock of the dispatcher that it sends to."""
    start = threading.Thread.start
    sent: list[threading.Thread] = []

    def collecting(thread):
        if thread.name.startswith(PREFIX) and not sent:
            sent.append(thread)
            hand.schedule(lambda: None)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", collecting)
    call_in_thread(hand.schedule, lambda: None)(WAIT)
    assert sent
