"""Our actors inside an application of Pykka actors: `docs/examples/embedded.py`, and what it may rely on."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

import pykka
import pytest

from actors import (
    Cancel,
    DispatchedActor,
    Ended,
    Lifecycle,
    RegistryActor,
    Shutdown,
    SlotActor,
    Snapshot,
    Submit,
    TaskHandle,
)
from admission import (
    AdmissionLimits,
    Cancelled,
    Completed,
    EventKind,
    ForceAborted,
    RejectionKind,
    Submission,
    TaskSpec,
)
from tests.actors.support import SOON, eventually, noop, outcome_of

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "embedded.py"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("embedded", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Listener(pykka.ThreadingActor):
    """Keeps the `notify` messages that it gets, and signals each end."""

    def __init__(self):
        super().__init__()
        self.messages = []
        self.ended = threading.Semaphore(0)

    def on_receive(self, message):
        self.messages.append(message)
        if isinstance(message, Ended):
            self.ended.release()


class Crashing(Listener):
    """Fails over the first message that it is notified with."""

    use_daemon_thread = True

    def on_receive(self, message):
        super().on_receive(message)
        raise RuntimeError("the application's own fault")


class DispatchedListener(DispatchedActor):
    """The same on our dispatcher for applications."""

    def __init__(self):
        super().__init__()
        self.messages = []
        self.ended = threading.Semaphore(0)

    on_receive = Listener.on_receive


@pytest.fixture(params=[Listener, DispatchedListener])
def listener(request, runtime):
    return request.param.start()


def listening(ref):
    return ref._actor_weakref()


def tell(target, work, listener, token):
    target.tell(Submit(work, notify=listener, token=token))


def wait_for_ends(ref, number):
    assert all(listening(ref).ended.acquire(timeout=SOON) for _ in range(number))


def events(ref, token):
    return [m.event.kind for m in listening(ref).messages if isinstance(m, Lifecycle) and m.token == token]


def ends(ref, token):
    return [m for m in listening(ref).messages if isinstance(m, Ended) and m.token == token]


# -- the example ---------------------------------------------------------------------------------------------------


def test_the_example_runs_as_a_script_and_ends_by_itself():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert {
        "clerk: acme attempt_starting",
        "clerk: globex attempt_starting",
        "clerk: acme Completed(value='acme is in sync')",
        "clerk: globex Completed(value='globex is in sync')",
        "auditor: acme is in sync",
        "printer: page 1",
        "printer: page 2",
    } <= set(lines)
    assert len([line for line in lines if "Completed" in line]) == 2


def test_the_example_leaves_nothing_behind(example, nothing_is_left):
    example.main()


def test_who_tells_in_the_example_hears_of_the_start_and_once_of_the_end(example, runtime, capsys):
    told = []

    class Clerk(example.Clerk):
        def on_receive(self, message):
            told.append(message)
            super().on_receive(message)

    registry = RegistryActor.start(runtime)
    clerk = Clerk.start(registry).proxy()
    tenants = [f"tenant-{number}" for number in range(5)]
    for end in [clerk.sync(tenant).get(timeout=SOON) for tenant in tenants]:
        end.get(timeout=SOON)
    for tenant in tenants:
        mine = [message for message in told if message.token == tenant]
        kinds = [message.event.kind for message in mine if isinstance(message, Lifecycle)]
        assert kinds.count(EventKind.ATTEMPT_STARTING) == 1
        assert [m.outcome for m in mine if isinstance(m, Ended)] == [Completed(f"{tenant} is in sync")]


# -- told ----------------------------------------------------------------------------------------------------------


def test_told_submissions_are_correlated_by_their_token(registry, listener):
    tokens = [("batch", number) for number in range(20)]
    for token in tokens:
        spec = TaskSpec.once(lambda _ctx, number: number, args=(token[1],))
        tell(registry, Submission(spec, slot=f"s{token[1] % 3}"), listener, token)
    wait_for_ends(listener, len(tokens))
    for token in tokens:
        assert events(listener, token).count(EventKind.ATTEMPT_STARTING) == 1
        (end,) = ends(listener, token)
        assert end.outcome == Completed(token[1])


def test_the_end_comes_after_the_task_is_finished_and_carries_the_id(registry, listener):
    tell(registry, TaskSpec.once(noop), listener, "t")
    wait_for_ends(listener, 1)
    kinds = events(listener, "t")
    assert kinds[:4] == [
        EventKind.TASK_ADD_REQUESTED,
        EventKind.SUBMISSION_ACCEPTED,
        EventKind.TASK_ADDED,
        EventKind.ATTEMPT_STARTING,
    ]
    assert EventKind.TASK_FINISHED in kinds
    (end,) = ends(listener, "t")
    assert {m.event.id for m in listening(listener).messages if isinstance(m, Lifecycle)} == {end.id}


def test_a_told_submission_that_is_turned_away_ends_once_too(registry, listener, body):
    owner = body()
    tell(registry, Submission(owner, slot="k"), listener, "owner")
    tell(registry, Submission(noop, slot="k", policy="drop_if_running"), listener, "dropped")
    wait_for_ends(listener, 1)
    (end,) = ends(listener, "dropped")
    assert end.outcome.kind is RejectionKind.SLOT_BUSY
    assert ends(listener, "owner") == []
    owner.let_go()
    wait_for_ends(listener, 1)
    assert [end.outcome for end in ends(listener, "owner")] == [Completed(None)]


def test_to_a_registry_in_shutdown_a_told_submission_ends_as_rejected(registry, listener, body):
    stubborn = body(stubborn=True)
    handle = registry.ask(Submit(Submission(stubborn, slot="k")), timeout=SOON)
    assert stubborn.is_inside()
    stopped = registry.stop(block=False)
    assert isinstance(outcome_of(handle), ForceAborted)
    assert stopped.get(timeout=SOON)
    with pytest.raises(pykka.ActorDeadError):
        tell(registry, TaskSpec.once(noop), listener, "late")


def test_a_crash_of_the_notified_actor_changes_nothing_for_the_job(registry, body):
    crashing = Crashing.start()
    running = body("survived")
    tell(registry, Submission(running, slot="k"), crashing, "t")
    behind = registry.ask(Submit(Submission(noop, slot="k")), timeout=SOON)
    assert crashing.actor_stopped.wait(SOON)
    assert running.is_inside()
    running.let_go()
    assert outcome_of(behind) == Completed("done")
    assert running.runs == 1


def test_a_notified_actor_that_was_stopped_before_is_no_error(registry):
    gone = Listener.start()
    gone.stop()
    tell(registry, Submission(noop, slot="k"), gone, "t")
    assert outcome_of(registry.ask(Submit(Submission(noop, slot="k")), timeout=SOON)) == Completed("done")


def test_a_notified_actor_that_blocks_delays_no_other(registry, body):
    blocked, release = threading.Event(), threading.Event()

    class Blocking(pykka.ThreadingActor):
        use_daemon_thread = True

        @staticmethod
        def _create_actor_inbox():
            import queue  # noqa: PLC0415

            return queue.Queue(maxsize=1)

        def on_receive(self, message):
            blocked.set()
            release.wait(SOON)

    blocking, listener = Blocking.start(), Listener.start()
    try:
        for number in range(5):
            tell(registry, Submission(noop, slot=f"s{number}"), blocking, number)
        assert blocked.wait(SOON)
        tell(registry, Submission(noop, slot="other"), listener, "other")
        wait_for_ends(listener, 1)
    finally:
        release.set()


# -- asked ---------------------------------------------------------------------------------------------------------


def test_asked_the_registry_answers_with_a_handle(registry):
    handle = registry.ask(Submit(Submission(noop, slot="k")), timeout=SOON)
    assert isinstance(handle, TaskHandle)
    assert handle.slot == "k"
    assert outcome_of(handle) == Completed("done")


def test_the_registry_takes_every_other_question_by_message_too(registry, body):
    handle = registry.ask(Submit(Submission(body(), slot="k")), timeout=SOON)
    assert registry.ask(Snapshot(), timeout=SOON).slot("k").owner_id == handle.id
    assert registry.ask(Cancel(handle.id), timeout=SOON) is True
    assert outcome_of(handle) == Cancelled()
    assert len(registry.ask(Snapshot(), timeout=SOON)) == 0


# -- a slot of its own ---------------------------------------------------------------------------------------------


def test_a_lone_slot_runs_one_at_a_time_in_order(lone_slot):
    order = []
    handles = [lone_slot.ask(Submit(TaskSpec.once(lambda _ctx, n: order.append(n), args=(n,)))) for n in range(20)]
    assert [outcome_of(handle) for handle in handles] == [Completed(None)] * 20
    assert order == list(range(20))


def test_a_lone_slot_notifies_as_a_registry_does(lone_slot, listener):
    tell(lone_slot, TaskSpec.once(noop), listener, "t")
    wait_for_ends(listener, 1)
    assert events(listener, "t").count(EventKind.ATTEMPT_STARTING) == 1
    assert [end.outcome for end in ends(listener, "t")] == [Completed("done")]


def test_a_lone_slot_refuses_what_names_another_slot(lone_slot):
    with pytest.raises(ValueError, match="alone"):
        lone_slot.ask(Submit(Submission(noop, slot="other")), timeout=SOON)
    handle = lone_slot.ask(Submit(Submission(noop, slot="alone")), timeout=SOON)
    assert outcome_of(handle) == Completed("done")


# -- stop_all ------------------------------------------------------------------------------------------------------


def test_stop_all_gives_up_what_runs_and_resolves_everything(runtime, body):
    registry = RegistryActor.start(runtime, grace=60)
    lone = SlotActor.start("alone", runtime=runtime, grace=60)
    running, stubborn, alone = body(), body(stubborn=True), body(stubborn=True)
    handles = [
        registry.ask(Submit(Submission(running, slot="a"))),
        registry.ask(Submit(Submission(noop, slot="a"))),
        registry.ask(Submit(Submission(stubborn, slot="b"))),
        lone.ask(Submit(TaskSpec.once(alone))),
        lone.ask(Submit(TaskSpec.once(noop))),
    ]
    assert all(each.is_inside() for each in (running, stubborn, alone))
    stopping = threading.Thread(target=pykka.ActorRegistry.stop_all, daemon=True)
    stopping.start()
    outcomes = [outcome_of(handle) for handle in handles]
    stopping.join(SOON)
    assert not stopping.is_alive()
    assert outcomes[2] == outcomes[3] == ForceAborted()
    assert isinstance(outcomes[0], Cancelled | ForceAborted)
    assert [outcome.kind for outcome in (outcomes[1], outcomes[4])] == [RejectionKind.SHUTTING_DOWN] * 2
    assert pykka.ActorRegistry.get_all() == []
    assert not stubborn.left.is_set()


def test_stop_joins_a_shutdown_that_runs(runtime, body):
    registry = RegistryActor.start(runtime, grace=60)
    stubborn = body(stubborn=True)
    handle = registry.ask(Submit(Submission(stubborn, slot="k")))
    assert stubborn.is_inside()
    report = registry.ask(Shutdown(grace=60), block=False)
    stopped = registry.stop(block=False)
    assert not handle.done()
    stubborn.let_go()
    assert report.get(timeout=SOON).clean
    assert stopped.get(timeout=SOON)


# -- a thousand slots ----------------------------------------------------------------------------------------------


def test_a_thousand_live_slots_add_no_thread(runtime):
    registry = RegistryActor.start(runtime, limits=AdmissionLimits(max_warm_slots=1000, max_concurrent=2))
    assert outcome_of(registry.ask(Submit(Submission(noop, slot="first")))) == Completed("done")
    before = threading.active_count()
    handles = [registry.ask(Submit(Submission(noop, slot=f"s{number}"))) for number in range(999)]
    assert {outcome_of(handle) for handle in handles} == {Completed("done")}
    assert len(registry._actor_weakref().slots) == 1000
    assert threading.active_count() <= before + 1  # two bodies at once, at most


def test_a_thousand_submissions_in_line_add_no_thread(runtime, body):
    registry = RegistryActor.start(runtime, limits=AdmissionLimits(max_slot_queue=1000), grace=1)
    owner = body()
    first = registry.ask(Submit(Submission(owner, slot="k")))
    assert owner.is_inside()
    before = threading.active_count()
    handles = [registry.ask(Submit(Submission(noop, slot="k"))) for _ in range(1000)]
    assert registry.ask(Snapshot()).slot("k").queue_depth == 1000
    assert threading.active_count() == before
    owner.let_go()
    assert {outcome_of(handle, 10) for handle in handles} == {Completed("done")}
    assert outcome_of(first) == Completed(None)


def test_bodies_end_with_what_they_returned_even_if_nobody_waits(registry):
    seen = threading.Event()
    registry.tell(Submit(Submission(lambda _ctx: seen.set(), slot="k")))
    assert seen.wait(SOON)
    assert eventually(lambda: len(registry.ask(Snapshot())) == 0)
