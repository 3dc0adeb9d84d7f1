"""Handles: whoever waits for a run gets its outcome, whatever happens to everybody else."""

from __future__ import annotations

import gc

import pytest

from actors import RegistryActor, Submit
from actors.messages import Add
from actors.testing import Script, scripted
from admission import (
    Backoff,
    Cancelled,
    Completed,
    Failed,
    Fatal,
    FatalError,
    ForceAborted,
    OutcomeKind,
    RejectionKind,
    Submission,
    TaskExistsError,
    TaskSpec,
)
from tests.actors.support import outcome_of
from tests.conformance.direct import ask, named, registry_of
from tests.conformance.support import COOP, OK, World, gate, seeds, stubborn
from tests.conformance.verdicts import adapted


@seeds
@pytest.mark.parametrize("call", ["add", "submit", "try_submit"])
def test_s130_a_handle_brings_the_outcome(simulate, seed, call):
    """The handle of a run that ends well says so, under the id that all events about it carry."""
    world, supervisor = simulate(seed)
    handle = getattr(supervisor, call)(named("svc", OK))
    assert handle.outcome() == Completed("ok")
    assert handle.outcome().label is OutcomeKind.COMPLETED
    world.run_until_idle()
    about = {record["id"] for record in world.records if record.get("task") == "svc"}
    assert about == {handle.id}


@seeds
def test_s131_a_permanent_failure_keeps_its_exit_code(simulate, seed):
    """A body that fails for good with an exit code gives a fatal outcome with that code and its reason."""
    world, supervisor = simulate(seed)
    error = FatalError("out of memory", exit_code=137)
    handle = supervisor.add(named("svc", Script(0, error)))
    outcome = handle.outcome()
    assert isinstance(outcome, Fatal)
    assert (outcome.exit_code, outcome.error) == (137, error)
    assert "out of memory" in outcome.reason
    (finished,) = world.of("task_finished", handle)
    assert (finished["exit_code"], finished["reason"]) == (137, outcome.reason)


@seeds
def test_s132_a_run_that_repeats_has_no_outcome(simulate, seed):
    """A run that repeats every 20 ms has no outcome after 200 ms."""
    world, supervisor = simulate(seed)
    handle = supervisor.add(TaskSpec.periodic(scripted(OK), 0.02, name="tick"))
    with pytest.raises(TimeoutError):
        handle.outcome(0.2)
    assert not handle.done()
    assert world.count("attempt_succeeded", handle) > 5


@seeds
def test_s133_a_cancelled_run_has_that_outcome(simulate, seed):
    """A body that stops when its run is cancelled gives the outcome of a cancellation."""
    _, supervisor = simulate(seed)
    handle = supervisor.add(named("svc", COOP))
    assert supervisor.cancel(handle.id) is True
    assert handle.outcome(0) == Cancelled()


def test_s134_what_is_refused_has_no_handle(simulate):
    """Adding a name that is taken raises: there is no handle, and nothing that one could wait for."""
    world, supervisor = simulate()
    supervisor.add(named("svc", COOP))
    refused = ask(supervisor, Add(named("svc", OK)))
    with pytest.raises(TaskExistsError):
        world.reply(refused)
    assert world.count("attempt_starting") == 1


@seeds
def test_s135_a_run_that_stops_at_shutdown_is_cancelled(simulate, seed):
    """A body that stops when shutdown asks it to gives the outcome of a cancellation."""
    world, supervisor = simulate(seed)
    handle = supervisor.add(named("svc", COOP))
    world.run_until_idle()
    assert supervisor.shutdown().clean
    assert handle.outcome(0) == Cancelled()


@seeds
def test_s136_a_handle_that_is_forgotten_changes_nothing(simulate, seed):
    """A run whose handle is dropped goes on, and can be cancelled by its name."""
    world, supervisor = simulate(seed)
    supervisor.add(named("svc", COOP))
    world.run_until_idle()
    gc.collect()
    assert supervisor.alive() == ("svc",)
    assert supervisor.cancel("svc") is True


def test_s137_an_outcome_does_not_pass_through_the_observers(start, lagging):
    """With a subscriber that is stuck and a queue of two, a run that fails many times brings its handle the failure."""
    supervisor, attempts = start(), []
    subscription = supervisor.subscribe(lagging, capacity=2)

    def fails(ctx):
        attempts.append(ctx.attempt)
        raise ValueError("no")

    handle = supervisor.add(TaskSpec.restartable(fails, max_retries=5, backoff=Backoff.constant(0)))
    assert isinstance(outcome_of(handle), Failed)
    assert attempts == [1, 2, 3, 4, 5, 6]
    assert lagging.told == 0
    assert subscription.dropped > 0


@seeds
def test_s138_a_run_that_does_not_stop_at_shutdown_is_given_up(simulate, seed):
    """A body that ignores the shutdown is named as stuck after the grace, and its handle says that it was given up."""
    world, supervisor = simulate(seed, grace=0.15)
    handle = supervisor.add(named("svc", stubborn(60)))
    world.run_until_idle()
    report = supervisor.shutdown()
    assert (report.clean, report.stuck, report.grace) == (False, ("svc",), 0.15)
    assert world.count("grace_exceeded") == 1
    assert handle.outcome(0) == ForceAborted()


@adapted("No sender of an outcome can vanish: what can not be delivered brings the handle its outcome.", rule="watched")
def test_s139_no_handle_waits_for_somebody_who_has_gone():
    """Whoever would give the outcome is destroyed: the handle gets the body's outcome, or that nothing was taken."""
    with World() as world:
        registry = RegistryActor.start(world, grace=1)
        running = world.reply(registry.ask(Submit(Submission(scripted(gate(3)), slot="k")), block=False))
        waiting = world.reply(registry.ask(Submit(Submission(scripted(OK), slot="k")), block=False))
        world.run_until_idle()
        registry._actor_weakref().end()
        assert running.outcome() == Completed("ok")
        assert waiting.outcome().kind is RejectionKind.SHUTTING_DOWN


@seeds
@pytest.mark.parametrize("call", ["add", "submit"])
def test_s140_whoever_has_the_outcome_finds_the_id_gone(simulate, seed, call):
    """At the moment at which a handle has its outcome, its id is not listed any more."""
    _, supervisor = simulate(seed)
    for _ in range(5):
        handle = getattr(supervisor, call)(named("svc", gate(1)))
        handle.outcome()
        assert handle.id not in registry_of(supervisor).members  # at this moment, before anything else is done
        assert supervisor.tasks() == []
