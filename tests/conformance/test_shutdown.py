"""The one shutdown: who begins it, what it decides about what is on its way, and that everybody gets its report."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pykka
import pytest

from actors import AsyncSupervisor, Supervisor
from actors.messages import Add, Cancel, Shutdown
from actors.testing import scripted
from admission import (
    AdmissionLimits,
    Cancelled,
    Completed,
    ForceAborted,
    Panicked,
    RejectionKind,
    ShutdownReport,
    SupervisorClosedError,
    TaskExistsError,
    TaskSpec,
)
from admission.slot import SlotMachine
from tests.actors.support import Log, call_in_thread, eventually, outcome_of
from tests.conformance.direct import LONG, ask, is_pending, named, registry_of, slow_to_stop, tables_of, until
from tests.conformance.support import COOP, OK, gate, seeds, stubborn
from tests.conformance.verdicts import adapted


def verdicts(world):
    """Return how often each event about the end of everything was told."""
    return [world.count(event) for event in ("shutdown_requested", "all_stopped_within_grace", "grace_exceeded")]


def seqs(world, event):
    return [record["seq"] for record in world.of(event)]


# -- everybody gets the same report --------------------------------------------------------------------------------


@seeds
def test_s250_a_shutdown_that_all_follow_is_clean(simulate, seed):
    """Two bodies that stop when asked: the report is clean, told in order, and each run is told of as removed once."""
    world, supervisor = simulate(seed)
    handles = [supervisor.add(named("a", COOP)), supervisor.submit(named("b", COOP), slot="k")]
    world.run_until_idle()
    assert supervisor.shutdown() == ShutdownReport(clean=True, grace=5)
    assert verdicts(world) == [1, 1, 0]
    assert seqs(world, "shutdown_requested") < seqs(world, "all_stopped_within_grace")
    assert [world.count("task_removed", handle) for handle in handles] == [1, 1]
    assert {handle.outcome(0) for handle in handles} == {Cancelled()}


@seeds
def test_s251_all_callers_share_one_shutdown(simulate, seed):
    """Two callers wait until the body has left and get one report; a third, late, gets it too; all is told once."""
    world, supervisor = simulate(seed)
    supervisor.add(named("svc", slow_to_stop(3)))
    world.run_until_idle()
    callers = [ask(supervisor, Shutdown()), ask(supervisor, Shutdown())]
    world.advance(2.9)
    assert all(is_pending(caller) for caller in callers)
    first, second = (world.reply(caller) for caller in callers)
    assert first.clean
    assert second is first
    assert supervisor.shutdown() is first
    assert verdicts(world) == [1, 1, 0]


@seeds
def test_s252_all_callers_are_told_the_same_of_who_did_not_stop(simulate, seed):
    """Two bodies that do not stop: two callers and a late one get the same grace and the same names."""
    world, supervisor = simulate(seed, grace=0.05)
    supervisor.add_batch([named("b", stubborn(60)), named("a", stubborn(60))])
    world.run_until_idle()
    callers = [ask(supervisor, Shutdown()), ask(supervisor, Shutdown())]
    reports = [*(world.reply(caller) for caller in callers), supervisor.shutdown()]
    assert {(report.clean, report.grace, report.stuck) for report in reports} == {(False, 0.05, ("a", "b"))}
    assert verdicts(world) == [1, 0, 1]


def test_s253_a_caller_who_leaves_does_not_end_the_shutdown(start, body):
    """The first caller is cancelled while the body stops; the second one gets the clean report of the same shutdown."""
    supervisor, work = start(grace=LONG), body("late", stubborn=True)
    handle = supervisor.add(TaskSpec.once(work, name="svc"))
    assert work.is_inside()

    async def leave():
        face = AsyncSupervisor(supervisor._core)
        first = asyncio.ensure_future(face.shutdown())
        await until(lambda: work.ctx.cancelled)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.ensure_future(face.shutdown())
        await asyncio.sleep(0)
        assert not second.done()
        work.let_go()
        return await asyncio.wait_for(second, LONG)

    assert asyncio.run(leave()).clean
    assert handle.outcome(0) == Cancelled()


def test_s254_without_any_caller_the_grace_is_kept(runtime, body):
    """The only caller is cancelled and everybody lets go: the body keeps its grace, and its handle gets its end."""
    work = body(stubborn=True)

    async def leave():
        supervisor = Supervisor(grace=LONG, runtime=runtime).start()
        handle = supervisor.add(TaskSpec.once(work, name="svc"))
        only = asyncio.ensure_future(AsyncSupervisor(supervisor._core).shutdown())
        await until(lambda: work.ctx is not None and work.ctx.cancelled)
        only.cancel()
        with pytest.raises(asyncio.CancelledError):
            await only
        return handle, weakref.ref(supervisor._core)

    handle, core = asyncio.run(leave())
    assert eventually(lambda: gc.collect() is not None and core() is None)
    with pytest.raises(TimeoutError):
        handle.outcome(0.1)
    work.let_go()
    assert outcome_of(handle) == Cancelled()


@pytest.mark.parametrize("first", ["run", "shutdown"])
def test_s255_a_run_and_a_shutdown_are_one(start, body, first):
    """A shutdown ends the wait of a run, and a run that comes after it joins it: both get one report."""
    log, work = Log(), body(stubborn=True)
    supervisor = start(grace=LONG, logger=log)
    spec = TaskSpec.once(work, name="svc")
    if first == "run":
        running = call_in_thread(supervisor.run, [spec])
    else:
        supervisor.add(spec)
    assert work.is_inside()
    closing = call_in_thread(supervisor.shutdown)
    assert eventually(lambda: work.ctx.cancelled)
    if first == "shutdown":
        running = call_in_thread(supervisor.run)
    work.let_go()
    report = closing(LONG)
    assert report.clean
    assert running(LONG) is report
    assert log.events().count("shutdown_requested") == 1


# -- the grace -----------------------------------------------------------------------------------------------------


@seeds
def test_s256_who_does_not_stop_is_named(simulate, seed):
    """A body that does not stop within 200 ms is named in the report, which is not clean."""
    world, supervisor = simulate(seed, grace=0.2)
    handle = supervisor.submit(named("svc", stubborn(60)), slot="k")
    world.run_until_idle()
    report = supervisor.shutdown()
    assert (report.clean, report.grace, report.stuck, report.still_inside) == (False, 0.2, ("svc",), ("svc",))
    assert world.now == 0.2
    assert handle.outcome(0) == ForceAborted()


@seeds
def test_s257_who_stops_is_not_named(simulate, seed):
    """Of a body that stops and one that does not only the latter is named."""
    world, supervisor = simulate(seed)
    supervisor.add_batch([named("stops", COOP), named("stays", stubborn(60))])
    world.run_until_idle()
    assert supervisor.shutdown().stuck == ("stays",)


@seeds
def test_s258_without_a_grace_nothing_is_waited_for(simulate, seed):
    """With a grace of zero a body that does not stop is given up at once."""
    world, supervisor = simulate(seed, grace=0)
    supervisor.add(named("svc", stubborn(60)))
    world.run_until_idle()
    assert supervisor.shutdown().stuck == ("svc",)
    assert world.now == 0
    assert verdicts(world) == [1, 0, 1]


def test_s259_with_nothing_to_stop_it_is_clean(simulate):
    """With nothing registered the report is clean at once, and that is told."""
    world, supervisor = simulate()
    assert supervisor.shutdown().clean
    assert world.now == 0
    assert verdicts(world) == [1, 1, 0]


# -- what is on its way when it begins -----------------------------------------------------------------------------


@seeds
def test_s262_what_was_handed_in_before_is_decided(simulate, seed):
    """An add that was handed in before the shutdown is accepted and drained; one that comes later is refused."""
    world, supervisor = simulate(seed)
    added, closing = ask(supervisor, Add(named("early", COOP))), ask(supervisor, Shutdown())
    late = ask(supervisor, Add(named("late", COOP)))
    (handle,) = world.reply(added)
    with pytest.raises(SupervisorClosedError):
        world.reply(late)
    assert world.reply(closing).clean
    assert handle.outcome(0) == Cancelled()
    assert {record["task"] for record in world.of("task_added")} == {"early"}
    assert "late" not in {record.get("task") for record in world.records}


@seeds
def test_s263_a_batch_that_was_handed_in_before_is_decided(simulate, seed):
    """A batch before the shutdown is accepted, and each of it is told of as added and as removed."""
    world, supervisor = simulate(seed)
    added, closing = ask(supervisor, Add(*(named(name, COOP) for name in "abc"))), ask(supervisor, Shutdown())
    handles = world.reply(added)
    assert world.reply(closing).clean
    for handle in handles:
        assert world.count("task_added", handle) == world.count("task_removed", handle) == 1


@seeds
def test_s264_a_batch_that_is_refused_is_refused_for_its_own_reason(simulate, seed):
    """A batch before the shutdown that names a task twice is refused for that, not for the shutdown."""
    world, supervisor = simulate(seed)
    added, closing = ask(supervisor, Add(*(named(name, COOP) for name in "abb"))), ask(supervisor, Shutdown())
    with pytest.raises(TaskExistsError):
        world.reply(added)
    assert world.reply(closing).clean
    assert world.count("task_add_failed") == 3


@adapted("Who waits for a place waits at the intake of submissions; an add or a batch never does.", rule="dropped")
def test_s265_who_waits_for_a_place_does_not_hold_it_up(start, body):
    """Callers who wait for a place when shutdown begins get a closed error, silently, and it is not delayed."""
    log, work = Log(), body()
    supervisor = start(limits=AdmissionLimits(intake=1), logger=log, grace=LONG)
    assert supervisor._core.intake.take()
    waiting = [call_in_thread(supervisor.submit, TaskSpec.once(work, name="svc"), slot="k") for _ in range(3)]
    assert eventually(lambda: len(supervisor._core.intake._waiters) == 3)
    assert call_in_thread(supervisor.shutdown)(LONG).clean
    for join in waiting:
        with pytest.raises(SupervisorClosedError):
            join()
    assert work.runs == 0
    assert {fields.get("task") for _, fields in log.records} == {None}


@adapted("The report is not clean, and the same for every caller; nothing is raised.", rule="report")
@seeds
def test_s266_a_drain_that_fails_is_brought_to_its_end(monkeypatch, simulate, seed):
    """A fault in the drain: all that follows is done nevertheless, and everybody learns that it was not clean."""

    def fail(_machine, _deadline):
        raise MemoryError

    world, supervisor = simulate(seed)
    handle = supervisor.submit(named("svc", COOP), slot="k")
    world.run_until_idle()
    monkeypatch.setattr(SlotMachine, "drain", fail)
    report = supervisor.shutdown()
    assert not report.clean
    assert isinstance(handle.outcome(0), Panicked)
    assert world.count("runtime_failure") == 1
    assert world.records[-1]["event"] == "shutdown_finished"
    assert supervisor.shutdown() is report
    with pytest.raises(SupervisorClosedError):
        supervisor.add(named("late", OK))


def test_s268_adds_that_cross_a_shutdown_are_accepted_or_refused(start):
    """Of 150 adds at the moment of the shutdown each one is accepted, with an outcome, or refused as closed."""
    supervisor, barrier = start(grace=LONG), threading.Barrier(151)

    def add(number):
        barrier.wait(LONG)
        try:
            return supervisor.add(TaskSpec.once(lambda ctx: ctx.wait(), name=f"n{number}"))
        except SupervisorClosedError:
            return None

    def close():
        barrier.wait(LONG)
        return supervisor.shutdown()

    adding, closing = [call_in_thread(add, number) for number in range(150)], call_in_thread(close)
    assert closing(LONG).clean
    accepted = [handle for handle in (join(LONG) for join in adding) if handle is not None]
    assert {handle.outcome(0) for handle in accepted} <= {Cancelled()}


@seeds
def test_s269_what_waits_in_line_never_starts(simulate, seed):
    """A submission behind an owner is turned away by the shutdown; its body is not entered."""
    world, supervisor = simulate(seed)
    owner, waiting = (supervisor.submit(named(name, COOP), slot="k") for name in ("owner", "waiting"))
    world.run_until_idle()
    assert supervisor.shutdown().clean
    assert owner.outcome(0) == Cancelled()
    assert waiting.outcome(0).kind is RejectionKind.SHUTTING_DOWN
    assert world.count("body_entered") == 1


class Hostile:
    """A value of a user that can not be shown, compared or asked for its truth."""

    def __repr__(self):
        raise RuntimeError("not to be touched")

    __str__ = __eq__ = __bool__ = __len__ = __repr__
    __hash__ = None


@seeds
def test_s270_what_has_not_been_looked_at_is_turned_away(simulate, seed):
    """Submissions, one with a hostile value, and a cancellation that nobody has come to yet: all are settled."""
    world, supervisor = simulate(seed)
    registry = registry_of(supervisor)
    owner = supervisor.submit(scripted(slow_to_stop(3)), slot="k")
    world.run_until_idle()
    hostile = TaskSpec.once(scripted(OK), args=(Hostile(),), name="hostile")
    buffered = [supervisor.submit(hostile, slot="k"), supervisor.submit(scripted(OK), slot="k")]
    cancelling = ask(supervisor, Cancel(owner.id))
    ask(supervisor, Shutdown())  # whose caller has gone
    closing = ask(supervisor, Shutdown())
    assert not any(handle.done() for handle in buffered)
    world.advance(2.9)
    assert is_pending(closing)
    assert world.reply(closing).clean
    assert [handle.outcome(0).kind for handle in buffered] == [RejectionKind.SHUTTING_DOWN] * 2
    with pytest.raises(SupervisorClosedError):
        world.reply(cancelling)
    assert set(tables_of(registry).values()) == {0}
    assert registry.slots == {}
    with pytest.raises(SupervisorClosedError):
        supervisor.submit(scripted(OK), slot="k")


@seeds
def test_s271_a_run_returns_after_the_slots(simulate, seed):
    """A run that is over by itself returns only when what slots still hold is over too; then nothing is taken."""
    world, supervisor = simulate(seed)
    owner, waiting = (supervisor.submit(scripted(gate(3)), slot="k") for _ in range(2))
    assert supervisor.run([named("quick", OK)]).clean
    assert world.now == 6
    assert owner.outcome(0) == waiting.outcome(0) == Completed("ok")
    with pytest.raises(SupervisorClosedError):
        supervisor.submit(scripted(OK), slot="k")


@seeds
def test_s272_what_was_handed_in_before_an_abandon_is_decided(simulate, seed):
    """An add before the registry is stopped is accepted and ended without a grace; after it nothing can be sent."""
    world, supervisor = simulate(seed)
    registry = supervisor.registry
    added, stopped = ask(supervisor, Add(named("svc", COOP))), registry.stop(block=False)
    (handle,) = world.reply(added)
    world.advance(1)
    assert stopped.get(timeout=0)
    assert world.of("shutdown_finished")[0]["mono"] == 0
    assert isinstance(handle.outcome(0), Cancelled | ForceAborted)
    assert world.count("task_added", handle) == 1
    assert verdicts(world) == [0, 0, 0]
    with pytest.raises(pykka.ActorDeadError):
        registry.tell(Add(named("late", OK)))
    with pytest.raises(SupervisorClosedError):
        supervisor.add(named("late", OK))
