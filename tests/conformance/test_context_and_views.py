"""What a body can do with its context, and what a supervisor lists: who is registered, who is inside a body."""

from __future__ import annotations

import asyncio

import pytest

from actors import AsyncTaskContext, TaskContext
from actors.messages import AttemptEnded, AttemptReleased, AttemptStarted, Released
from actors.runtime import deliver
from actors.testing import Script, scripted
from admission import AdmissionLimits, Backoff, TaskCancelledError, TaskSpec
from admission.run import AttemptReturned
from tests.actors.support import SOON, call_in_thread, outcome_of
from tests.conformance.direct import named
from tests.conformance.support import COOP, OK, seeds, slot_of

contexts = pytest.mark.parametrize("make", [TaskContext.detached, AsyncTaskContext.detached], ids=["thread", "loop"])


def run_in(ctx, function):
    """Run a function until its context is cancelled: in a thread, or as a coroutine on a loop."""
    if isinstance(ctx, TaskContext):
        return ctx.run_until_cancelled(function)

    async def awaited():
        return function()

    async def run():
        return await ctx.run_until_cancelled(awaited())

    return asyncio.run(run())


def wait_in(ctx):
    """Wait for the cancellation of a context."""
    if isinstance(ctx, TaskContext):
        return ctx.wait(SOON)

    async def wait():
        return await ctx.wait(SOON)

    return asyncio.run(wait())


# -- the context ---------------------------------------------------------------------------------------------------


@contexts
def test_s033_run_until_cancelled_too_late(make):
    """In a context that is cancelled already, what should run until then is never started."""
    started = []
    with pytest.raises(TaskCancelledError):
        run_in(make(cancelled=True), lambda: started.append(True))
    assert started == []


@contexts
def test_s034_run_until_cancelled(make):
    """What ends before the cancellation gives its value; a cancellation in the middle of it is raised."""
    ctx = make()
    assert run_in(ctx, lambda: "value") == "value"
    with pytest.raises(TaskCancelledError):
        run_in(ctx, ctx.cancel)


@contexts
def test_s035_parent_and_child(make):
    """Cancelling a parent reaches the child; cancelling a child does not reach the parent."""
    parent = make()
    child = parent.child()
    child.cancel()
    assert (child.cancelled, parent.cancelled) == (True, False)
    child = parent.child()
    parent.cancel()
    assert (child.cancelled, parent.cancelled) == (True, True)


@contexts
def test_s036_many_hold_one_context(make):
    """All who hold a context share its state, are woken when it is cancelled, and may wait for that again."""
    ctx = make()
    joins = [call_in_thread(wait_in, ctx) for _ in range(3)]
    call_in_thread(ctx.cancel)()
    assert [join() for join in joins] == [True, True, True]
    assert (wait_in(ctx), wait_in(ctx), ctx.cancelled) == (True, True, True)


# -- views ---------------------------------------------------------------------------------------------------------


@seeds
def test_s311_list(simulate, seed):
    """Three added runs are listed with their names, ascending by id."""
    _, supervisor = simulate(seed)
    handles = [supervisor.add(named(name, COOP)) for name in ("z", "x", "y")]
    assert supervisor.tasks() == [(handle.id, name) for handle, name in zip(handles, ("z", "x", "y"), strict=True)]


@seeds
def test_s312_alive(simulate, seed):
    """Of runs that are inside their bodies and one that has ended, those that are inside are alive, sorted."""
    world, supervisor = simulate(seed)
    for name in ("live-b", "live-a"):
        supervisor.add(named(name, COOP))
    once = supervisor.add(named("once", OK))
    once.outcome()
    world.run_until_idle()
    assert supervisor.alive() == ("live-a", "live-b")


def test_s313_many_short_runs(supervisor):
    """After three hundred short runs nobody is listed or alive."""
    handles = [supervisor.add(TaskSpec.once(lambda _ctx: None, name=f"short-{number}")) for number in range(300)]
    for handle in handles:
        outcome_of(handle, 10 * SOON)
    assert supervisor.tasks() == []
    assert supervisor.alive() == ()


@seeds
def test_s314_what_comes_late_of_an_old_run(simulate, seed):
    """Whatever is told of an old run, late or twice, changes nothing in the views of a new one of the same name."""
    world, supervisor = simulate(seed)
    old = supervisor.submit(named("svc", OK), slot="s")
    old.outcome()
    new = supervisor.submit(named("svc", COOP), slot="s")
    world.run_until_idle()
    before = supervisor.tasks(), supervisor.alive(), supervisor.snapshot().slot("s").owner_id
    for message in (
        AttemptStarted(old.id, 1, world.now),
        AttemptEnded(old.id, 1, AttemptReturned(None), released=True, at=world.now),
        AttemptReleased(old.id, 1, world.now),
        AttemptReleased(new.id, 0, world.now),
    ):
        deliver(slot_of(supervisor, "s"), message)
    deliver(supervisor.registry, Released(old.id))
    world.run_until_idle()
    assert before == ([(new.id, "svc")], ("svc",), new.id)
    assert (supervisor.tasks(), supervisor.alive(), supervisor.snapshot().slot("s").owner_id) == before


@seeds
def test_s315_registered_and_not_alive(simulate, seed):
    """A run that waits for a permit, or for its next attempt, is listed and not alive."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(max_concurrent=1))
    failing = TaskSpec.restartable(scripted(Script(0, ValueError())), backoff=Backoff.constant(60), name="failing")
    specs = [failing, TaskSpec.periodic(scripted(OK), every=60, name="periodic"), named("holder", COOP)]
    listed = []
    for spec in (*specs, named("waiting", COOP)):
        listed.append((supervisor.add(spec).id, spec.name))
        world.advance(1)  # one after the other: there is one permit
    assert supervisor.tasks() == listed
    assert supervisor.alive() == ("holder",)
