from __future__ import annotations

import contextvars
import threading
import weakref

import pytest

from actors.runtime import Dispatcher
from tests.actors.runtime.support import (
    ESCAPING,
    WAIT,
    Pause,
    Turn,
    failing_thread_starts,
    threads_named,
    without_collector,
)

PREFIX = "test-dispatcher"


@pytest.fixture
def make():
    made = []

    def make(**settings):
        made.append(Dispatcher(PREFIX, **settings))
        return made[-1]

    yield make
    for dispatcher in made:
        dispatcher.close()
        dispatcher.join(WAIT)
    assert threads_named(PREFIX) == []


@pytest.fixture
def dispatcher(make):
    dispatcher = make()
    dispatcher.start()
    return dispatcher


def run(dispatcher, function=lambda: None):
    """Have a turn run; returns an event that is set afterwards."""
    over = threading.Event()

    def turn():
        try:
            function()
        finally:
            over.set()

    dispatcher.schedule(Turn(turn))
    return over


def test_turns_run_in_the_order_in_which_they_were_scheduled(dispatcher):
    seen = []
    for number in range(100):
        dispatcher.schedule(Turn(lambda number=number: seen.append(number)))
    assert run(dispatcher).wait(WAIT)
    assert seen == list(range(100))


def test_nothing_runs_before_the_start(make):
    dispatcher = make()
    over = run(dispatcher)
    assert threads_named(PREFIX) == []
    assert not over.is_set()
    dispatcher.start()
    assert over.wait(WAIT)


def test_a_turn_is_told_how_much_it_may_handle(make):
    dispatcher = make(throughput=7)
    dispatcher.start()
    told = []

    class Listening(Turn):
        def run(self, throughput):
            told.append(throughput)

    dispatcher.schedule(Listening(None))
    assert run(dispatcher).wait(WAIT)
    assert told == [7]


def test_several_threads_run_several_turns_at_once(make):
    dispatcher = make(threads=3)
    dispatcher.start()
    barrier = threading.Barrier(3)
    overs = [run(dispatcher, lambda: barrier.wait(WAIT)) for _ in range(3)]
    assert all(over.wait(WAIT) for over in overs)
    assert not barrier.broken


@pytest.mark.parametrize("error", ESCAPING, ids=repr)
def test_the_thread_survives_whatever_a_turn_raises(dispatcher, error):
    (thread,) = threads_named(PREFIX)
    on = []

    def raising():
        raise error

    dispatcher.schedule(Turn(raising))
    assert run(dispatcher, lambda: on.append(threading.current_thread())).wait(WAIT)
    assert on == [thread]


def test_a_turn_that_raises_is_run_once_more(dispatcher):
    """It may have failed before it looked at its items, and nobody would schedule it again."""
    tried = []

    def raising():
        tried.append(None)
        raise MemoryError

    dispatcher.schedule(Turn(raising))
    assert run(dispatcher).wait(WAIT)
    assert len(tried) == 2


def test_its_threads_are_daemons_in_an_empty_context(make):
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("of the one who started it")
    dispatcher = make()
    dispatcher.start()
    seen = []
    assert run(dispatcher, lambda: seen.append((variable.get(), threading.current_thread().daemon))).wait(WAIT)
    assert seen == [("default", True)]


def test_the_close_lets_everything_ready_run_first_and_what_that_schedules(make):
    dispatcher = make()
    ran = []

    def chain(left):
        ran.append(left)
        if left:
            dispatcher.schedule(Turn(lambda: chain(left - 1)))

    dispatcher.schedule(Turn(lambda: chain(3)))
    dispatcher.schedule(Turn(lambda: ran.append("other")))
    dispatcher.close()
    dispatcher.start()
    dispatcher.join(WAIT)
    assert ran == [3, "other", 2, 1, 0]


def test_close_and_join_end_every_thread(make):
    dispatcher = make(threads=3)
    dispatcher.start()
    assert len(threads_named(PREFIX)) == 3
    dispatcher.close()
    dispatcher.close()
    dispatcher.join(WAIT)
    assert threads_named(PREFIX) == []


def test_a_thread_that_is_started_after_the_close_ends_too(make):
    dispatcher = make(threads=2)
    dispatcher.close()
    dispatcher.start()
    dispatcher.join(WAIT)
    assert threads_named(PREFIX) == []


def test_the_join_gives_up_on_a_turn_that_does_not_end(dispatcher):
    inside = Pause()
    run(dispatcher, inside)
    assert inside.reached.wait(WAIT)
    dispatcher.close()
    dispatcher.join(0.01)
    assert len(threads_named(PREFIX)) == 1
    inside.let_go()


def test_a_turn_may_close_and_join_its_own_dispatcher(dispatcher):
    def close():
        dispatcher.close()
        dispatcher.join(WAIT)

    assert run(dispatcher, close).wait(WAIT)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_start_that_fails_raises_and_leaves_no_thread(make, monkeypatch, nth):
    dispatcher = make(threads=3)
    with (
        failing_thread_starts(monkeypatch, PREFIX, lambda n: n == nth),
        pytest.raises(RuntimeError, match="can't start"),
    ):
        dispatcher.start()
    dispatcher.join(WAIT)
    assert threads_named(PREFIX) == []


def test_an_idle_thread_keeps_nothing_alive(dispatcher):
    with without_collector():
        gone = threading.Event()
        turn = Turn(lambda: None)
        weakref.finalize(turn, gone.set)
        dispatcher.schedule(turn)
        del turn
        assert gone.wait(WAIT)


@pytest.mark.parametrize("settings", [{"threads": 0}, {"throughput": 0}, {"threads": -1}], ids=str)
def test_a_dispatcher_that_would_never_run_anything_is_refused(settings):
    with pytest.raises(ValueError, match="at least one"):
        Dispatcher(PREFIX, **settings)
