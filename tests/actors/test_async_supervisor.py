"""The face for event loops: the same names, each wait a coroutine, and neither world blocks the other."""

from __future__ import annotations

import asyncio
import functools
import threading
import warnings

import pytest

from actors import AsyncSupervisor, Supervisor
from admission import (
    AdmissionLimits,
    Cancelled,
    Completed,
    ForceAborted,
    IntakeFullError,
    RejectionKind,
    ShutdownReport,
    SlotStatus,
    Snapshot,
    Submission,
    SupervisorClosedError,
    TaskSpec,
)
from tests.actors.support import SOON, call_in_thread, eventually, noop, outcome_of


def on_a_loop(test):
    """Run a coroutine of a test on a loop of its own, within bounds."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 10))

    return run


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, SOON)


async def inside(body):
    """Let the loop go on until this body is inside."""
    assert await asyncio.to_thread(body.is_inside)
    return body


# -- the same names ------------------------------------------------------------------------------------------------


@on_a_loop
async def test_the_block_starts_it_and_ends_it(nothing_is_left, body):
    async with Supervisor(grace=1) as supervisor:
        assert isinstance(supervisor, AsyncSupervisor)
        running = await supervisor.submit(work := body(), slot="k")
        waiting = supervisor.try_submit(noop, slot="k")
        await inside(work)
    assert await running == Cancelled()
    assert (await waiting).kind is RejectionKind.SHUTTING_DOWN


@pytest.mark.parametrize(
    "work",
    [noop, TaskSpec.once(noop), Submission(noop, slot="k")],
    ids=["callable", "spec", "submission"],
)
@on_a_loop
async def test_whatever_describes_work_can_be_submitted(face, work):
    assert await soon(await face.submit(work)) == Completed("done")
    assert await soon(face.try_submit(work)) == Completed("done")


@on_a_loop
async def test_coroutine_bodies_run_on_a_loop_of_their_own(face):
    async def loop_of(_ctx):
        return asyncio.get_running_loop()

    outcome = await soon(await face.submit(loop_of))
    assert outcome.value is not asyncio.get_running_loop()


@on_a_loop
async def test_it_answers_what_the_other_face_answers(face, body):
    handle = await face.submit(TaskSpec.once(work := body(stubborn=True), name="sync"), slot="k")
    await inside(work)
    assert await face.tasks() == [(handle.id, "sync")]
    assert (await face.snapshot()).slot("k").status is SlotStatus.RUNNING
    assert await face.remove("sync") is True
    assert await face.remove(handle.id) is False
    with pytest.raises(TimeoutError):
        await face.cancel(handle.id, timeout=0.01)
    with pytest.raises(TimeoutError):
        await face.join(timeout=0.01)
    cancelled, joined = asyncio.create_task(face.cancel(handle.id)), asyncio.create_task(face.join())
    await asyncio.sleep(0)
    assert not cancelled.done()
    work.let_go()
    assert await soon(cancelled) is False
    await soon(joined)
    assert await handle == Cancelled()
    assert await face.snapshot() == Snapshot()
    assert await face.cancel("sync") is False


@on_a_loop
async def test_both_faces_see_the_same(supervisor, face, body):
    handle = await face.submit(work := body(), slot="k")
    await inside(work)
    assert supervisor.snapshot().slot("k").owner_id == handle.id
    assert face.registry == supervisor.registry
    assert await asyncio.to_thread(supervisor.cancel, handle.id) is True


# -- the intake ----------------------------------------------------------------------------------------------------


@pytest.fixture
def full(start):
    """A face whose intake has one place, which is taken."""
    supervisor = start(limits=AdmissionLimits(intake=1))
    assert supervisor._core.intake.take()
    return AsyncSupervisor(supervisor._core)


async def waits(task, intake):
    while not intake._waiters:  # noqa: ASYNC110 - filled by the task
        await asyncio.sleep(0)
    assert not task.done()


@on_a_loop
async def test_submit_waits_where_the_intake_is_full_and_the_loop_goes_on(full):
    intake = full._core.intake
    with pytest.raises(IntakeFullError):
        full.try_submit(noop, slot="k")
    task = asyncio.create_task(full.submit(noop, slot="k"))
    await soon(waits(task, intake))
    intake.give()
    assert await soon(await soon(task)) == Completed("done")


@on_a_loop
async def test_cancelled_at_the_intake_it_has_submitted_nothing(full):
    intake = full._core.intake
    task = asyncio.create_task(full.submit(noop, slot="k"))
    await soon(waits(task, intake))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (intake.inside, len(intake._waiters)) == (1, 0)


@on_a_loop
async def test_cancelled_at_the_very_door_it_gives_its_place_back(full):
    intake = full._core.intake
    task = asyncio.create_task(full.submit(noop, slot="k"))
    await soon(waits(task, intake))
    intake.give()  # lets it in; it will hear of that in the loop's next round
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await asyncio.sleep(0)
    assert intake.inside == 0


@on_a_loop
async def test_cancelled_after_it_was_let_in_and_before_it_went_on_it_gives_its_place_back(full):
    intake = full._core.intake
    task = asyncio.create_task(full.submit(noop, slot="k"))
    await soon(waits(task, intake))
    intake.give()
    asyncio.get_running_loop().call_soon(task.cancel)  # behind the one that lets it in, before it goes on
    await asyncio.wait([task])
    await asyncio.sleep(0)
    if not task.cancelled():
        await soon(task.result())
    await soon(asyncio.to_thread(eventually, lambda: intake.inside == 0))
    assert intake.inside == 0


@on_a_loop
async def test_shutdown_turns_away_whoever_waits_at_the_intake(full):
    task = asyncio.create_task(full.submit(noop, slot="k"))
    await soon(waits(task, full._core.intake))
    assert (await soon(full.shutdown())).clean
    with pytest.raises(SupervisorClosedError):
        await task


def test_a_loop_that_is_closed_while_somebody_waits_at_the_intake_loses_no_place(full):
    intake, loop = full._core.intake, asyncio.new_event_loop()
    task = loop.create_task(full.submit(noop, slot="k"))
    loop.run_until_complete(waits(task, intake))
    loop.close()
    intake.give()
    assert intake.inside == 0
    with pytest.raises(RuntimeError, match="closed"):
        task.cancel()
    task._log_destroy_pending = False


# -- the end -------------------------------------------------------------------------------------------------------


@on_a_loop
async def test_every_caller_gets_the_same_report(supervisor, face, body):
    await face.submit(work := body(stubborn=True), slot="k")
    await inside(work)
    tasks = [asyncio.create_task(face.shutdown()) for _ in range(3)]
    other = call_in_thread(supervisor.shutdown)
    given_up = asyncio.create_task(face.shutdown())
    await asyncio.sleep(0)
    given_up.cancel()
    while not work.ctx.cancelled:  # noqa: ASYNC110 - set by another thread
        await asyncio.sleep(0)
    work.let_go()
    reports = [await soon(task) for task in tasks] + [await asyncio.to_thread(other), await face.shutdown()]
    assert reports == [ShutdownReport(clean=True, grace=1)] * 5


CALLS = {
    "submit": lambda face: face.submit(noop),
    "remove": lambda face: face.remove("name"),
    "cancel": lambda face: face.cancel("name"),
    "join": lambda face: face.join(),
}


@pytest.mark.parametrize("call", CALLS)
@on_a_loop
async def test_after_the_end_a_call_says_so(face, call):
    await face.shutdown()
    with pytest.raises(SupervisorClosedError):
        await CALLS[call](face)
    with pytest.raises(SupervisorClosedError):
        face.try_submit(noop)
    assert await face.tasks() == []
    assert await face.snapshot() == Snapshot()


@on_a_loop
async def test_who_joins_while_it_is_shut_down_is_answered(face, body):
    await face.submit(work := body(), slot="k")
    await inside(work)
    joined = asyncio.create_task(face.join())
    await asyncio.sleep(0)
    await soon(face.shutdown())
    await soon(joined)


@on_a_loop
async def test_a_body_that_ignores_the_end_is_warned_of(body, nothing_is_left):
    work = body(stubborn=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with Supervisor(grace=0.01) as supervisor:
            handle = await supervisor.submit(TaskSpec.once(work.coroutine, name="stubborn"), slot="k")
            await inside(work)
    assert ["stubborn" in str(warning.message) for warning in caught if warning.category is RuntimeWarning] == [True]
    assert await handle == ForceAborted()
    work.let_go()


@pytest.mark.parametrize(
    "call",
    [
        lambda face, _ctx: face.shutdown(),
        lambda face, _ctx: face.join(),
        lambda face, ctx: face.cancel(ctx.task_id),
    ],
    ids=["shutdown", "join", "cancel"],
)
@on_a_loop
async def test_a_body_can_not_wait_for_its_own_end(face, call):
    async def asks(ctx):
        await call(face, ctx)

    outcome = await soon(await face.submit(asks, slot="k"))
    assert isinstance(outcome.error, RuntimeError)


@on_a_loop
async def test_an_error_in_the_block_comes_out_of_it(nothing_is_left):
    async def fail():
        async with Supervisor():
            raise KeyError

    with pytest.raises(KeyError):
        await fail()


# -- neither world blocks the other --------------------------------------------------------------------------------


@on_a_loop
async def test_a_loop_that_is_blocked_delays_no_job(supervisor, face, body):
    handle = await face.submit(body(), slot="k")
    ran = threading.Event()
    supervisor.submit(lambda _ctx: ran.set(), slot="other")
    assert ran.wait(SOON)  # on the loop's own thread
    assert handle.cancel(wait=True, timeout=SOON)


@on_a_loop
async def test_a_loop_goes_on_while_a_body_blocks_its_thread(face, body):
    await face.submit(work := body(stubborn=True), slot="k")
    await inside(work)
    assert (await soon(face.snapshot())).running_count == 1


@on_a_loop
async def test_many_handles_may_be_awaited_at_once(face):
    handles = [await face.submit(noop, slot=f"s{number % 10}") for number in range(300)]
    assert set(await soon(asyncio.gather(*handles))) == {Completed("done")}


@pytest.mark.parametrize("call", [lambda face: face.join(-1), lambda face: face.cancel(5), lambda face: face.remove(5)])
@on_a_loop
async def test_a_wrong_argument_is_refused_and_named(face, call):
    with pytest.raises((TypeError, ValueError), match=r"timeout|target"):
        await call(face)


def test_a_thread_may_wait_for_what_a_loop_has_submitted(supervisor, face):
    handle = asyncio.run(face.submit(noop, slot="k"))
    assert outcome_of(handle) == Completed("done")
