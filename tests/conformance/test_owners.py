"""Who holds a supervisor: making and starting one, forgetting it, and what is left when it has ended."""

from __future__ import annotations

import gc
import threading
import weakref

import pykka
import pytest

from actors import AsyncSupervisor, RegistryActor, Supervisor
from actors.messages import Add, Shutdown
from actors.testing import scripted
from admission import (
    AdmissionLimits,
    Cancelled,
    Completed,
    ForceAborted,
    RejectionKind,
    ResourceLimitError,
    TaskDefaults,
    TaskSpec,
)
from admission.events import EventKind
from tests.actors.support import SOON, Log, call_in_thread, eventually, noop, our_threads, outcome_of
from tests.conformance.direct import LONG, named, registry_of
from tests.conformance.support import COOP, OK, seeds, stubborn
from tests.conformance.verdicts import adapted


def test_s280_one_is_made_anywhere(nothing_is_left):
    """A supervisor with all that belongs to it is made without anything that runs, and works when it is started."""
    told, limits = [], AdmissionLimits(max_slots=1)
    supervisor = Supervisor(limits=limits, defaults=TaskDefaults(), logger=Log(), subscribers=[told.append], grace=1)
    assert our_threads() == []
    assert pykka.ActorRegistry.get_all() == []
    with supervisor:
        assert outcome_of(supervisor.add(noop)) == Completed("done")
        assert outcome_of(supervisor.submit(noop)) == Completed("done")
    assert EventKind.TASK_ADDED in {event.kind for event in told}


@pytest.mark.parametrize("kept", ["registry", "face"])
def test_s282_whoever_is_left_can_go_on(runtime, kept):
    """The supervisor and one of two that stand for it are forgotten: the other one works."""
    supervisor = Supervisor(runtime=runtime, grace=1).start()
    others = [supervisor.registry, AsyncSupervisor(supervisor._core)]
    other = others.pop(0 if kept == "registry" else 1)
    del supervisor, others
    gc.collect()
    registry = other if kept == "registry" else other.registry
    (handle,) = registry.ask(Add(TaskSpec.once(noop)), timeout=SOON)
    assert outcome_of(handle) == Completed("done")


def test_s283_what_is_started_works_without_a_name_for_it(runtime):
    """A supervisor that nobody keeps is held by what was started: its registry works."""
    registry = Supervisor(runtime=runtime, grace=1).start().registry
    gc.collect()
    (handle,) = registry.ask(Add(TaskSpec.once(noop)), timeout=SOON)
    assert outcome_of(handle) == Completed("done")
    assert registry.ask(Shutdown(), timeout=SOON).clean


@adapted("Forgetting a supervisor ends nothing; leaving its block does.", rule="leaving")
def test_s284_at_the_end_of_the_block_what_runs_is_asked_to_stop(runtime, body):
    """A forgotten supervisor goes on; one whose block is left asks its bodies to stop, and says who does not."""
    work = body()
    handle = Supervisor(runtime=runtime, grace=1).start().add(TaskSpec.once(work, name="forgotten"))
    gc.collect()
    assert work.is_inside()
    assert not work.ctx.cancelled
    work.let_go()
    assert outcome_of(handle) == Completed(None)
    listens, ignores = body(), body(stubborn=True)

    def block():
        with Supervisor(runtime=runtime, grace=0.02) as supervisor:
            handles = [supervisor.add(TaskSpec.once(work, name="svc" + str(work.stubborn))) for work in works]
            assert all(work.is_inside() for work in works)
        return [handle.outcome(0) for handle in handles]

    works = [listens, ignores]
    with pytest.warns(RuntimeWarning, match="svcTrue"):
        assert block() == [Cancelled(), ForceAborted()]
    assert ignores.ctx.cancelled


def test_s285_a_shutdown_that_waits_needs_no_owner(nothing_is_left, body):
    """While a shutdown waits for a body everybody else lets go of the supervisor: it ends cleanly all the same."""
    supervisor, work = Supervisor(grace=LONG).start(), body(stubborn=True)
    handle = supervisor.add(TaskSpec.once(work, name="svc"))
    assert work.is_inside()
    closing = call_in_thread(supervisor.shutdown)
    assert eventually(lambda: work.ctx.cancelled)
    del supervisor
    gc.collect()
    work.let_go()
    assert closing(LONG).clean
    assert handle.outcome(0) == Cancelled()


@adapted("It is leaving the block that ends it.", rule="leaving")
def test_s286_at_the_end_of_the_block_what_waits_is_turned_away(nothing_is_left, body):
    """What waits behind an owner when the block is left is turned away and never runs."""
    work, waits = body(), body()
    with Supervisor(grace=LONG) as supervisor:
        owner, waiting = supervisor.submit(work, slot="k"), supervisor.submit(waits, slot="k")
        assert work.is_inside()
    assert owner.outcome(0) == Cancelled()
    assert waiting.outcome(0).kind is RejectionKind.SHUTTING_DOWN
    assert waits.runs == 0


@adapted("What is let go of is what has been shut down.", rule="leaving")
def test_s287_nothing_inside_is_kept(nothing_is_left, body):
    """After the end and the last reference nothing of the supervisor is left: nobody keeps anybody in a ring."""
    supervisor, work = Supervisor(grace=LONG).start(), body()
    handles = [supervisor.submit(work, slot="k"), supervisor.add(TaskSpec.once(noop))]
    assert work.is_inside()
    registry = registry_of(supervisor)
    slot = registry.slots["k"].ref._actor_weakref()
    inside = [weakref.ref(part) for part in (supervisor._core, registry, slot, registry.publisher)]
    supervisor.shutdown()
    del supervisor, registry, slot
    assert eventually(lambda: gc.collect() is not None and [part() for part in inside if part() is not None] == [])
    assert all(handle.done() for handle in handles)


def test_s288_whoever_starts_it_returns_when_it_has_started(monkeypatch, nothing_is_left):
    """Two threads start it at the same time: both return only after the one start, and both can use it."""
    starting, go_on, started = threading.Event(), threading.Event(), []
    original = RegistryActor.start.__func__

    def slow(cls, *args, **kwargs):
        starting.set()
        go_on.wait(LONG)
        started.append(original(cls, *args, **kwargs))
        return started[-1]

    monkeypatch.setattr(RegistryActor, "start", classmethod(slow))
    supervisor = Supervisor(grace=1)

    def use():
        supervisor.start()
        return len(started), supervisor.add(noop)

    users = [call_in_thread(use), call_in_thread(use)]
    assert starting.wait(SOON)
    for join in users:
        with pytest.raises(AssertionError, match="still not back"):
            join(0.02)
    go_on.set()
    answers = [join(LONG) for join in users]
    assert [number for number, _ in answers] == [1, 1]
    assert {outcome_of(handle) for _, handle in answers} == {Completed("done")}
    assert supervisor.shutdown().clean


@adapted("`max_tasks` is the only budget: registered runs, and bodies that linger.", rule="defaults")
@seeds
def test_s317_what_has_not_left_counts(simulate, seed):
    """Registered runs and bodies that linger count together, and stop to count when they have left."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(max_tasks=2), grace=1)
    lingers, listens = supervisor.add(named("lingers", stubborn(10))), supervisor.submit(scripted(COOP), slot="k")
    world.run_until_idle()
    lingers.cancel()
    assert lingers.outcome() == ForceAborted()
    with pytest.raises(ResourceLimitError):
        supervisor.add(named("third", OK))
    assert listens.cancel(wait=True)
    assert supervisor.add(named("third", OK)).outcome() == Completed("ok")
    with pytest.raises(ResourceLimitError):
        supervisor.add_batch([named("third", OK), named("fourth", OK)])
    world.advance(10)
    third, fourth = supervisor.add_batch([named("third", OK), named("fourth", OK)])
    assert third.outcome() == fourth.outcome() == Completed("ok")
