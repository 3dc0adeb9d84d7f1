"""`run`, `run_until`, `run_with_os_signals`: a batch from its start to the shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from actors import Supervisor
from actors.testing import Script, Simulation, scripted
from admission import (
    AdmissionLimits,
    AlreadyRunningError,
    Cancelled,
    Completed,
    ResourceLimitError,
    SupervisorClosedError,
    TaskExistsError,
    TaskSpec,
)
from tests.actors.support import SOON, Log, call_in_thread, eventually, noop, outcome_of


@pytest.fixture
def fresh(nothing_is_left):
    made = []

    def make(**settings):
        settings.setdefault("grace", 1)
        made.append(Supervisor(**settings))
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.shutdown()


@pytest.fixture
def signals():
    """Whatever a test does to signal handlers is undone."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
    former = {number: signal.getsignal(number) for number in numbers}
    yield former
    for number, handler in former.items():
        signal.signal(number, handler)


def events(log):
    return [event for event in log.events() if "stopped" in event or "requested" in event or "exceeded" in event]


def test_run_returns_when_all_of_the_batch_have_ended(fresh):
    log, ran = Log(), []
    supervisor = fresh(logger=log)
    report = supervisor.run([TaskSpec.once(lambda _ctx, n=n: ran.append(n), name=f"t{n}") for n in range(3)])
    assert report.clean
    assert sorted(ran) == [0, 1, 2]
    assert "all_stopped_within_grace" in events(log)
    assert "shutdown_requested" not in events(log)
    with pytest.raises(SupervisorClosedError):
        supervisor.submit(noop)


def test_run_of_nothing_returns_at_once(fresh):
    assert fresh().run().clean


def test_run_waits_for_what_comes_meanwhile(fresh, body):
    supervisor = fresh()
    first, second = body(), body("late")
    running = call_in_thread(supervisor.run, [first])
    assert first.is_inside()
    late = supervisor.submit(second, slot="k")
    first.let_go()
    assert second.is_inside()
    second.let_go()
    assert running().clean
    assert late.outcome() == Completed("late")


def test_run_does_not_raise_for_tasks_that_fail(fresh):
    def fails(_ctx):
        raise ValueError("boom")

    assert fresh().run([fails, noop]).clean


def test_only_one_run_ever(fresh):
    supervisor = fresh()
    supervisor.run()
    for call in (supervisor.run, supervisor.run_with_os_signals, lambda: supervisor.run_until([], threading.Event())):
        with pytest.raises(AlreadyRunningError, match="add"):
            call()


def test_a_batch_that_is_too_large_leaves_the_run_unclaimed(fresh):
    supervisor = fresh(limits=AdmissionLimits(max_tasks=1))
    with pytest.raises(ResourceLimitError):
        supervisor.run([noop, noop])
    assert supervisor.run([noop]).clean


def test_a_batch_with_a_taken_name_leaves_the_supervisor_working(fresh):
    supervisor = fresh()
    twice = [TaskSpec.once(noop, name="dup"), TaskSpec.once(noop, name="dup")]
    with pytest.raises(TaskExistsError):
        supervisor.run(twice)
    assert outcome_of(supervisor.submit(noop, slot="k")) == Completed("done")
    with pytest.raises(AlreadyRunningError):
        supervisor.run([noop])


def test_somebody_elses_shutdown_ends_the_run(fresh, body):
    supervisor = fresh()
    running = call_in_thread(supervisor.run, [work := body()])
    assert work.is_inside()
    report = supervisor.shutdown()
    assert running() == report


def test_after_a_shutdown_run_gives_the_report(fresh):
    supervisor = fresh()
    report = supervisor.shutdown()
    assert supervisor.run([noop]) == report


def test_run_can_not_be_called_from_a_body(fresh):
    supervisor = fresh().start()
    error = outcome_of(supervisor.submit(lambda _ctx: supervisor.run(), slot="k")).error
    assert isinstance(error, RuntimeError)
    assert "run" in str(error)


def test_run_until_ends_with_its_stop(fresh, body):
    supervisor, stop = fresh(), threading.Event()
    running = call_in_thread(supervisor.run_until, [work := body()], stop)
    assert work.is_inside()
    stop.set()
    assert running().clean
    assert work.left.is_set()


def test_run_until_ends_by_itself_where_stop_never_comes(fresh):
    stop = threading.Event()
    assert fresh().run_until([noop], stop).clean
    assert eventually(lambda: "slotkeeper-stop" not in [thread.name for thread in threading.enumerate()])


def test_a_stop_that_is_set_from_the_start_lets_nothing_begin(fresh, body):
    stop = threading.Event()
    stop.set()
    assert fresh().run_until([work := body()], stop).clean
    assert work.runs == 0


def test_the_first_signal_begins_the_shutdown_and_handlers_are_restored(fresh, body, signals):
    supervisor, work = fresh(), body()

    def send():
        assert work.is_inside()
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    assert supervisor.run_with_os_signals([work]).clean
    sender.join(SOON)
    assert {number: signal.getsignal(number) for number in signals} == signals


def test_signals_need_the_main_thread(fresh):
    supervisor = fresh()
    with pytest.raises(RuntimeError, match="main thread"):
        call_in_thread(supervisor.run_with_os_signals, [noop])()
    assert supervisor.run([noop]).clean


@pytest.mark.parametrize("seed", range(20))
def test_a_run_in_a_simulation(seed):
    simulation = Simulation(seed)
    supervisor = simulation.supervisor()
    works = [TaskSpec.once(scripted(Script(seconds=number)), name=f"t{number}") for number in range(3)]
    assert supervisor.run(works).clean
    kinds = [record["event"] for record in simulation.records]
    assert kinds.count("task_removed") == 3
    assert kinds[-2:] == ["all_stopped_within_grace", "shutdown_finished"]


def test_the_same_on_an_event_loop(nothing_is_left):
    async def main():
        async with Supervisor(grace=1) as supervisor:
            return await supervisor.run([noop, noop])

    assert asyncio.run(main()).clean


def test_on_an_event_loop_stop_ends_it(nothing_is_left):
    async def main():
        stop = asyncio.Event()
        async with Supervisor(grace=1) as supervisor:
            prepared = supervisor.prepare(lambda ctx: ctx.wait(SOON) and ctx.raise_if_cancelled(), slot="k")
            handle = await prepared.submit()
            asyncio.get_running_loop().call_soon(stop.set)
            report = await supervisor.run_until([], stop)
            return report, await handle, handle.id == prepared.id

    report, outcome, same = asyncio.run(main())
    assert (report.clean, outcome, same) == (True, Cancelled(), True)


def test_on_an_event_loop_a_signal_ends_it(nothing_is_left, signals):
    async def main():
        async with Supervisor(grace=1) as supervisor:

            async def body(_ctx):
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.Event().wait()

            return await supervisor.run_with_os_signals([body])

    assert asyncio.run(main()).clean
    assert {number: signal.getsignal(number) for number in signals} == signals


def test_on_an_event_loop_there_is_one_run_too(nothing_is_left):
    async def main():
        async with Supervisor(grace=1, limits=AdmissionLimits(max_tasks=1)) as supervisor:
            with pytest.raises(ResourceLimitError):
                await supervisor.run([noop, noop])
            await supervisor.run([noop])
            with pytest.raises(AlreadyRunningError):
                await supervisor.run()
            with pytest.raises(SupervisorClosedError):
                await supervisor.add(noop)

    asyncio.run(main())
