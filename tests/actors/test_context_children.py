"""Contexts below a context, and code that knows no context but is ended with one."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref

import pytest

from actors import AsyncTaskContext, CancellableAsyncTaskContext, CancellableTaskContext, TaskContext
from actors.bodies import cancel
from actors.bodies.coroutine import CoroutineRunner
from admission import Cancelled, Completed, Failed, TaskCancelledError, TaskId, TaskSpec
from admission.effects import Cause
from tests.actors.support import SOON, call_in_thread, eventually, outcome_of

colour = contextvars.ContextVar("colour", default="none")
kinds = pytest.mark.parametrize("kind", [TaskContext, AsyncTaskContext], ids=["thread", "coroutine"])


class OwnError(Exception):
    """One that can be referred to weakly."""


def given(kind):
    """Return a context as a body is given one."""
    return kind(TaskId.allocate(), "task", "slot", 3)


def known(ctx):
    """Tell how many children a context remembers."""
    return len(ctx._bell._children)


# -- a family ------------------------------------------------------------------------------------------------------


@kinds
def test_a_child_is_of_the_same_kind_and_says_the_same_of_itself(kind):
    ctx = given(kind)
    child = ctx.child()
    assert isinstance(child, kind)
    assert (child.task_id, child.task, child.slot, child.attempt) == (ctx.task_id, "task", "slot", 3)
    assert f"{child!r}" == f"<Cancellable{kind.__name__} {ctx.task_id} slot='slot' attempt=3 running>"


@kinds
def test_only_a_child_can_be_cancelled_by_whoever_has_it(kind):
    assert not hasattr(given(kind), "cancel")
    assert callable(given(kind).child().cancel)


@kinds
def test_cancellation_goes_down_and_never_up_or_sideways(kind):
    ctx = given(kind)
    first, second = ctx.child(), ctx.child()
    below = first.child()
    first.cancel()
    assert [each.cancelled for each in (ctx, first, below, second)] == [False, True, True, False]
    ctx.raise_if_cancelled()
    with pytest.raises(TaskCancelledError):
        below.raise_if_cancelled()
    cancel(ctx, Cause.TIMEOUT)
    assert second.cancelled
    with pytest.raises(TaskCancelledError, match="timeout"):
        second.raise_if_cancelled()


@kinds
def test_what_comes_after_the_cancellation_is_cancelled_from_the_start(kind):
    ctx = given(kind)
    cancel(ctx, Cause.DRAIN)
    assert ctx.child().cancelled
    assert ctx.child().child().cancelled


@kinds
def test_a_link_that_nobody_holds_does_not_break_the_chain(kind):
    ctx = given(kind)
    last = ctx.child().child().child()
    gc.collect()
    cancel(ctx, Cause.CANCEL)
    assert last.cancelled


@kinds
def test_no_depth_is_too_much(kind):
    ctx = given(kind)
    chain = [ctx]
    for _ in range(5000):
        chain.append(chain[-1].child())
    cancel(ctx, Cause.CANCEL)
    assert all(each.cancelled for each in chain)
    while chain:
        chain.pop()


@kinds
def test_a_parent_remembers_no_child_that_nobody_holds(kind):
    ctx = given(kind)
    gc.disable()  # not even as garbage that the collector has to find
    try:
        for _ in range(100):
            ctx.child().child()
        kept = ctx.child()
        assert known(ctx) == 1
        gone = weakref.ref(kept)
        del kept
        assert gone() is None
        assert known(ctx) == 0
    finally:
        gc.enable()


@kinds
def test_a_context_that_nobody_waits_for_has_no_bell(kind):
    ctx = given(kind)
    assert not ctx.cancelled
    cancel(ctx, Cause.CANCEL)
    assert ctx._bell is None


def test_it_may_be_cancelled_while_children_come_and_go():
    for _ in range(50):
        ctx, go, last = given(TaskContext), threading.Barrier(5), []

        def come_and_go(ctx=ctx, go=go, last=last):
            go.wait(SOON)
            child = ctx.child()
            while not child.cancelled:
                ctx.child()
                child = ctx.child().child()
            last.append(child)

        joins = [call_in_thread(come_and_go) for _ in range(4)]
        go.wait(SOON)
        cancel(ctx, Cause.CANCEL)
        for join in joins:
            join()
        assert all(child.cancelled for child in last)


@pytest.mark.parametrize("from_above", [True, False], ids=["with its parent", "alone"])
def test_threads_that_wait_for_a_child_are_woken(from_above):
    ctx = given(TaskContext)
    child = ctx.child()
    below = child.child()
    joins = [call_in_thread(each.wait, SOON) for each in (child, child, below)]
    if from_above:
        cancel(ctx, Cause.CANCEL)
    else:
        child.cancel()
    assert [join() for join in joins] == [True, True, True]
    assert child.wait()
    assert ctx.wait(0) is from_above


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_body_can_be_tried_without_a_supervisor(cancelled):
    def body(ctx, number):
        ctx.raise_if_cancelled()
        return number, ctx.attempt, ctx.slot

    ctx = TaskContext.detached(cancelled=cancelled)
    assert type(ctx) is CancellableTaskContext
    assert ctx.task_id < TaskId.allocate()
    if cancelled:
        with pytest.raises(TaskCancelledError):
            body(ctx, 7)
    else:
        assert body(ctx, 7) == (7, 1, None)
        ctx.cancel()
        assert ctx.cancelled


# -- a function in a thread ----------------------------------------------------------------------------------------


def test_a_function_is_called_and_its_value_returned():
    ctx = given(TaskContext)
    assert ctx.run_until_cancelled(lambda *args, **kwargs: (args, kwargs), 1, function=2) == ((1,), {"function": 2})
    assert ctx.run_until_cancelled(lambda: None) is None


def test_it_runs_in_a_thread_of_its_own_with_the_variables_of_the_caller():
    ctx = given(TaskContext)

    def look():
        seen = colour.get(), threading.current_thread()
        colour.set("blue")
        return seen

    colour.set("red")
    seen, thread = ctx.run_until_cancelled(look)
    assert seen == "red"
    assert colour.get() == "red"
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert thread.name == f"slotkeeper-call-of-{ctx.task_id}"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), TaskCancelledError("its own"), StopIteration()])
def test_what_it_raises_is_raised(error):
    def fail():
        raise error

    with pytest.raises(type(error)) as caught:
        given(TaskContext).run_until_cancelled(fail)
    assert caught.value is error


def test_an_error_that_is_let_go_is_gone_at_once():
    def fail():
        raise OwnError

    ctx = given(TaskContext)
    gc.disable()  # not even as garbage that the collector has to find
    try:
        try:
            ctx.run_until_cancelled(fail)
        except OwnError as error:
            gone = weakref.ref(error)
        assert eventually(lambda: gone() is None)
    finally:
        gc.enable()


def test_the_error_of_one_that_was_left_is_gone_as_soon_as_it_has_ended():
    ctx, go_on, gone = TaskContext.detached(), threading.Event(), []

    def fail():
        ctx.cancel()
        assert go_on.wait(SOON)
        raise seen_off(OwnError())

    def seen_off(error):
        gone.append(weakref.ref(error))
        return error

    gc.disable()
    try:
        with pytest.raises(TaskCancelledError):
            ctx.run_until_cancelled(fail)
        go_on.set()
        assert eventually(lambda: gone and gone[0]() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("function", [None, 3, "print"])
def test_what_can_not_be_called_is_refused(function):
    with pytest.raises(TypeError, match="function must be callable, not"):
        given(TaskContext).run_until_cancelled(function)


def test_one_that_comes_too_late_is_never_started():
    called = []
    with pytest.raises(TaskCancelledError):
        TaskContext.detached(cancelled=True).run_until_cancelled(called.append, 1)
    assert called == []


def test_asked_to_stop_it_is_left_alone_and_goes_on():
    ctx = TaskContext.detached()
    inside, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def deaf():
        inside.set()
        assert go_on.wait(SOON)
        over.set()
        raise ValueError  # nobody hears of it

    join = call_in_thread(ctx.run_until_cancelled, deaf)
    assert inside.wait(SOON)
    ctx.cancel()
    with pytest.raises(TaskCancelledError):
        join()
    assert not over.is_set()
    go_on.set()
    assert over.wait(SOON)


def test_cancellation_wins_where_both_have_happened():
    ctx = TaskContext.detached()
    with pytest.raises(TaskCancelledError):
        ctx.run_until_cancelled(ctx.cancel)

    def both():
        child.cancel()
        raise ValueError

    child = TaskContext.detached().child()
    with pytest.raises(TaskCancelledError):
        child.run_until_cancelled(both)


def test_nothing_is_left_of_it_in_the_context():
    ctx = given(TaskContext)
    for _ in range(20):
        ctx.run_until_cancelled(lambda: None)
    assert eventually(lambda: known(ctx) == 0)


def test_where_no_thread_can_be_started_it_says_so(monkeypatch):
    def fail(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="can't start"):
        given(TaskContext).run_until_cancelled(lambda: None)


def test_a_slot_does_not_wait_for_what_its_body_has_left(supervisor):
    inside, go_on = threading.Event(), threading.Event()

    def deaf():
        inside.set()
        go_on.wait(SOON)

    handle = supervisor.submit(lambda ctx: ctx.run_until_cancelled(deaf), slot="k")
    assert inside.wait(SOON)
    assert handle.cancel()
    assert outcome_of(handle) == Cancelled()
    assert outcome_of(supervisor.submit(lambda _ctx: "next", slot="k")) == Completed("next")
    assert not go_on.is_set()
    go_on.set()


def test_a_timeout_ends_it_as_well(supervisor):
    go_on = threading.Event()
    spec = TaskSpec.once(lambda ctx: ctx.run_until_cancelled(go_on.wait, SOON), attempt_timeout=0.05)
    assert isinstance(outcome_of(supervisor.submit(spec, slot="k")), Failed)
    go_on.set()


def test_a_part_of_the_work_can_be_called_off_alone(supervisor):
    def body(ctx):
        part = ctx.child()
        join = call_in_thread(part.wait)
        part.cancel()
        return join(), part.cancelled, ctx.cancelled

    assert outcome_of(supervisor.submit(body, slot="k")) == Completed((True, True, False))


# -- an awaitable on a loop ----------------------------------------------------------------------------------------


def detached(**options):
    return AsyncTaskContext.detached(**options)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, SOON))


async def value(what):
    await asyncio.sleep(0)
    return what


def test_a_coroutine_body_can_be_tried_without_a_supervisor():
    async def body(ctx):
        await ctx.sleep(0)
        return await ctx.run_until_cancelled(value("done"))

    assert type(detached()) is CancellableAsyncTaskContext
    assert run(body(detached())) == "done"
    with pytest.raises(TaskCancelledError):
        run(body(detached(cancelled=True)))


def test_any_awaitable_is_awaited():
    class Awaitable:
        def __await__(self):
            return (yield from value("own").__await__())

    async def look():
        ctx, future = detached(), asyncio.get_running_loop().create_future()
        future.set_result("future")
        return [
            await ctx.run_until_cancelled(value("coroutine")),
            await ctx.run_until_cancelled(asyncio.ensure_future(value("task"))),
            await ctx.run_until_cancelled(future),
            await ctx.run_until_cancelled(Awaitable()),
        ]

    assert run(look()) == ["coroutine", "task", "future", "own"]


@pytest.mark.parametrize("awaitable", [None, 3, value], ids=["None", "int", "function"])
def test_what_can_not_be_awaited_is_refused(awaitable):
    with pytest.raises(TypeError, match="awaitable must be a coroutine or another awaitable, not"):
        run(detached().run_until_cancelled(awaitable))


def test_what_an_awaitable_raises_is_raised():
    error = ValueError("no")

    async def fail():
        raise error

    with pytest.raises(ValueError, match="no") as caught:
        run(detached().run_until_cancelled(fail()))
    assert caught.value is error


def test_an_awaitable_that_comes_too_late_is_never_started():
    started = []

    async def start():
        started.append(True)

    async def look():
        later = asyncio.get_running_loop().create_future()
        for awaitable in (start(), later):
            with pytest.raises(TaskCancelledError):
                await detached(cancelled=True).run_until_cancelled(awaitable)
        return later.cancelled()

    assert run(look()) is False  # it was not ours to start
    assert started == []


def test_asked_to_stop_it_is_cancelled_and_its_end_waited_for():
    steps = []

    async def work(inside):
        inside.set()
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    async def look():
        ctx, inside = detached(), asyncio.Event()
        task = asyncio.ensure_future(ctx.run_until_cancelled(work(inside)))
        await inside.wait()
        ctx.cancel()
        with pytest.raises(TaskCancelledError):
            await task
        steps.append("back")
        return ctx

    assert run(look())._bell.sleepers == {}
    assert steps == ["cleaned up", "back"]


@pytest.mark.parametrize("end", ["returns", "raises"])
def test_cancellation_wins_over_an_awaitable_that_ends_all_the_same(end):
    async def both(ctx):
        ctx.cancel()
        if end == "raises":
            raise ValueError

    async def look():
        ctx = detached()
        with pytest.raises(TaskCancelledError):
            await ctx.run_until_cancelled(both(ctx))

    run(look())


def test_nobody_complains_of_an_error_that_comes_after_the_cancellation():
    complaints = []

    async def look():
        async def fail():
            try:
                await asyncio.sleep(30)
            finally:
                raise ValueError

        asyncio.get_running_loop().set_exception_handler(lambda _loop, told: complaints.append(told))
        ctx = detached()
        running = asyncio.ensure_future(ctx.run_until_cancelled(fail()))
        await asyncio.sleep(0.001)
        ctx.cancel()
        with pytest.raises(TaskCancelledError):
            await running
        del running
        gc.collect()

    run(look())
    assert complaints == []


def test_whoever_cancels_the_caller_cancels_the_awaitable():
    async def look():
        ctx, work = detached(), asyncio.ensure_future(asyncio.sleep(30))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ctx.run_until_cancelled(work)
        return work.cancelled(), ctx.cancelled, ctx._bell.sleepers

    assert run(look()) == (True, False, {})


def test_an_awaitable_that_somebody_else_cancels_is_cancelled():
    async def look():
        work = asyncio.get_running_loop().create_future()
        work.cancel()
        await detached().run_until_cancelled(work)

    with pytest.raises(asyncio.CancelledError):
        run(look())


@pytest.mark.parametrize("from_above", [True, False], ids=["with its parent", "alone"])
def test_coroutines_that_wait_for_a_child_are_woken(from_above):
    async def look():
        ctx = detached()
        child = ctx.child()
        waiting = asyncio.gather(child.wait(), child.wait(30), child.child().wait(), child.wait(0))
        await asyncio.sleep(0.001)
        (ctx if from_above else child).cancel()
        return await waiting, await child.wait(), await ctx.wait(0)

    assert run(look()) == ([True, True, True, False], True, from_above)


def test_it_may_be_cancelled_from_a_thread_and_after_the_loop_has_gone():
    ctx = detached()

    async def look():
        waiting = asyncio.ensure_future(ctx.child().wait())
        await asyncio.sleep(0)
        call_in_thread(ctx.cancel)()
        return await waiting

    assert run(look())

    left = detached()
    loop = asyncio.new_event_loop()
    left._get_bell().sleepers[loop.create_future()] = None
    loop.close()
    left.cancel()
    assert left.cancelled


# -- on the loop of a supervisor -----------------------------------------------------------------------------------


def submit_and_cancel(supervisor, work):
    """Have a body started and its run cancelled once it says that it is inside; returns the outcome."""
    inside = threading.Event()
    handle = supervisor.submit(TaskSpec.once(work, args=(inside,)), slot="k")
    assert inside.wait(SOON)
    assert handle.cancel()
    return outcome_of(handle)


@pytest.mark.parametrize("waiting", ["child", "work"])
def test_the_cancellation_of_the_task_does_not_hit_what_comes_after(supervisor, waiting):
    async def work(ctx, inside):
        seen.append(ctx)
        child = ctx.child()
        inside.set()
        if waiting == "child":
            seen.append(await child.wait())
        else:
            with pytest.raises(TaskCancelledError):
                await child.run_until_cancelled(asyncio.sleep(30))
        await asyncio.sleep(0.001)
        seen.append(asyncio.current_task().cancelling())

    seen = []
    assert submit_and_cancel(supervisor, work) == Cancelled()
    assert seen[1:] == ([True, 0] if waiting == "child" else [0])


def test_it_does_not_either_when_it_comes_late(monkeypatch, supervisor):
    stop = CoroutineRunner.stop
    monkeypatch.setattr(CoroutineRunner, "stop", lambda *args: threading.Timer(0.03, stop, args).start())

    async def work(ctx, inside):
        inside.set()
        seen.append(await ctx.wait())
        await asyncio.sleep(0.06)  # cleaning up
        seen.append(asyncio.current_task().cancelling())

    seen = []
    assert submit_and_cancel(supervisor, work) == Cancelled()
    assert seen == [True, 0]


def test_a_body_that_is_ended_so_is_cancelled(supervisor):
    async def work(ctx, inside):
        inside.set()
        await ctx.run_until_cancelled(asyncio.sleep(30))

    assert submit_and_cancel(supervisor, work) == Cancelled()


def test_a_task_that_nobody_awaits_hears_of_the_cancellation_too(supervisor):
    async def work(ctx, inside):
        waiting = asyncio.ensure_future(ctx.wait())
        running = asyncio.ensure_future(ctx.run_until_cancelled(asyncio.sleep(30)))
        inside.set()
        await ctx.wait()
        seen.append(await waiting)
        with pytest.raises(TaskCancelledError):
            await running

    seen = []
    assert submit_and_cancel(supervisor, work) == Cancelled()
    assert seen == [True]


def test_calling_a_part_off_cancels_no_task(supervisor):
    async def work(ctx):
        part = ctx.child()
        running = asyncio.ensure_future(part.run_until_cancelled(asyncio.sleep(30)))
        await asyncio.sleep(0)
        part.cancel()
        with pytest.raises(TaskCancelledError):
            await running
        return ctx.cancelled, asyncio.current_task().cancelling()

    assert outcome_of(supervisor.submit(work, slot="k")) == Completed((False, 0))
