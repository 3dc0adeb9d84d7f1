"""The caller's end of a submission: set once, waited for in every way, and no caller is in another one's way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from datetime import timedelta

import pytest

from actors import TaskHandle
from admission import (
    AttemptTimeoutError,
    Cancelled,
    Completed,
    FatalError,
    ForceAborted,
    Panicked,
    RejectionKind,
    SubmissionRejectedError,
    SupervisorClosedError,
    TaskAbortedError,
    TaskCancelledError,
    TaskFailedError,
    TaskId,
    TaskPanickedError,
    TaskSpec,
)
from tests.actors.support import SOON, call_in_thread, eventually, noop, outcome_of


@pytest.fixture
def blocked(supervisor):
    """A handle of which one callback blocks until the test is over; and the gate that it waits at."""
    release, inside = threading.Event(), threading.Event()

    def block(_handle):
        inside.set()
        release.wait(30)

    handle = supervisor.submit(noop, slot="blocked")
    handle.add_done_callback(block)
    assert inside.wait(SOON)
    yield handle
    release.set()


def callback_log():
    called, seen = threading.Semaphore(0), []

    def callback(handle):
        seen.append(handle)
        called.release()

    return callback, called, seen


# -- callbacks -----------------------------------------------------------------------------------------------------


def test_callbacks_run_in_the_order_in_which_they_were_added(supervisor, body):
    order, done = [], threading.Event()
    handle = supervisor.submit(work := body(), slot="k")
    for number in range(20):
        handle.add_done_callback(lambda _handle, number=number: order.append(number))
    handle.add_done_callback(lambda _handle: done.set())
    assert order == []
    work.let_go()
    assert done.wait(SOON)
    assert order == list(range(20))


def test_a_callback_that_is_added_at_the_moment_of_the_end_does_not_overtake(monkeypatch, supervisor, body):
    order, taken, done, make = [], threading.Event(), threading.Semaphore(0), TaskHandle._make_calls

    def linger(handle):
        if not taken.is_set():  # the first callback is on its way, and held up
            taken.set()
            done.acquire(timeout=0.1)
        return make(handle)

    def callback(number):
        return lambda _handle: (order.append(number), done.release())

    monkeypatch.setattr(TaskHandle, "_make_calls", linger)
    handle = supervisor.submit(work := body(), slot="k")
    handle.add_done_callback(callback(1))
    work.let_go()
    assert taken.wait(SOON)
    handle.add_done_callback(callback(2))
    assert eventually(lambda: len(order) == 2)
    assert order == [1, 2]


def test_a_callback_gets_the_handle_with_its_outcome(supervisor):
    callback, called, seen = callback_log()
    handle = supervisor.submit(noop, slot="k")
    handle.add_done_callback(callback)
    assert called.acquire(timeout=SOON)
    assert seen == [handle]
    assert handle.outcome(0) == Completed("done")


def test_a_callback_that_is_added_after_the_end_is_called(supervisor):
    callback, called, _seen = callback_log()
    handle = supervisor.submit(noop, slot="k")
    outcome_of(handle)
    for _ in range(3):
        handle.add_done_callback(callback)
    assert all(called.acquire(timeout=SOON) for _ in range(3))


def test_a_callback_runs_on_no_thread_of_the_caller_or_the_actors(supervisor):
    threads, called = [], threading.Event()
    handle = supervisor.submit(noop, slot="k")
    outcome_of(handle)
    handle.add_done_callback(lambda _handle: (threads.append(threading.current_thread()), called.set()))
    assert called.wait(SOON)
    assert threads[0].name.startswith("slotkeeper-observers")


def test_a_callback_that_blocks_delays_no_submission_and_no_callback_of_another(supervisor, blocked):
    callback, called, _seen = callback_log()
    handles = [supervisor.submit(noop, slot=f"s{number}") for number in range(10)]
    for handle in handles:
        handle.add_done_callback(callback)
    assert {outcome_of(handle) for handle in handles} == {Completed("done")}
    assert all(called.acquire(timeout=SOON) for _ in handles)
    assert outcome_of(supervisor.submit(noop, slot="blocked")) == Completed("done")


def test_many_callbacks_that_block_delay_nobody(supervisor):
    release, inside = threading.Event(), threading.Semaphore(0)

    def block(_handle):
        inside.release()
        release.wait(SOON)

    try:
        for number in range(10):
            supervisor.submit(noop, slot=f"s{number}").add_done_callback(block)
        assert all(inside.acquire(timeout=SOON) for _ in range(10))
        callback, called, _seen = callback_log()
        supervisor.submit(noop, slot="k").add_done_callback(callback)
        assert called.acquire(timeout=SOON)
    finally:
        release.set()


def test_a_callback_that_blocks_does_not_delay_shutdown(start):
    supervisor = start()
    release, inside = threading.Event(), threading.Event()
    handle = supervisor.submit(noop, slot="k")
    handle.add_done_callback(lambda _handle: (inside.set(), release.wait(30)))
    assert inside.wait(SOON)
    try:
        assert call_in_thread(supervisor.shutdown)(timeout=4).clean
    finally:
        release.set()


@pytest.mark.parametrize("error", [ValueError(), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_callback_that_raises_harms_neither_the_next_nor_another_handle(supervisor, body, error):
    callback, called, _seen = callback_log()

    def fail(_handle):
        raise error

    handle = supervisor.submit(work := body(), slot="k")
    handle.add_done_callback(fail)
    handle.add_done_callback(callback)
    work.let_go()
    assert called.acquire(timeout=SOON)
    other = supervisor.submit(noop, slot="other")
    other.add_done_callback(callback)
    assert called.acquire(timeout=SOON)


def test_a_callback_may_call_back_into_the_supervisor(supervisor):
    answers, called = [], threading.Event()

    def call_back(handle):
        again = supervisor.submit(noop, slot="k")
        answers.append(again.result(SOON))
        answers.append(supervisor.remove(handle.id))
        answers.append(supervisor.cancel(handle.id, timeout=SOON))
        answers.append(len(supervisor.snapshot()))
        supervisor.join(SOON)
        called.set()

    supervisor.submit(noop, slot="k").add_done_callback(call_back)
    assert called.wait(SOON)
    assert answers == ["done", False, False, 0]


def test_a_callback_may_shut_the_supervisor_down(start):
    supervisor, reports, called = start(), [], threading.Event()
    handle = supervisor.submit(noop, slot="k")
    handle.add_done_callback(lambda _handle: (reports.append(supervisor.shutdown()), called.set()))
    assert called.wait(4)
    assert reports == [supervisor.shutdown()]


@pytest.mark.parametrize("callback", [None, 1, "print"], ids=repr)
def test_what_can_not_be_called_is_refused_as_a_callback(supervisor, callback):
    with pytest.raises(TypeError, match="callback"):
        supervisor.submit(noop, slot="k").add_done_callback(callback)


def test_a_callback_of_a_submission_that_is_turned_away_is_called_too(supervisor, body):
    callback, called, seen = callback_log()
    supervisor.submit(body(), slot="k")
    handle = supervisor.submit(noop, slot="k", policy="drop_if_running")
    handle.add_done_callback(callback)
    assert called.acquire(timeout=SOON)
    assert seen[0].outcome(0).kind is RejectionKind.SLOT_BUSY


# -- on an event loop ----------------------------------------------------------------------------------------------


def test_awaited_it_gives_the_outcome_from_any_event_loop(supervisor, body):
    handle = supervisor.submit(work := body("value"), slot="k")

    async def wait():
        return await handle

    waiting = [call_in_thread(asyncio.run, wait()) for _ in range(3)]
    work.let_go()
    assert [join() for join in waiting] == [Completed("value")] * 3
    assert asyncio.run(wait()) == Completed("value")


def test_a_wait_for_that_expires_leaves_the_job_running(supervisor, body):
    handle = supervisor.submit(work := body("later"), slot="k")

    async def wait():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(handle, 0.05)
        assert work.is_inside()
        assert not handle.done()
        work.let_go()
        return await asyncio.wait_for(handle, SOON)

    assert asyncio.run(wait()) == Completed("later")


def test_an_awaiter_that_is_cancelled_disturbs_no_other(supervisor, body):
    handle = supervisor.submit(work := body("value"), slot="k")

    async def wait():
        async def outcome():
            return await handle

        first, second = asyncio.create_task(outcome()), asyncio.create_task(outcome())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        work.let_go()
        return await asyncio.wait_for(second, SOON)

    assert asyncio.run(wait()) == Completed("value")


def test_a_loop_that_is_closed_before_the_end_is_no_trouble(supervisor, body):
    handle = supervisor.submit(work := body(), slot="k")

    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(handle, 0.01)

    asyncio.run(give_up())
    work.let_go()
    assert outcome_of(handle) == Completed(None)
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")


def test_a_coroutine_body_may_await_another_submission(supervisor):
    async def outer(_ctx):
        return (await supervisor.submit(noop, slot="inner")).value

    assert outcome_of(supervisor.submit(outer, slot="outer")) == Completed("done")


# -- as a future ---------------------------------------------------------------------------------------------------


def test_the_future_has_the_outcome(supervisor, body):
    handle = supervisor.submit(work := body("value"), slot="k")
    future = handle.future
    assert future is handle.future
    assert future.running()
    work.let_go()
    assert future.result(SOON) == Completed("value")
    assert handle.future.done()


def test_to_cancel_the_future_does_nothing(supervisor, body):
    handle = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    assert handle.future.cancel() is False
    assert not work.ctx.cancelled
    work.let_go()
    assert handle.future.result(SOON) == Completed(None)


def test_futures_can_be_waited_for_together(supervisor, body):
    works = [body(number) for number in range(3)]
    futures = [supervisor.submit(work, slot=f"s{number}").future for number, work in enumerate(works)]
    works[1].let_go()
    done, pending = concurrent.futures.wait(futures, SOON, concurrent.futures.FIRST_COMPLETED)
    assert [future.result() for future in done] == [Completed(1)]
    assert len(pending) == 2
    for work in works:
        work.let_go()
    done, pending = concurrent.futures.wait(futures, SOON)
    assert {future.result().value for future in done} == {0, 1, 2}
    assert not pending


def test_a_future_that_is_made_by_two_threads_at_once_is_one(supervisor, body):
    handle, barrier = supervisor.submit(work := body(), slot="k"), threading.Barrier(8)

    def make():
        barrier.wait(SOON)
        return handle.future

    futures = {join() for join in [call_in_thread(make) for _ in range(8)]}
    assert len(futures) == 1
    work.let_go()
    assert futures.pop().result(SOON) == Completed(None)


def test_a_wrapped_future_that_times_out_leaves_the_job_running(supervisor, body):
    handle = supervisor.submit(work := body(), slot="k")

    async def wait():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(handle.future), 0.01)

    asyncio.run(wait())
    assert work.is_inside()
    work.let_go()
    assert outcome_of(handle) == Completed(None)


# -- the outcome, the result ---------------------------------------------------------------------------------------


def test_the_outcome_is_the_same_on_every_call_and_for_every_waiter(supervisor, body):
    handle = supervisor.submit(work := body(object()), slot="k")
    waiting = [call_in_thread(handle.outcome, SOON) for _ in range(4)]
    work.let_go()
    outcomes = {id(join()) for join in waiting} | {id(handle.outcome()), id(handle.outcome(0))}
    assert len(outcomes) == 1


@pytest.mark.parametrize("timeout", [float("inf"), 1e12, 10**30, threading.TIMEOUT_MAX * 2, timedelta.max], ids=repr)
def test_it_may_be_waited_for_as_long_as_one_likes(supervisor, body, timeout):
    handle = supervisor.submit(work := body("value"), slot="k")
    waiting = call_in_thread(handle.outcome, timeout)
    work.let_go()
    assert waiting() == Completed("value")
    assert handle.result(timeout) == "value"
    assert handle.cancel(wait=True, timeout=timeout) is False


@pytest.mark.parametrize("timeout", [0, 0.0, 0.01, timedelta(milliseconds=1)], ids=repr)
def test_a_wait_that_is_over_says_so_and_changes_nothing(supervisor, body, timeout):
    handle = supervisor.submit(work := body(), slot="k")
    with pytest.raises(TimeoutError, match=str(handle.id)):
        handle.outcome(timeout)
    with pytest.raises(TimeoutError):
        handle.result(timeout)
    work.let_go()
    assert outcome_of(handle) == Completed(None)


@pytest.mark.parametrize(
    ("timeout", "error"), [("1", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)], ids=repr
)
def test_a_wait_of_no_duration_is_refused(supervisor, body, timeout, error):
    handle = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    for wait in (handle.outcome, handle.result, lambda timeout: handle.cancel(wait=True, timeout=timeout)):
        with pytest.raises(error, match="timeout"):
            wait(timeout)
    assert not work.ctx.cancelled


def test_the_result_of_a_completed_one_is_its_value(supervisor):
    assert supervisor.submit(noop, slot="k").result(SOON) == "done"


@pytest.mark.parametrize(
    "error", [ValueError("no"), TaskFailedError("no"), FatalError("no"), SystemExit(3), KeyboardInterrupt()], ids=repr
)
def test_the_result_of_a_failed_one_is_the_exception_of_its_body(supervisor, body, error):
    work = body(raises=error)
    work.let_go()
    handle = supervisor.submit(work, slot="k")
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            handle.result(SOON)
        assert raised.value is error


def test_the_result_of_one_that_took_too_long_is_a_timeout(supervisor, body):
    handle = supervisor.submit(TaskSpec.once(body(), attempt_timeout=0.01), slot="k")
    with pytest.raises(AttemptTimeoutError) as raised:
        handle.result(SOON)
    assert isinstance(raised.value, TimeoutError)


def test_the_result_of_a_cancelled_one(supervisor, body):
    handle = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    handle.cancel()
    with pytest.raises(TaskCancelledError, match=str(handle.id)):
        handle.result(SOON)


def test_the_result_of_one_that_was_given_up(start, body):
    supervisor = start(grace=0)
    handle = supervisor.submit(work := body(stubborn=True), slot="k")
    assert work.is_inside()
    handle.cancel()
    with pytest.raises(TaskAbortedError, match=str(handle.id)):
        handle.result(SOON)
    assert handle.outcome(0) == ForceAborted()


def test_the_result_of_one_whose_machinery_failed(supervisor, body):
    handle = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    supervisor.registry._actor_weakref().slots["k"].ref.stop(timeout=SOON)
    with pytest.raises(TaskPanickedError):
        handle.result(SOON)
    assert isinstance(handle.outcome(0), Panicked)


def test_the_result_of_a_rejected_one_says_why_and_because_of_whom(supervisor, body):
    supervisor.submit(body(), slot="k")
    displaced = supervisor.submit(noop, slot="k", policy="replace")
    newer = supervisor.submit(noop, slot="k", policy="replace")
    with pytest.raises(SubmissionRejectedError) as raised:
        displaced.result(SOON)
    assert raised.value.kind is RejectionKind.SUPERSEDED_BY_REPLACE
    assert raised.value.cause_id == newer.id
    assert str(newer.id) in str(raised.value)


# -- from inside ---------------------------------------------------------------------------------------------------


def in_own_body(supervisor, call):
    """Run `call(handle)` in the body of that very handle; what it raises or returns is the result."""
    handles, ready = [], threading.Event()

    def ask(_ctx):
        assert ready.wait(SOON)
        return call(handles[0])

    handles.append(supervisor.submit(ask, slot="k"))
    ready.set()
    return handles[0].result(SOON)


@pytest.mark.parametrize(
    "wait",
    [
        lambda handle: handle.outcome(1),
        lambda handle: handle.result(1),
        lambda handle: handle.cancel(wait=True),
        lambda handle: asyncio.run(_awaited(handle)),
    ],
    ids=["outcome", "result", "cancel", "await"],
)
def test_a_body_can_not_wait_for_itself(supervisor, wait):
    with pytest.raises(RuntimeError, match="body"):
        in_own_body(supervisor, wait)


async def _awaited(handle):
    return await handle


def test_a_coroutine_body_can_not_wait_for_itself(supervisor):
    handles, ready = [], threading.Event()

    async def ask(_ctx):
        while not ready.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.001)
        await handles[0]

    handles.append(supervisor.submit(ask, slot="k"))
    ready.set()
    with pytest.raises(RuntimeError, match="body"):
        handles[0].result(SOON)


def test_a_body_may_ask_for_its_own_end_without_waiting(supervisor):
    with pytest.raises(TaskCancelledError):
        in_own_body(supervisor, lambda handle: handle.cancel())


def test_a_body_may_look_at_itself(supervisor):
    assert in_own_body(supervisor, lambda handle: (handle.done(), repr(handle)))[0] is False


# -- the rest ------------------------------------------------------------------------------------------------------


def test_its_repr_is_one_line_with_id_slot_and_state(supervisor, body):
    handle = supervisor.submit(work := body(), slot="a\nb")
    assert repr(handle) == f"<TaskHandle {handle.id} slot='a\\nb' pending>"
    work.let_go()
    outcome_of(handle)
    assert repr(handle) == f"<TaskHandle {handle.id} slot='a\\nb' completed>"


def test_cancel_may_wait_for_the_end(supervisor, body):
    handle = supervisor.submit(work := body(stubborn=True), slot="k")
    assert work.is_inside()
    with pytest.raises(TimeoutError):
        handle.cancel(wait=True, timeout=0.01)
    assert work.ctx.wait(SOON)
    waiting = call_in_thread(handle.cancel, wait=True, timeout=SOON)
    work.let_go()
    assert waiting() is False  # the first one claimed it
    assert outcome_of(handle) == Cancelled()


def test_cancel_that_waits_says_that_it_claimed(supervisor, body):
    handle = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    assert handle.cancel(wait=True, timeout=SOON) is True
    assert handle.outcome(0) == Cancelled()


def test_after_shutdown_an_ended_one_is_told_apart_without_asking(start):
    supervisor = start()
    handle = supervisor.submit(noop, slot="k")
    outcome_of(handle)
    supervisor.shutdown()
    assert handle.cancel() is False
    assert handle.outcome() == Completed("done")


def test_during_shutdown_to_cancel_is_an_error_that_says_so(start, body):
    supervisor = start(grace=60)
    handle = supervisor.submit(work := body(stubborn=True), slot="k")
    assert work.is_inside()
    shutdown = call_in_thread(supervisor.shutdown)
    assert eventually(lambda: work.ctx.cancelled)
    with pytest.raises(SupervisorClosedError):
        handle.cancel()
    work.let_go()
    assert shutdown().clean


def test_to_cancel_in_the_moment_of_the_end_is_answered(start):
    supervisor = start()
    registry, runtime = supervisor.registry, supervisor._core.runtime
    handle = TaskHandle(TaskId.allocate(), "k", runtime, registry)
    supervisor.shutdown()
    with pytest.raises(SupervisorClosedError):
        handle.cancel()


def test_an_outcome_is_set_once(supervisor):
    handle = supervisor.submit(noop, slot="k")
    outcome = outcome_of(handle)
    assert handle.resolve(Cancelled()) is False
    assert handle.outcome() is outcome


def test_a_handle_nobody_keeps_changes_nothing(supervisor):
    ran = threading.Event()
    supervisor.submit(lambda _ctx: ran.set(), slot="k")
    assert ran.wait(SOON)
