"""What a body may do, in a thread and as a coroutine, and when its slot is free again."""

from __future__ import annotations

import asyncio
import functools
import threading

import pytest

from actors import AsyncTaskContext, TaskContext, open_runtime
from actors.bodies.coroutine import CoroutineRunner
from admission import (
    AttemptTimeoutError,
    Backoff,
    Cancelled,
    Completed,
    Failed,
    Fatal,
    FatalError,
    ForceAborted,
    RejectionKind,
    SlotStatus,
    TaskCancelledError,
    TaskFailedError,
    TaskSpec,
)
from tests.actors.support import SOON, Log, call_in_thread, eventually, noop, our_threads, outcome_of

SHAPES = {
    "thread": lambda body: body,
    "coroutine": lambda body: body.coroutine,
    "awaitable": lambda body: body.awaitable,
}


@pytest.fixture(params=SHAPES)
def shape(request):
    """Every kind of body."""
    return SHAPES[request.param]


@pytest.fixture(params=[name for name in SHAPES if name != "thread"])
def awaited(request):
    """Every kind of body that runs on the event loop."""
    return SHAPES[request.param]


def left_before(body):
    return "after it" if body.left.is_set() else "while it was inside"


# -- it ends by itself ---------------------------------------------------------------------------------------------


def test_what_it_returns_is_the_value(supervisor, body, shape):
    work = body("value")
    handle = supervisor.submit(shape(work), slot="k")
    assert work.is_inside()
    work.let_go()
    assert outcome_of(handle) == Completed("value")
    assert work.runs == 1


def test_it_gets_its_arguments_after_the_context(supervisor):
    spec = TaskSpec.once(lambda ctx, *args, **kwargs: (ctx.slot, args, kwargs), args=(1, 2), kwargs={"three": 3})
    assert outcome_of(supervisor.submit(spec, slot="k")).value == ("k", (1, 2), {"three": 3})


def test_it_knows_who_it_is(supervisor, body, shape):
    work = body()
    handle = supervisor.submit(TaskSpec.once(shape(work), name="sync"), slot="k")
    assert work.is_inside()
    ctx = work.ctx
    assert (ctx.task_id, ctx.task, ctx.slot, ctx.attempt, ctx.cancelled) == (handle.id, "sync", "k", 1, False)
    assert repr(ctx) == f"<{type(ctx).__name__} {handle.id} slot='k' attempt=1 running>"
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()
    assert repr(ctx).endswith("cancelled>")


def test_a_call_goes_on_as_a_coroutine_even_before_its_thread_has_left_it(monkeypatch, supervisor, body):
    work, adopt = body("met"), CoroutineRunner.adopt

    def linger(runner, job, awaitable):
        adopt(runner, job, awaitable)
        assert work.is_inside()

    monkeypatch.setattr(CoroutineRunner, "adopt", linger)
    handle = supervisor.submit(work.awaitable, slot="k")
    assert work.is_inside()
    work.let_go()
    assert outcome_of(handle) == Completed("met")


@pytest.mark.parametrize("error", [ValueError("no"), TaskFailedError("no", exit_code=3)], ids=repr)
def test_any_exception_is_a_failure(supervisor, body, shape, error):
    work = body(raises=error)
    work.let_go()
    outcome = outcome_of(supervisor.submit(shape(work), slot="k"))
    assert isinstance(outcome, Failed)
    assert outcome.error is error
    assert outcome.exit_code == getattr(error, "exit_code", None)


def test_a_failure_is_retried_and_attempts_are_numbered_from_one(supervisor, awaited, body):
    seen = []

    async def flaky(ctx):
        seen.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError(ctx.attempt)
        return "third"

    spec = TaskSpec.restartable(flaky, backoff=Backoff.constant(0))
    assert outcome_of(supervisor.submit(spec, slot="k")) == Completed("third")
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    "error",
    [FatalError("never again"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("odd")],
    ids=repr,
)
def test_a_fatal_error_is_never_retried(supervisor, body, shape, error):
    work = body(raises=error)
    work.let_go()
    spec = TaskSpec.restartable(shape(work), backoff=Backoff.constant(0))
    outcome = outcome_of(supervisor.submit(spec, slot="k"))
    assert isinstance(outcome, Fatal)
    assert outcome.error is error
    assert work.runs == 1
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")


def test_it_may_report_that_it_was_cancelled_unasked(supervisor, body, shape):
    work = body(raises=TaskCancelledError())
    work.let_go()
    assert outcome_of(supervisor.submit(shape(work), slot="k")) == Cancelled()


def test_stop_iteration_is_a_failure_like_any_other(supervisor):
    def stops(_ctx):
        raise StopIteration("value")

    outcome = outcome_of(supervisor.submit(stops, slot="k"))
    assert isinstance(outcome.error, StopIteration)


@pytest.mark.parametrize("call", ["partial", "callable object", "method"])
def test_every_form_of_coroutine_function_runs_on_the_event_loop(supervisor, call):
    class Job:
        async def __call__(self, ctx):
            return type(ctx)

        method = __call__

    job = {"partial": functools.partial(Job().method), "callable object": Job(), "method": Job().method}[call]
    assert outcome_of(supervisor.submit(job, slot="k")) == Completed(AsyncTaskContext)


def test_an_awaitable_that_a_call_returns_is_awaited(supervisor):
    def returns_an_awaitable(ctx):
        async def rest():
            await asyncio.sleep(0)
            return type(ctx), threading.current_thread().name

        return rest()

    assert outcome_of(supervisor.submit(returns_an_awaitable, slot="k")).value == (TaskContext, "slotkeeper-loop")


def test_an_awaitable_of_the_applications_own_is_awaited(supervisor):
    class Later:
        def __await__(self):
            yield from asyncio.sleep(0).__await__()
            return "later"

    assert outcome_of(supervisor.submit(lambda _ctx: Later(), slot="k")) == Completed("later")


def test_an_awaitable_that_comes_after_the_end_of_everything_is_not_awaited(start, body):
    supervisor, work, awaited = start(grace=0), body(stubborn=True), threading.Event()

    async def late():
        awaited.set()

    def returns_an_awaitable(ctx):
        work(ctx)
        return late()

    handle = supervisor.submit(returns_an_awaitable, slot="k")
    assert work.is_inside()
    supervisor.shutdown()
    work.let_go()
    assert outcome_of(handle) == ForceAborted()
    assert eventually(lambda: our_threads() == [])
    assert not awaited.is_set()


# -- it is asked to stop -------------------------------------------------------------------------------------------


def test_one_that_listens_stops_and_is_cancelled(supervisor, body, shape):
    work = body()
    handle = supervisor.submit(shape(work), slot="k")
    assert work.is_inside()
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()
    assert work.left.is_set()
    assert not handle.cancel()


def test_one_that_returns_all_the_same_is_cancelled(supervisor, body, shape):
    work = body("a value that nobody gets", stubborn=True)
    handle = supervisor.submit(shape(work), slot="k")
    assert work.is_inside()
    assert handle.cancel()
    assert not handle.done()
    work.let_go()
    assert outcome_of(handle) == Cancelled()


def test_one_that_fails_over_it_is_a_failure(supervisor, body, shape):
    error = OSError("while cleaning up")
    work = body(stubborn=True, raises=error)
    handle = supervisor.submit(shape(work), slot="k")
    assert work.is_inside()
    assert handle.cancel()
    work.let_go()
    assert outcome_of(handle).error is error


def test_one_that_would_be_retried_is_cancelled(supervisor, body, shape):
    work = body(stubborn=True, raises=OSError())
    spec = TaskSpec.restartable(shape(work), backoff=Backoff.constant(0))
    handle = supervisor.submit(spec, slot="k")
    assert work.is_inside()
    assert handle.cancel()
    work.let_go()
    assert outcome_of(handle) == Cancelled()
    assert work.runs == 1


def test_cancelled_while_it_waits_for_its_turn_it_never_runs(supervisor, body, shape):
    owner, waiting = body(), body()
    supervisor.submit(owner, slot="k")
    handle = supervisor.submit(shape(waiting), slot="k")
    assert handle.cancel()
    assert outcome_of(handle).kind is RejectionKind.REMOVED_FROM_QUEUE
    owner.let_go()
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    assert waiting.runs == 0


def test_cancelled_between_two_attempts_it_never_runs_again(supervisor, body, shape):
    work = body(raises=ValueError())
    work.let_go()
    log = threading.Event()
    handle = supervisor.submit(TaskSpec.restartable(shape(work), backoff=Backoff.constant(30)), slot="k")
    assert work.left.wait(SOON)
    log.wait(0)
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()
    assert work.runs == 1


def test_one_that_ignores_it_is_given_up_and_keeps_its_slot_until_it_leaves(start, body, shape):
    supervisor = start(grace=0.02)
    work = body(stubborn=True)
    handle = supervisor.submit(shape(work), slot="k")
    assert work.is_inside()
    behind = supervisor.submit(lambda _ctx: left_before(work), slot="k")
    assert handle.cancel()
    assert outcome_of(handle) == ForceAborted()
    view = supervisor.snapshot().slot("k")
    assert (view.status, view.owner_id, view.queue_depth) == (SlotStatus.TERMINATING, handle.id, 1)
    assert not behind.done()
    assert not handle.cancel()
    work.let_go()
    assert outcome_of(behind) == Completed("after it")


def test_a_second_cancel_changes_nothing(supervisor, body, shape):
    work = body(stubborn=True)
    handle = supervisor.submit(shape(work), slot="k")
    assert work.is_inside()
    assert [handle.cancel() for _ in range(3)] == [True, False, False]
    work.let_go()
    assert outcome_of(handle) == Cancelled()


def test_a_coroutine_that_is_cancelled_before_its_first_step_never_takes_it(supervisor, body):
    blocking, release, late = threading.Event(), threading.Event(), body()

    async def blocks(_ctx):
        blocking.set()
        release.wait(SOON)

    supervisor.submit(blocks, slot="a")
    assert blocking.wait(SOON)
    try:
        handle = supervisor.submit(late.coroutine, slot="b")
        assert eventually(lambda: supervisor.snapshot().running_count == 2)
        assert handle.cancel()
    finally:
        release.set()
    assert outcome_of(handle) == Cancelled()
    assert late.runs == 0
    assert outcome_of(supervisor.submit(noop, slot="b")) == Completed("done")


def test_a_call_that_is_asked_to_stop_before_it_returns_its_awaitable_is_stopped_there(supervisor):
    inside, awaited = threading.Event(), []

    async def rest(ctx):
        awaited.append(ctx.cancelled)
        await asyncio.sleep(30)

    def returns_an_awaitable(ctx):
        inside.set()
        ctx.wait()
        return rest(ctx)

    handle = supervisor.submit(returns_an_awaitable, slot="k")
    assert inside.wait(SOON)
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()
    assert awaited in ([], [True])


# -- it takes too long ---------------------------------------------------------------------------------------------


def test_one_that_listens_is_stopped_by_its_timeout(supervisor, body, shape):
    work = body()
    handle = supervisor.submit(TaskSpec.once(shape(work), attempt_timeout=0.02), slot="k")
    outcome = outcome_of(handle)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AttemptTimeoutError)
    assert outcome.error.timeout == 0.02
    assert work.ctx.cancelled


def test_after_a_timeout_it_is_tried_again_with_a_fresh_context(supervisor, body, shape):
    first, seen = body(), []

    def second(ctx):
        seen.append((ctx.attempt, ctx.cancelled))

    def both(ctx):
        return shape(first)(ctx) if ctx.attempt == 1 else second(ctx)

    spec = TaskSpec.restartable(both, attempt_timeout=0.02, backoff=Backoff.constant(0))
    assert outcome_of(supervisor.submit(spec, slot="k")) == Completed(None)
    assert seen == [(2, False)]


def test_one_that_outstays_its_timeout_holds_everything_up_until_it_leaves(start, body, shape):
    log = Log()
    supervisor = start(grace=60, logger=log)
    work = body("late", stubborn=True)
    handle = supervisor.submit(TaskSpec.once(shape(work), attempt_timeout=0.01), slot="k")
    behind = supervisor.submit(lambda _ctx: left_before(work), slot="k")
    assert eventually(lambda: log.of("attempt_timed_out"))
    assert supervisor.snapshot().slot("k").owner_id == handle.id
    assert not handle.done()
    assert not behind.done()
    work.let_go()
    assert isinstance(outcome_of(handle).error, AttemptTimeoutError)
    assert outcome_of(behind) == Completed("after it")


def test_one_that_outstays_its_grace_as_well_is_given_up(start, body, shape):
    supervisor = start(grace=0.02)
    work = body(stubborn=True)
    spec = TaskSpec.restartable(shape(work), attempt_timeout=0.01, backoff=Backoff.constant(0))
    handle = supervisor.submit(spec, slot="k")
    assert outcome_of(handle) == ForceAborted()
    assert supervisor.snapshot().slot("k").status is SlotStatus.TERMINATING
    work.let_go()
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    assert work.runs == 1


# -- the contexts --------------------------------------------------------------------------------------------------


def test_a_thread_waits_for_its_cancellation(supervisor, body):
    inside, seen = threading.Event(), []

    def waits(ctx):
        seen.append(ctx.wait(0))
        inside.set()
        seen.append(ctx.wait(SOON))
        seen.append(ctx.wait(0))
        ctx.sleep(30)

    handle = supervisor.submit(waits, slot="k")
    assert inside.wait(SOON)
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()
    assert seen == [False, True, True]


def test_a_coroutine_absorbs_its_cancellation_by_waiting_for_it(supervisor):
    inside, seen = threading.Event(), []

    async def waits(ctx):
        seen.append(await ctx.wait(0))
        inside.set()
        seen.append(await ctx.wait())
        await asyncio.sleep(0.001)  # cleaning up: the cancellation is not raised again
        seen.append(await ctx.wait(30))
        seen.append(asyncio.current_task().cancelling())
        return "cleaned up"

    handle = supervisor.submit(waits, slot="k")
    assert inside.wait(SOON)
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()
    assert seen == [False, True, True, 0]


def test_a_coroutine_that_sleeps_is_woken_by_its_cancellation(supervisor):
    inside = threading.Event()

    async def sleeps(ctx):
        await ctx.sleep(0)
        inside.set()
        await ctx.sleep(30)

    handle = supervisor.submit(sleeps, slot="k")
    assert inside.wait(SOON)
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()


def test_a_cancellation_that_is_not_ours_is_not_absorbed(supervisor):
    async def cancelled_by_its_own_child(ctx):
        task = asyncio.current_task()
        asyncio.get_running_loop().call_soon(task.cancel)
        try:
            await ctx.wait(SOON)
        except asyncio.CancelledError:
            task.uncancel()
            return "raised"
        return "absorbed"

    assert outcome_of(supervisor.submit(cancelled_by_its_own_child, slot="k")) == Completed("raised")


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", True], ids=repr)
def test_a_wait_of_no_duration_is_refused(supervisor, seconds):
    def sleeps(ctx):
        ctx.sleep(seconds)

    outcome = outcome_of(supervisor.submit(sleeps, slot="k"))
    assert isinstance(outcome.error, ValueError | TypeError)
    assert "seconds" in outcome.reason


@pytest.mark.parametrize("seconds", [float("inf"), 1e12, 10**30], ids=repr)
def test_a_wait_may_be_as_long_as_one_likes(supervisor, seconds):
    inside = threading.Event()

    def sleeps(ctx):
        inside.set()
        ctx.sleep(seconds)

    handle = supervisor.submit(sleeps, slot="k")
    assert inside.wait(SOON)
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()


# -- where they run ------------------------------------------------------------------------------------------------


def test_a_thread_carries_the_name_of_its_task(supervisor):
    spec = TaskSpec.once(lambda _ctx: threading.current_thread().name, name="sync-tenant-42")
    assert outcome_of(supervisor.submit(spec, slot="k")) == Completed("sync-tenant-42")


def test_coroutines_share_one_loop_that_is_not_the_callers(supervisor):
    async def loop_of(_ctx):
        return asyncio.get_running_loop()

    loops = {outcome_of(supervisor.submit(loop_of, slot=f"s{number}")).value for number in range(5)}
    assert len(loops) == 1
    assert not loops.pop().is_closed()


def test_a_coroutine_that_blocks_the_loop_delays_coroutines_only(supervisor, body):
    blocking, release = threading.Event(), threading.Event()

    async def blocks(_ctx):
        blocking.set()
        release.wait(SOON)

    try:
        handle = supervisor.submit(blocks, slot="a")
        assert blocking.wait(SOON)
        other = supervisor.submit(body().coroutine, slot="b")
        assert outcome_of(supervisor.submit(noop, slot="c")) == Completed("done")
        assert not other.done()
        other.cancel()
    finally:
        release.set()
    assert outcome_of(handle) == Completed(None)
    assert outcome_of(other) == Cancelled()


def test_a_thread_that_rests_for_long_ends_and_another_is_started_when_it_is_needed(supervisor):
    threads = supervisor._core.runtime.bodies.threads
    threads._idle_seconds = 0.01
    for _ in range(3):
        assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
        assert eventually(lambda: threads.threads == 0)


def test_a_burst_of_bodies_that_block_gets_a_thread_each(supervisor, body):
    works = [body() for _ in range(50)]
    for number, work in enumerate(works):
        supervisor.submit(work, slot=f"s{number}")
    assert all(work.is_inside() for work in works)
    assert supervisor._core.runtime.bodies.threads.threads == 50


@pytest.fixture
def one_thread(start):
    runtime = open_runtime(max_threads=1)
    supervisor = start(runtime=runtime)
    yield supervisor
    supervisor.shutdown()
    runtime.close()
    runtime.join(1)


def test_past_max_threads_bodies_wait_first_in_first_out(one_thread, body):
    first, order = body(), []
    running = one_thread.submit(first, slot="first")
    assert first.is_inside()
    handles = [
        one_thread.submit(TaskSpec.once(lambda _ctx, n: order.append(n), args=(n,)), slot=f"s{n}") for n in range(5)
    ]
    assert eventually(lambda: one_thread.snapshot().running_count == 6)
    assert order == []
    first.let_go()
    assert [outcome_of(handle) for handle in [running, *handles]] == [Completed(None)] * 6
    assert order == [0, 1, 2, 3, 4]


def test_cancelled_before_a_thread_is_free_it_is_never_entered(one_thread, body):
    first, waiting = body(), body()
    one_thread.submit(first, slot="first")
    assert first.is_inside()
    handle = one_thread.submit(waiting, slot="waiting")
    behind = one_thread.submit(noop, slot="waiting")
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()
    first.let_go()
    assert outcome_of(behind) == Completed("done")
    assert waiting.runs == 0


def test_the_timeout_does_not_run_while_it_waits_for_a_thread(one_thread, body):
    first = body()
    one_thread.submit(first, slot="first")
    assert first.is_inside()
    timed = one_thread.submit(TaskSpec.once(noop, attempt_timeout=0.01), slot="timed")
    assert not threading.Event().wait(0.03)  # three times its timeout
    assert not timed.done()
    first.let_go()
    assert outcome_of(timed) == Completed("done")


def test_at_shutdown_what_waits_for_a_thread_is_cancelled(one_thread, body):
    first, waiting = body(stubborn=True), body()
    running = one_thread.submit(first, slot="first")
    assert first.is_inside()
    handle = one_thread.submit(waiting, slot="waiting")
    shutdown = call_in_thread(one_thread.shutdown)
    assert outcome_of(handle) == Cancelled()
    first.let_go()
    assert shutdown().clean
    assert outcome_of(running) == Cancelled()
    assert waiting.runs == 0


def test_a_coroutine_needs_no_thread(one_thread, body):
    first, second = body(), body("on the loop")
    one_thread.submit(first, slot="first")
    assert first.is_inside()
    second.let_go()
    assert outcome_of(one_thread.submit(second.coroutine, slot="second")) == Completed("on the loop")


@pytest.mark.parametrize(("setting", "value"), [("max_threads", 0), ("max_threads", None), ("dispatchers", "2")])
def test_a_runtime_of_no_threads_is_refused(setting, value):
    with pytest.raises((TypeError, ValueError), match=setting):
        open_runtime(**{setting: value})
