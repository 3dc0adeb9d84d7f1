"""Removing and cancelling runs, and who of several that want a run gone has claimed it."""

from __future__ import annotations

import itertools
import threading

import pytest

from actors.messages import Add, BodyReturned, Cancel, Join, Remove
from actors.testing import Verdict, check
from actors.worker import WorkerActor
from admission import Cancelled, Completed, ForceAborted, Panicked, TaskId, TaskSpec
from admission.events import EventKind
from tests.actors.support import call_in_thread, eventually, noop, outcome_of
from tests.conformance.direct import (
    LONG,
    ask,
    is_pending,
    named,
    registry_of,
    slow_to_stop,
    tables_of,
)
from tests.conformance.support import COOP, COOP_CANCELLED, GRACE, OK, World, gate, seeds, stubborn

UNKNOWN = TaskId(10**9)
by_id_and_name = pytest.mark.parametrize("target", ["id", "name"])


def target_of(handle, target):
    return handle.id if target == "id" else "svc"


@pytest.fixture
def svc(simulate):
    """Makes a world in which a run named "svc" is inside its body."""

    def make(script, seed=0, **options):
        world, supervisor = simulate(seed, **options)
        handle = supervisor.add(named("svc", script))
        world.run_until_idle()
        return world, supervisor, handle

    return make


# -- remove --------------------------------------------------------------------------------------------------------


@seeds
def test_s103_a_removal_touches_one_run(simulate, seed):
    """Of two runs one is removed: it ends and is told of as removed, the other is still inside."""
    world, supervisor = simulate(seed)
    first, second = supervisor.add(named("a", COOP)), supervisor.add(named("b", COOP))
    assert supervisor.remove(first.id) is True
    assert first.outcome() == Cancelled()
    assert world.count("task_removed", first) == 1
    assert supervisor.tasks() == [(second.id, "b")]
    assert supervisor.alive() == ("b",)


def test_s104_a_run_that_has_ended_can_not_be_removed(simulate):
    """Removing an id that has ended says false, each time, and tells of no further removal."""
    world, supervisor = simulate()
    handle = supervisor.add(named("svc", OK))
    handle.outcome()
    assert [supervisor.remove(handle.id), supervisor.remove(handle.id)] == [False, False]
    assert world.count("task_removed", handle) == 1


@seeds
def test_s105_a_run_is_removed_by_its_name(svc, seed):
    """By name the first removal claims and the second does not; the run is listed until its body has left."""
    world, supervisor, handle = svc(gate(3), seed)
    assert [supervisor.remove("svc"), supervisor.remove("svc"), supervisor.remove("other")] == [True, False, False]
    assert supervisor.tasks() == [(handle.id, "svc")]
    assert handle.outcome() == Cancelled()
    assert world.now == 3
    assert supervisor.tasks() == []


def test_s106_of_many_removals_one_claims(start, body):
    """Of 32 removals of one run at the same time exactly one says true; the run is listed until its body has left."""
    supervisor, barrier, work = start(grace=LONG), threading.Barrier(32), body(stubborn=True)
    handle = supervisor.add(TaskSpec.once(work, name="svc"))
    assert work.is_inside()

    def remove():
        barrier.wait(LONG)
        return supervisor.remove(handle.id)

    claims = [join(LONG) for join in [call_in_thread(remove) for _ in range(32)]]
    assert claims.count(True) == 1
    assert supervisor.tasks() == [(handle.id, "svc")]
    work.let_go()
    assert outcome_of(handle) == Cancelled()
    assert supervisor.tasks() == []


@seeds
def test_s107_after_a_removal_others_join_its_end(svc, seed):
    """A removed run is not claimed again: a removal says false at once, a cancellation does when the run has ended."""
    world, supervisor, handle = svc(slow_to_stop(3), seed)
    assert supervisor.remove(handle.id) is True
    assert supervisor.remove(handle.id) is False
    cancelled, joined = ask(supervisor, Cancel(handle.id)), ask(supervisor, Join())
    world.advance(2.9)
    assert is_pending(cancelled)
    assert is_pending(joined)
    assert world.count("task_removed") == 0
    assert world.reply(cancelled) is False
    assert handle.done()
    world.reply(joined)
    assert world.now == 3


@seeds
def test_s108_a_removal_whose_caller_has_gone_goes_on(svc, seed):
    """Nobody waits for the answer of a removal: the run is cancelled, ends and is told of as removed."""
    world, supervisor, handle = svc(COOP, seed)
    supervisor.registry.tell(Remove(handle.id))
    assert handle.outcome() == Cancelled()
    assert world.count("task_removed", handle) == 1


def test_s109_removing_what_is_unknown_leaves_nothing_behind():
    """Removing an id that never was says false, and nothing waits afterwards."""
    with World() as world, world.supervisor() as supervisor:
        assert supervisor.remove(UNKNOWN) is False
        assert set(tables_of(registry_of(supervisor)).values()) == {0}


@seeds
def test_s110_a_removed_run_that_does_not_stop_is_given_up(svc, seed):
    """A removed body that does not stop is given up after the grace: one outcome, told once."""
    world, supervisor, handle = svc(stubborn(100), seed, grace=0.3)
    assert supervisor.remove(handle.id) is True
    assert handle.outcome() == ForceAborted()
    assert world.now == 0.3
    (finished,) = world.of("task_finished", handle)
    assert finished["outcome_kind"] == "outcome_force_aborted"
    assert world.count("task_removed", handle) == 1


@seeds
def test_s111_a_removal_by_name_finds_what_was_added_before_it(simulate, seed):
    """A removal by name that comes right behind the add of that name claims it, and tells of id and name."""
    world, supervisor = simulate(seed)
    added, removed = ask(supervisor, Add(named("svc", COOP))), ask(supervisor, Remove("svc"))
    assert world.reply(removed) is True
    (handle,) = world.reply(added)
    assert handle.outcome() == Cancelled()
    (requested,) = world.of("task_remove_requested")
    assert (requested["id"], requested["task"]) == (handle.id, "svc")
    assert "reason" not in requested


def test_the_log_of_a_removal_of_what_is_unknown_holds():
    """An id that never was has no end in the log, and the checker does not look for one."""
    with World() as world:
        with world.supervisor() as supervisor:
            supervisor.remove(UNKNOWN)
        assert check(world.records).verdict is Verdict.HOLDS


# -- cancel --------------------------------------------------------------------------------------------------------


@seeds
@by_id_and_name
def test_s112_a_run_is_cancelled_once(svc, seed, target):
    """The first cancellation of a run says true when it has ended, the second false, and so does an unknown one."""
    _, supervisor, handle = svc(COOP, seed)
    assert supervisor.cancel(target_of(handle, target)) is True
    assert handle.done()
    assert supervisor.alive() == ()
    assert supervisor.cancel(target_of(handle, target)) is False
    assert supervisor.cancel("unknown" if target == "name" else UNKNOWN) is False


def test_s113_of_many_cancellations_one_claims_and_all_wait(start, body):
    """Of 16 cancellations of one run at the same time exactly one says true, and all return after its end."""
    supervisor, barrier, work = start(grace=LONG), threading.Barrier(16), body(stubborn=True)
    handle = supervisor.add(TaskSpec.once(work, name="svc"))
    assert work.is_inside()

    def cancel():
        barrier.wait(LONG)
        claimed = supervisor.cancel(handle.id)
        return claimed, handle.done(), supervisor.tasks()

    waiting = [call_in_thread(cancel) for _ in range(16)]
    assert eventually(lambda: len(registry_of(supervisor).callers.get(handle.id, ())) == 16, LONG)
    assert not handle.done()
    work.let_go()
    answers = [join(LONG) for join in waiting]
    assert [claimed for claimed, _, _ in answers].count(True) == 1
    assert {(done, tuple(tasks)) for _, done, tasks in answers} == {(True, ())}


@seeds
def test_s114_each_of_many_runs_is_claimed_by_its_own_cancellation(simulate, seed):
    """128 runs are cancelled, each once: every cancellation claims, and nothing is listed afterwards."""
    world, supervisor = simulate(seed)
    handles = supervisor.add_batch([named(f"n{number}", COOP) for number in range(128)])
    replies = [ask(supervisor, Cancel(handle.id)) for handle in handles]
    assert all(world.reply(reply) is True for reply in replies)
    assert {handle.outcome() for handle in handles} == {Cancelled()}
    assert supervisor.tasks() == []


@seeds
def test_s115_a_cancellation_that_is_not_waited_for_stands(svc, seed):
    """A cancellation with no time to wait raises, and the body sees it; another one joins the end and says false."""
    world, supervisor, handle = svc(slow_to_stop(3), seed)
    with pytest.raises(TimeoutError):
        supervisor.cancel(handle.id, timeout=0)
    assert supervisor.tasks() == [(handle.id, "svc")]
    second = ask(supervisor, Cancel(handle.id))
    world.advance(2.9)
    assert is_pending(second)
    assert world.reply(second) is False
    assert world.now == 3  # it was asked to stop when the first call was made
    assert supervisor.tasks() == []


@seeds
@by_id_and_name
def test_s116_a_cancellation_that_ends_in_time_says_so(svc, seed, target):
    """A cancellation with two seconds to wait says true for a body that stops, by id and by name."""
    _, supervisor, handle = svc(COOP, seed)
    assert supervisor.cancel(target_of(handle, target), timeout=2) is True
    assert handle.outcome() == Cancelled()


@seeds
def test_s117_by_name_it_stands_as_well(svc, seed):
    """A cancellation by name with no time to wait raises, and the removal goes on."""
    world, supervisor, handle = svc(slow_to_stop(3), seed)
    with pytest.raises(TimeoutError):
        supervisor.cancel("svc", timeout=0)
    assert handle.outcome() == Cancelled()
    assert world.now == 3


@seeds
def test_s118_a_cancellation_by_name_finds_what_was_added_before_it(simulate, seed):
    """A cancellation by name right behind the add claims it, tells why, and the run is gone when it returns."""
    world, supervisor = simulate(seed)
    added, cancelled = ask(supervisor, Add(named("svc", COOP))), ask(supervisor, Cancel("svc"))
    assert world.reply(cancelled) is True
    assert supervisor.tasks() == []
    (handle,) = world.reply(added)
    (requested,) = world.of("task_remove_requested")
    assert (requested["id"], requested["task"], requested["reason"]) == (handle.id, "svc", "manual_cancel")


@seeds
def test_s119_a_cancellation_waits_no_longer_than_the_grace(svc, seed):
    """A cancellation without a bound returns when a body that does not stop is given up."""
    world, supervisor, handle = svc(stubborn(100), seed, grace=0.1)
    assert supervisor.cancel(handle.id) is True
    assert world.now == 0.1
    assert handle.outcome() == ForceAborted()


def test_s120_a_cancellation_does_not_need_the_observers(start, body, lagging):
    """With a subscriber that is stuck, a cancellation waits for the end of the run itself, and says true."""
    supervisor, work = start(), body(stubborn=True)
    supervisor.subscribe(lagging, capacity=1)
    handle = supervisor.add(TaskSpec.once(work, name="svc"))
    assert work.is_inside()
    listeners = registry_of(supervisor).publisher._listeners
    waiting = call_in_thread(supervisor.cancel, handle.id)
    assert eventually(lambda: work.ctx.cancelled)
    assert not handle.done()
    work.let_go()
    assert waiting() is True
    assert work.left.is_set()
    assert lagging.told == 0
    assert registry_of(supervisor).publisher._listeners == listeners


@pytest.mark.parametrize("call", ["supervisor", "handle"])
def test_what_needs_no_waiting_needs_no_time(start, body, call):
    """No time to wait is enough where nothing is to be waited for: the bound is on the end, not on the decision."""
    supervisor = start()
    owner = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    for _ in range(50):  # once the registry may be fast enough
        waiting = supervisor.submit(noop, slot="k")
        if call == "handle":
            assert waiting.cancel(wait=True, timeout=0) is True
        else:
            assert supervisor.cancel(waiting.id, timeout=0) is True
            assert supervisor.cancel(UNKNOWN, timeout=0) is False
    assert not owner.done()


# -- who claims ----------------------------------------------------------------------------------------------------


def slot_of(supervisor, handle):
    """Return the actor that runs it."""
    return registry_of(supervisor).routes[handle.id].record.ref._actor_weakref()


@seeds
def test_s122_what_has_completed_can_not_be_claimed_any_more(svc, seed):
    """A removal and a cancellation that cross the completion say false; the outcome is the completion, told once."""
    world, supervisor, handle = svc(gate(1), seed)
    slot = slot_of(supervisor, handle)
    assert world._run_to(LONG, lambda: slot.run is None)  # decided; the registry has not heard of it
    removed, cancelled = ask(supervisor, Remove(handle.id)), ask(supervisor, Cancel(handle.id))
    assert world.reply(cancelled) is False
    assert handle.done()
    assert world.reply(removed) is False
    assert handle.outcome() == Completed("ok")
    assert world.count("task_finished", handle) == world.count("task_removed", handle) == 1


@seeds
@pytest.mark.parametrize("script", [COOP, COOP_CANCELLED], ids=["returns", "reports"])
def test_s123_a_claim_before_the_completion_makes_it_cancelled(svc, seed, script):
    """A removal comes first and the body's end after it: one end is told, and it is a cancellation."""
    world, supervisor, handle = svc(script, seed)
    assert supervisor.remove(handle.id) is True
    assert handle.outcome() == Cancelled()
    (finished,) = world.of("task_finished", handle)
    assert finished["outcome_kind"] == "outcome_cancelled"
    assert world.count("task_removed", handle) == 1


def test_s124_an_event_ends_nothing():
    """A forged event that says that a run has finished changes nothing: it is listed, and its body goes on."""
    with World() as world, world.supervisor(grace=GRACE) as supervisor:
        handle = supervisor.add(named("svc", gate(3)))
        registry = registry_of(supervisor)
        ended = {"outcome_kind": "outcome_completed"}
        registry.publisher.publish(EventKind.TASK_FINISHED, registry.routes[handle.id], None, ended)
        world.advance(1)
        assert world.count("task_finished", handle) == 1
        assert not handle.done()
        assert supervisor.tasks() == [(handle.id, "svc")]
        assert handle.outcome() == Completed("ok")
        assert world.now == 3
        assert world.count("task_finished", handle) == 2


@seeds
def test_s125_a_fault_of_the_machinery_around_a_body_ends_its_run(monkeypatch, svc, seed):
    """Where not the body fails but what runs it, the outcome says so, once, and nothing of the run is left."""
    world, supervisor, handle = svc(gate(1), seed)

    def fail(_worker, _message):
        raise MemoryError

    monkeypatch.setitem(WorkerActor.handlers, BodyReturned, fail)
    assert isinstance(handle.outcome(), Panicked)
    (finished,) = world.of("task_finished", handle)
    assert finished["outcome_kind"] == "outcome_panicked"
    assert world.count("task_removed", handle) == 1
    assert set(tables_of(registry_of(supervisor)).values()) == {0}


def test_s126_a_run_that_is_claimed_before_its_body_is_entered_ends_once(simulate):
    """Claimed at any moment before its body is entered, a run ends exactly once, and is then never entered."""
    unentered = 0
    for seed, steps in itertools.product(range(5), range(15)):
        world, supervisor = simulate(seed)
        handle = supervisor.add(named("svc", COOP))
        for _ in range(steps):
            world.step()
        assert supervisor.remove(handle.id) is True
        assert handle.outcome() == Cancelled()
        world.advance(100)
        assert world.count("task_finished", handle) == world.count("task_removed", handle) == 1
        entered = world.count("body_entered", handle)
        assert entered == world.count("body_left", handle)
        unentered += world.count("attempt_starting", handle) == 1 and not entered
    assert unentered


@seeds
def test_s127_everybody_who_waits_for_the_last_one_is_woken(svc, seed):
    """Two that wait until nothing is left are both answered by the last end, and nothing waits afterwards."""
    world, supervisor, handle = svc(gate(3), seed)
    waiting = [ask(supervisor, Join()), ask(supervisor, Join())]
    world.advance(2.9)
    assert all(is_pending(reply) for reply in waiting)
    for reply in waiting:
        world.reply(reply)
    assert handle.done()
    world.run_until_idle()
    assert set(tables_of(registry_of(supervisor)).values()) == {0}
