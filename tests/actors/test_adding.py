"""Runs that are added directly: registered at once, all or none, in a slot that is nobody's business."""

from __future__ import annotations

import gc
import weakref
from contextvars import ContextVar

import pykka
import pytest

from actors import Add, Ended, RegistryActor, SlotActor, Submit, TaskHandle
from actors.testing import Script, Simulation, Verdict, check, scripted
from admission import (
    AdmissionLimits,
    Backoff,
    Cancelled,
    Completed,
    ForceAborted,
    RejectionKind,
    ResourceLimitError,
    Submission,
    SupervisorClosedError,
    TaskExistsError,
    TaskSpec,
)
from tests.actors.support import SOON, eventually, noop, outcome_of


def registry_of(supervisor):
    return supervisor.registry._actor_weakref()


def test_it_is_registered_when_add_returns_and_has_no_slot(supervisor, body):
    handle = supervisor.add(TaskSpec.once(work := body(), name="svc"))
    assert supervisor.tasks() == [(handle.id, "svc")]
    assert handle.slot is None
    assert work.is_inside()
    assert work.ctx.slot is None
    assert work.ctx.task == "svc"
    assert len(supervisor.snapshot()) == 0
    work.let_go()
    assert outcome_of(handle) == Completed(None)
    assert supervisor.tasks() == []


def test_without_a_name_it_is_called_after_its_callable_and_number(supervisor, body):
    handle = supervisor.add(body().__call__)
    assert supervisor.tasks() == [(handle.id, f"Body.__call__{handle.id}")]
    handle.cancel(wait=True, timeout=SOON)


def test_it_neither_waits_for_a_slot_nor_holds_one(supervisor, body):
    owner = supervisor.submit(body(), slot="k")
    added = supervisor.add(TaskSpec.once(work := body(), name="other"))
    assert work.is_inside()
    assert supervisor.cancel(added.id, timeout=SOON)
    assert outcome_of(added) == Cancelled()
    assert not owner.done()


def test_a_taken_name_is_refused_and_nothing_has_changed(supervisor, body):
    first = supervisor.add(TaskSpec.once(body(), name="svc"))
    runs = body()
    with pytest.raises(TaskExistsError) as caught:
        supervisor.add(TaskSpec.once(runs, name="svc"))
    assert caught.value.name == "svc"
    assert supervisor.tasks() == [(first.id, "svc")]
    assert runs.runs == 0


def test_a_batch_is_taken_whole_or_not_at_all(supervisor):
    specs = [TaskSpec.once(noop, name=name) for name in ("a", "b", "a")]
    with pytest.raises(TaskExistsError) as caught:
        supervisor.add_batch(specs)
    assert caught.value.name == "a"
    assert supervisor.tasks() == []
    handles = supervisor.add_batch(specs[:2])
    assert [outcome_of(handle) for handle in handles] == [Completed("done")] * 2
    assert supervisor.add_batch([]) == []


def test_past_max_tasks_nothing_is_added(start, body):
    supervisor = start(limits=AdmissionLimits(max_tasks=2))
    with pytest.raises(ResourceLimitError) as caught:
        supervisor.add_batch([noop] * 3)
    assert (caught.value.resource, caught.value.limit) == ("max_tasks", 2)
    supervisor.add(body())
    supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    with pytest.raises(ResourceLimitError, match="max_tasks"):
        supervisor.add(noop)


def test_a_body_that_outlives_its_outcome_keeps_its_name_until_it_leaves(start, body):
    supervisor = start(grace=0.01)
    handle = supervisor.add(TaskSpec.once(work := body(stubborn=True), name="svc"))
    assert work.is_inside()
    assert supervisor.cancel(handle.id, timeout=SOON)
    assert outcome_of(handle) == ForceAborted()
    with pytest.raises(TaskExistsError):
        supervisor.add(TaskSpec.once(noop, name="svc"))
    private = list(registry_of(supervisor).private)
    assert len(private) == 1
    work.let_go()
    assert eventually(lambda: not registry_of(supervisor).private)
    assert eventually(lambda: not private[0].ref.is_alive())
    assert outcome_of(supervisor.add(TaskSpec.once(noop, name="svc"))) == Completed("done")


def slots_in_memory():
    gc.collect()
    return sum(type(each) is SlotActor for each in gc.get_objects())


def test_a_private_slot_leaves_nothing_behind(supervisor):
    before = slots_in_memory()  # of other tests, whose failures may keep some
    handles = [supervisor.add(noop) for _ in range(50)]
    for handle in handles:
        outcome_of(handle)
    registry = registry_of(supervisor)
    assert eventually(lambda: not registry.private)
    assert (registry.slots, registry.at_work, dict(registry.idle)) == ({}, 0, {})
    assert eventually(lambda: slots_in_memory() <= before)


def test_a_handle_does_not_keep_the_body_alive(supervisor):
    class Callable:
        def __call__(self, _ctx):
            return None

    work = Callable()
    seen = weakref.ref(work)
    handle = supervisor.add(work)
    outcome_of(handle)
    del work
    assert eventually(lambda: gc.collect() is not None and seen() is None)


def test_it_is_retried_like_any_other(supervisor):
    errors = iter([ValueError("once"), None])

    def flaky(ctx):
        error = next(errors)
        if error is not None:
            raise error
        return ctx.attempt

    assert outcome_of(supervisor.add(TaskSpec.restartable(flaky, backoff=Backoff.constant(0)))) == Completed(2)


def test_it_waits_for_a_permit_like_any_other(start, body):
    supervisor = start(limits=AdmissionLimits(max_concurrent=1))
    supervisor.submit(holder := body(), slot="k")
    assert holder.is_inside()
    added = supervisor.add(work := body())
    assert supervisor.tasks()[-1][0] == added.id
    assert work.runs == 0
    holder.let_go()
    assert work.is_inside()


def test_shutdown_cancels_what_was_added(start, body):
    supervisor = start(grace=5)
    handle = supervisor.add(work := body())
    assert work.is_inside()
    assert supervisor.shutdown().clean
    assert outcome_of(handle) == Cancelled()
    with pytest.raises(SupervisorClosedError):
        supervisor.add(noop)


def test_an_actor_adds_by_asking(registry):
    (handle,) = registry.ask(Add(TaskSpec.once(noop)), timeout=SOON)
    assert isinstance(handle, TaskHandle)
    assert outcome_of(handle) == Completed("done")
    with pytest.raises(TaskExistsError):
        registry.ask(Add(TaskSpec.once(noop, name="twice"), TaskSpec.once(noop, name="twice")), timeout=SOON)


class Listener(pykka.ThreadingActor):
    def __init__(self):
        super().__init__()
        self.ended = pykka.ThreadingFuture()

    def on_receive(self, message):
        if isinstance(message, Ended):
            self.ended.set(message)


@pytest.mark.parametrize(("name", "kind"), [("free", None), ("taken", RejectionKind.ALREADY_EXISTS)])
def test_an_actor_that_tells_is_notified_of_the_end(registry, body, name, kind):
    held = registry.ask(Submit(Submission(TaskSpec.once(body(), name="taken"), slot="k")))
    assert eventually(lambda: registry.ask(Add(), timeout=SOON) == [] and not held.done())
    listener = Listener.start()
    try:
        registry.tell(Add(TaskSpec.once(noop, name=name), notify=listener, token=("t",)))
        ended = listener._actor_weakref().ended.get(timeout=SOON)
        assert ended.token == ("t",)
        assert getattr(ended.outcome, "kind", None) is kind
    finally:
        listener.stop()


def test_context_variables_are_those_of_whoever_adds(supervisor):
    variable = ContextVar("variable", default="unset")
    variable.set("here")
    assert outcome_of(supervisor.add(lambda _ctx: variable.get())) == Completed("here")


@pytest.mark.parametrize("seed", range(30))
def test_nothing_of_a_private_slot_is_logged_but_its_attempts_and_bodies(seed):
    with Simulation(seed).supervisor() as supervisor:
        batch = [TaskSpec.once(scripted(Script(seconds=1)), name=f"t{number}") for number in range(3)]
        handles = supervisor.add_batch(batch)
        supervisor.submit(scripted(Script(seconds=1)), slot="k")
        assert [handle.outcome() for handle in handles] == [Completed(None)] * 3
        supervisor.join()
        records = supervisor._core.runtime.records
    mine = [record for record in records if record.get("id") in {int(handle.id) for handle in handles}]
    assert {record["event"] for record in mine} == {
        "task_add_requested",
        "task_added",
        "attempt_starting",
        "body_entered",
        "body_left",
        "attempt_succeeded",
        "task_finished",
        "task_removed",
    }
    assert all(record.get("slot") is None for record in mine)
    last_added = max(record["seq"] for record in mine if record["event"] == "task_added")
    assert last_added < min(record["seq"] for record in mine if record["event"] == "attempt_starting")
    finding = check(records)
    assert finding.verdict is Verdict.HOLDS, finding


def test_the_registry_of_an_application_adds_too(runtime):
    registry = RegistryActor.start(runtime)
    (handle,) = registry.ask(Add(TaskSpec.once(noop)), timeout=SOON)
    registry.stop(timeout=SOON)
    assert outcome_of(handle).label in ("outcome_completed", "outcome_cancelled", "outcome_force_aborted")
