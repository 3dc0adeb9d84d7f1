from __future__ import annotations

import contextvars
import threading
import weakref

import pykka
import pytest

from actors.runtime import Bodies, Calls, Runtime, RuntimeActor, TimerFired, deliver
from tests.actors.runtime.support import (
    ESCAPING,
    WAIT,
    Collector,
    NoBodies,
    Pause,
    failing_thread_starts,
    in_turn,
    threads_named,
    without_collector,
)
from tests.actors.support import call_in_thread

PREFIX = "slotkeeper-"
FOR_EVER = [float("inf"), 1e12, 10**30, threading.TIMEOUT_MAX, threading.TIMEOUT_MAX * 2]


class Echo(RuntimeActor):
    def on_receive(self, message):
        return message() if callable(message) else message


def ours():
    return [thread for thread in threads_named(PREFIX) if not thread.name.startswith("slotkeeper-application")]


# -- start and close -------------------------------------------------------------------------------------------------


def test_a_runtime_that_was_not_started_has_no_thread(make_runtime):
    before = ours()
    runtime = make_runtime()
    assert not runtime.started
    assert ours() == before


@pytest.mark.parametrize("dispatchers", [1, 4])
def test_to_start_it_twice_is_to_start_it_once(make_runtime, dispatchers):
    runtime = make_runtime(dispatchers=dispatchers)
    for _ in range(3):
        runtime.start()
        assert runtime.started
        assert len(ours()) == dispatchers + 2


def test_to_start_it_from_two_threads_at_once_is_to_start_it_once(make_runtime):
    runtime = make_runtime()
    barrier = threading.Barrier(4)
    joins = [call_in_thread(lambda: (barrier.wait(WAIT), runtime.start())) for _ in range(4)]
    for join in joins:
        join(WAIT)
    assert len(ours()) == 3


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_start_that_fails_raises_and_leaves_no_thread_and_may_be_tried_again(make_runtime, monkeypatch, nth):
    runtime = make_runtime(dispatchers=2)
    with failing_thread_starts(monkeypatch, PREFIX, lambda n: n == nth) as tried:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            runtime.start()
        assert len(tried) == nth
        for thread in ours():
            thread.join(WAIT)
        assert ours() == []
        assert not runtime.started
    runtime.start()
    assert runtime.started
    assert Echo.spawn(runtime).ask("there?", timeout=WAIT) == "there?"
    inbox = Collector(runtime)
    inbox._start_actor_loop()
    runtime.schedule(runtime.clock.monotonic(), inbox.actor_ref)
    assert inbox.done.wait(WAIT)


def test_ctrl_c_while_it_starts_leaves_no_thread(make_runtime, monkeypatch):
    """It arrives when the second thread runs and `Thread.start` has not returned."""
    start = threading.Thread.start
    started = []

    def interrupted(thread):
        start(thread)
        started.append(thread)
        if len(started) == 2:
            raise KeyboardInterrupt

    runtime = make_runtime()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runtime.start()
    for thread in started:
        thread.join(WAIT)
    assert ours() == []


@pytest.mark.parametrize("dispatchers", [1, 4])
def test_close_and_join_end_every_thread(make_runtime, dispatchers):
    runtime = make_runtime(dispatchers=dispatchers)
    runtime.start()
    called = threading.Event()
    runtime.calls().put(called.set)
    assert called.wait(WAIT)
    runtime.close()
    runtime.join(WAIT)
    assert ours() == []
    assert not runtime.started
    runtime.close()
    runtime.join(WAIT)
    assert runtime.bodies.closed == 1


def test_the_join_waits_for_every_thread(make_runtime):
    runtime = make_runtime()
    runtime.start()
    pauses = [Pause(), Pause(), Pause()]
    runtime.timers.call_at(runtime.clock.monotonic(), pauses[0])
    deliver(Echo.spawn(runtime), pauses[1])
    runtime.calls().put(pauses[2])
    for pause in pauses:
        assert pause.reached.wait(WAIT)
        threading.Timer(0.03, pause.let_go).start()
    runtime.close()
    runtime.join(WAIT)
    assert ours() == []


def test_what_was_put_before_the_close_is_still_called(make_runtime):
    runtime = make_runtime()
    runtime.start()
    called = []
    pause = Pause()
    calls = runtime.calls()
    calls.put(pause)
    assert pause.reached.wait(WAIT)
    for number in range(100):
        calls.put(lambda number=number: called.append(number))
    runtime.close()
    pause.let_go()
    runtime.join(WAIT)
    assert called == list(range(100))


def test_a_closed_runtime_can_not_be_started(make_runtime):
    runtime = make_runtime()
    runtime.close()
    with pytest.raises(RuntimeError, match="closed"):
        runtime.start()
    assert ours() == []


def test_bodies_that_can_not_be_closed_keep_no_thread_alive():
    class Broken:
        def close(self):
            raise OSError("broken")

    runtime = Runtime(Broken())
    runtime.start()
    with pytest.raises(OSError, match="broken"):
        runtime.close()
    runtime.join(WAIT)
    assert ours() == []


def test_the_join_gives_up_on_a_callback_that_does_not_return(runtime):
    pause = Pause()
    runtime.calls().put(pause)
    assert pause.reached.wait(WAIT)
    runtime.close()
    runtime.join(0.01)
    assert [thread.name.startswith("slotkeeper-observers") for thread in ours()] == [True]
    pause.let_go()


def test_an_actor_may_close_the_runtime_that_it_runs_on(make_runtime):
    runtime = make_runtime()
    runtime.start()
    Echo.spawn(runtime).ask(lambda: (runtime.close(), runtime.join(WAIT)), timeout=WAIT)
    runtime.join(WAIT)
    assert ours() == []


@pytest.mark.parametrize("settings", [{"dispatchers": 0}, {"throughput": 0}], ids=str)
def test_a_runtime_that_would_never_run_anything_is_refused(settings):
    with pytest.raises(ValueError, match="at least one"):
        Runtime(NoBodies(), **settings)


# -- timers ----------------------------------------------------------------------------------------------------------


def test_a_timer_arrives_as_a_message_with_its_token(runtime):
    inbox = Collector(runtime)
    inbox._start_actor_loop()
    cancelled = runtime.schedule(runtime.clock.monotonic() + 3600, inbox.actor_ref)
    runtime.cancel(cancelled)
    token = runtime.schedule(runtime.clock.monotonic(), inbox.actor_ref)
    assert inbox.done.wait(WAIT)
    (message,) = inbox.got
    assert type(message) is TimerFired
    assert message.token is token


# -- waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", FOR_EVER, ids=repr)
def test_practically_for_ever_is_no_limit_for_a_reply(runtime, timeout):
    """Pykka's own `get` raises `OverflowError`."""
    pause = Pause()
    future = Echo.spawn(runtime).ask(lambda: pause() or "answer", block=False)
    join = call_in_thread(runtime.reply, future, timeout)
    assert pause.reached.wait(WAIT)
    pause.let_go()
    assert join(WAIT) == "answer"


@pytest.mark.parametrize("timeout", [float("inf"), 10**30])
def test_the_limit_that_pykka_can_not_take_is_still_there(timeout):
    """If this fails, `Runtime.reply` has become simpler than it is."""
    with pytest.raises(OverflowError):
        pykka.ThreadingFuture().get(timeout=timeout)


def test_a_reply_that_is_not_there_in_time_is_a_timeout(runtime):
    future: pykka.ThreadingFuture[str] = pykka.ThreadingFuture()
    with pytest.raises(TimeoutError, match=r"no reply within 0\.01 s"):
        runtime.reply(future, 0.01)
    for at_once in (0, -1, float("-inf")):
        with pytest.raises(TimeoutError):
            runtime.reply(future, at_once)
    future.set("late")
    assert runtime.reply(future, 0) == "late"


def test_a_reply_that_is_an_error_is_raised(runtime):
    error = LookupError()
    with pytest.raises(LookupError) as raised:
        runtime.reply(Echo.spawn(runtime).ask(lambda: error, block=False))
    assert raised.value is error


@pytest.mark.parametrize("timeout", [None, *FOR_EVER], ids=repr)
def test_practically_for_ever_is_no_limit_for_a_wait(runtime, timeout):
    class Cell:
        def wait(self, timeout):
            return threading.Lock().acquire(timeout=-1 if timeout is None else timeout)

    assert runtime.wait(Cell(), timeout) is True


def test_a_wait_that_is_over_says_so(runtime):
    class Cell:
        def wait(self, timeout):
            return threading.Event().wait(timeout)

    assert runtime.wait(Cell(), 0.001) is False


# -- calls -----------------------------------------------------------------------------------------------------------


def test_calls_of_one_origin_are_made_in_order_and_one_at_a_time(runtime):
    calls = runtime.calls()
    made, inside = [], []
    over = threading.Event()

    def call(number):
        inside.append(number)
        made.append((number, len(inside)))
        inside.pop()

    for number in range(500):
        calls.put(lambda number=number: call(number))
    calls.put(over.set)
    assert over.wait(WAIT)
    assert made == [(number, 1) for number in range(500)]


def test_calls_of_one_origin_that_block_hold_up_no_other_origin(runtime):
    pause = Pause()
    blocked, others = runtime.calls(), runtime.calls()
    waiting, called = threading.Event(), threading.Event()
    blocked.put(pause)
    blocked.put(waiting.set)
    assert pause.reached.wait(WAIT)
    others.put(called.set)
    assert called.wait(WAIT)
    assert not waiting.is_set()
    pause.let_go()
    assert waiting.wait(WAIT)


@pytest.mark.parametrize("error", ESCAPING, ids=repr)
def test_a_call_that_raises_costs_none_of_the_ones_behind_it(runtime, error):
    def raising():
        raise error

    calls = runtime.calls()
    called = threading.Event()
    calls.put(raising)
    calls.put(called.set)
    assert called.wait(WAIT)


def test_what_one_call_binds_the_next_one_does_not_see(runtime):
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("of the one who made the calls")
    seen = []
    over = threading.Event()
    calls, others = runtime.calls(), runtime.calls()
    for each in (calls, others):
        each.put(in_turn(lambda: seen.append(variable.get()), lambda: variable.set("bound by a call")))
        each.put(lambda: seen.append(variable.get()))
    calls.put(lambda: others.put(over.set))
    assert over.wait(WAIT)
    assert seen == ["default"] * 4


def test_calls_that_nobody_needs_any_more_are_freed_by_reference_counting(runtime):
    class Watched(Calls):
        __slots__ = ("__weakref__",)

    class Callback:
        def __call__(self):
            pass

    with without_collector():
        calls, callback = Watched(runtime.observers), Callback()
        gone, callback_gone = threading.Event(), threading.Event()
        weakref.finalize(calls, gone.set)
        weakref.finalize(callback, callback_gone.set)
        calls.put(callback)
        del callback
        assert callback_gone.wait(WAIT)  # though its origin lives on
        del calls
        assert gone.wait(WAIT)


def test_the_runtime_s_bodies_are_whatever_can_be_closed():
    bodies = NoBodies()
    the_same: Bodies = bodies
    runtime = Runtime(the_same)
    assert runtime.bodies is bodies
    runtime.close()
    assert bodies.closed == 1
