"""The face for threads: what it takes, what it answers, and how it ends."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
import warnings
from datetime import timedelta

import pykka
import pytest

from actors import RegistryActor, Submit, Supervisor, open_runtime
from admission import (
    AdmissionLimits,
    AdmissionPolicy,
    Backoff,
    Cancelled,
    Completed,
    Failed,
    ForceAborted,
    IntakeFullError,
    NotStartedError,
    RejectionKind,
    ShutdownReport,
    SlotStatus,
    Snapshot,
    Submission,
    SupervisorClosedError,
    TaskDefaults,
    TaskId,
    TaskSpec,
)
from tests.actors.support import SOON, call_in_thread, eventually, noop, our_threads, outcome_of


def fail(*_args, **_kwargs):
    raise MemoryError


def kinds(handles):
    return [outcome_of(handle).kind for handle in handles]


# -- submitting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "work",
    [noop, TaskSpec.once(noop), Submission(noop, slot="k"), Submission(TaskSpec.once(noop, name="k"))],
    ids=["callable", "spec", "submission", "submission by name"],
)
@pytest.mark.parametrize("method", ["submit", "try_submit"])
def test_whatever_describes_work_can_be_submitted(supervisor, work, method):
    handle = getattr(supervisor, method)(work)
    assert outcome_of(handle) == Completed("done")


def test_without_a_slot_it_competes_for_one_named_like_the_task_or_for_its_own(supervisor):
    assert supervisor.submit(TaskSpec.once(noop, name="sync")).slot == "sync"
    first, second = supervisor.submit(noop), supervisor.submit(noop)
    assert first.slot == f"noop{first.id}"
    assert first.slot != second.slot


def test_ids_grow_with_every_submission(supervisor):
    ids = [supervisor.submit(noop, slot="k").id for _ in range(10)]
    assert ids == sorted(set(ids))


def test_by_policy_queue_everything_runs_in_the_order_of_submission(supervisor, body):
    order, owner = [], body()
    first = supervisor.submit(owner, slot="k")
    rest = [
        supervisor.submit(TaskSpec.once(lambda _ctx, n: order.append(n), args=(n,), name=f"n{n}"), slot="k")
        for n in range(3)
    ]
    assert supervisor.snapshot().slot("k").queue_depth == 3
    owner.let_go()
    assert {outcome_of(handle) for handle in [first, *rest]} == {Completed(None)}
    assert order == [0, 1, 2]


@pytest.mark.parametrize("policy", [AdmissionPolicy.REPLACE, "replace"])
def test_by_policy_replace_the_owner_is_stopped_and_the_head_of_the_line_displaced(supervisor, body, policy):
    owner = body()
    running = supervisor.submit(owner, slot="k")
    assert owner.is_inside()
    queued = supervisor.submit(noop, slot="k")
    assert outcome_of(supervisor.submit(noop, slot="k", policy=policy)) == Completed("done")
    assert outcome_of(running) == Cancelled()
    assert kinds([queued]) == [RejectionKind.SUPERSEDED_BY_REPLACE]


def test_by_policy_drop_if_running_a_busy_slot_turns_it_away(supervisor, body):
    running = supervisor.submit(owner := body(), slot="k")
    assert kinds([supervisor.submit(noop, slot="k", policy="drop_if_running")]) == [RejectionKind.SLOT_BUSY]
    owner.let_go()
    outcome_of(running)
    assert outcome_of(supervisor.submit(noop, slot="k", policy="drop_if_running")) == Completed("done")


def test_whoever_has_seen_an_outcome_finds_the_slot_free(supervisor):
    for _ in range(200):
        handle = supervisor.submit(noop, slot="k", policy="drop_if_running")
        assert outcome_of(handle) == Completed("done")


def test_two_slots_run_at_the_same_time(supervisor, body):
    first, second = body(), body()
    supervisor.submit(first, slot="a")
    supervisor.submit(second, slot="b")
    assert first.is_inside()
    assert second.is_inside()


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.fixture
def full(start):
    """A supervisor whose intake is full: two places, both taken."""
    supervisor = start(limits=AdmissionLimits(intake=2))
    for _ in range(2):
        assert supervisor._core.intake.take()
    return supervisor


def test_try_submit_raises_where_the_intake_is_full(full):
    with pytest.raises(IntakeFullError, match="2 submissions"):
        full.try_submit(noop, slot="k")
    full._core.intake.give()
    assert outcome_of(full.try_submit(noop, slot="k")) == Completed("done")


def test_submit_waits_where_the_intake_is_full(full):
    waiting = call_in_thread(full.submit, noop, slot="k")
    assert eventually(lambda: full._core.intake._waiters)
    full._core.intake.give()
    assert outcome_of(waiting()) == Completed("done")


def test_every_submission_gives_its_place_back_however_it_ends(start, body):
    supervisor = start(limits=AdmissionLimits(intake=3, max_slot_queue=1, max_slots=2))
    supervisor.submit(body(), slot="k")
    for policy in ("queue", "queue", "drop_if_running", "replace"):
        supervisor.submit(noop, slot="k", policy=policy)
    supervisor.submit(body(), slot="other")
    supervisor.submit(noop, slot="too many")
    supervisor.snapshot()
    assert eventually(lambda: supervisor._core.intake.inside == 0)


def test_shutdown_turns_away_whoever_waits_at_the_intake(full):
    waiting = [call_in_thread(full.submit, noop, slot="k") for _ in range(3)]
    assert eventually(lambda: len(full._core.intake._waiters) == 3)
    assert full.shutdown().clean
    for join in waiting:
        with pytest.raises(SupervisorClosedError):
            join()
    assert full._core.intake.inside == 2


@pytest.mark.parametrize("let_in", [False, True], ids=["outside", "at the door"])
def test_an_interrupt_while_waiting_at_the_intake_loses_no_place(monkeypatch, full, let_in):
    def interrupt(_waitable, _timeout=None):
        if let_in:
            full._core.intake.give()
        raise KeyboardInterrupt

    monkeypatch.setattr(full._core.runtime, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        full.submit(noop, slot="k")
    assert full._core.intake.inside == 2 - let_in
    assert not full._core.intake._waiters


def test_a_submission_that_can_not_be_made_gives_its_place_back(monkeypatch, supervisor):
    monkeypatch.setattr(supervisor._core.runtime, "new_id", fail)
    with pytest.raises(MemoryError):
        supervisor.submit(noop)
    assert supervisor._core.intake.inside == 0


def test_a_message_past_the_intake_is_turned_away_and_never_waits(full):
    handle = full.registry.ask(Submit(Submission(noop, slot="k")), timeout=SOON)
    assert kinds([handle]) == [RejectionKind.RESOURCE_LIMIT]
    full._core.intake.give()
    handle = full.registry.ask(Submit(Submission(noop, slot="k")), timeout=SOON)
    assert outcome_of(handle) == Completed("done")
    assert eventually(lambda: full._core.intake.inside == 1)


def test_the_line_has_an_end(start, body):
    supervisor = start(limits=AdmissionLimits(max_slot_queue=1))
    owner = body()
    supervisor.submit(owner, slot="k")
    handles = [supervisor.submit(noop, slot="k") for _ in range(3)]
    assert kinds(handles[1:]) == [RejectionKind.QUEUE_FULL] * 2
    owner.let_go()
    assert outcome_of(handles[0]) == Completed("done")


def test_all_lines_together_have_an_end(start, body):
    supervisor = start(limits=AdmissionLimits(max_total_pending=2))
    for slot in "abc":
        supervisor.submit(body(), slot=slot)
    handles = []
    for slot in "abc":
        handles.append(supervisor.submit(noop, slot=slot))
        supervisor.snapshot()  # answered when the slot has decided
    assert kinds(handles[2:]) == [RejectionKind.RESOURCE_LIMIT]
    assert handles[0].cancel()
    assert not supervisor.submit(noop, slot="c").done()
    assert supervisor.snapshot().total_queued == 2


def test_slots_at_work_have_a_limit(start, body):
    supervisor = start(limits=AdmissionLimits(max_slots=1))
    running = supervisor.submit(owner := body(), slot="a")
    assert kinds([supervisor.submit(noop, slot="b")]) == [RejectionKind.RESOURCE_LIMIT]
    owner.let_go()
    outcome_of(running)
    assert outcome_of(supervisor.submit(noop, slot="b")) == Completed("done")


def test_registered_and_lingering_runs_have_a_limit(start, body):
    supervisor = start(limits=AdmissionLimits(max_tasks=1), grace=0)
    running = supervisor.submit(owner := body(stubborn=True), slot="a")
    assert owner.is_inside()
    assert kinds([supervisor.submit(noop, slot="b")]) == [RejectionKind.RESOURCE_LIMIT]
    running.cancel()
    assert outcome_of(running) == ForceAborted()
    assert kinds([supervisor.submit(noop, slot="b")]) == [RejectionKind.RESOURCE_LIMIT]
    owner.let_go()
    assert outcome_of(supervisor.submit(noop, slot="a", policy="queue")) == Completed("done")


def test_attempts_at_the_same_time_have_a_limit_and_wait_their_turn(start, body):
    supervisor = start(limits=AdmissionLimits(max_concurrent=1))
    order, owner = [], body()
    first = supervisor.submit(owner, slot="first")
    assert owner.is_inside()
    handles = [
        supervisor.submit(TaskSpec.once(lambda _ctx, n: order.append(n), args=(n,)), slot=f"s{n}") for n in range(4)
    ]
    assert handles[1].cancel()
    assert outcome_of(handles[1]) == Cancelled()
    assert order == []
    owner.let_go()
    for handle in [first, handles[0], *handles[2:]]:
        assert outcome_of(handle) == Completed(None)
    assert order == [0, 2, 3]


def test_a_run_that_pauses_holds_no_permit(start):
    supervisor = start(limits=AdmissionLimits(max_concurrent=1))
    failed = threading.Event()

    def fails(_ctx):
        failed.set()
        raise ValueError

    supervisor.submit(TaskSpec.restartable(fails, backoff=Backoff.constant(30)), slot="pausing")
    assert failed.wait(SOON)
    assert outcome_of(supervisor.submit(noop, slot="other")) == Completed("done")


def test_a_body_that_lingers_holds_its_permit(start, body):
    supervisor = start(limits=AdmissionLimits(max_concurrent=1), grace=0)
    running = supervisor.submit(owner := body(stubborn=True), slot="a")
    assert owner.is_inside()
    running.cancel()
    assert outcome_of(running) == ForceAborted()
    other = supervisor.submit(lambda _ctx: owner.left.is_set(), slot="b")
    assert not other.done()
    owner.let_go()
    assert outcome_of(other).value is True


def test_defaults_are_for_what_inherits_them(start):
    runs = []

    def fails(ctx):
        runs.append(ctx.slot)
        raise ValueError

    supervisor = start(defaults=TaskDefaults(max_retries=2, backoff=Backoff.constant(0)))
    for slot, spec in {
        "inherits": TaskSpec.from_defaults(fails),
        "never": TaskSpec.once(fails),
        "once more": TaskSpec.restartable(fails, max_retries=1),
    }.items():
        assert isinstance(outcome_of(supervisor.submit(spec, slot=slot)), Failed)
    assert {slot: runs.count(slot) for slot in runs} == {"inherits": 3, "never": 1, "once more": 2}


# -- removing, cancelling, looking ---------------------------------------------------------------------------------


def test_remove_and_cancel_find_a_run_by_id_and_by_name(supervisor, body):
    for call in (supervisor.remove, supervisor.cancel):
        for find in (lambda handle: handle.id, lambda _handle: "sync"):
            work = body()
            handle = supervisor.submit(TaskSpec.once(work, name="sync"), slot="k")
            assert work.is_inside()
            assert call(find(handle)) is True
            assert outcome_of(handle) == Cancelled()


def test_what_is_not_there_can_not_be_removed_or_cancelled(supervisor):
    ended = supervisor.submit(TaskSpec.once(noop, name="ended"), slot="k")
    outcome_of(ended)
    for target in (ended.id, "ended", "never", TaskId(10**9)):
        assert supervisor.remove(target) is False
        assert supervisor.cancel(target) is False


def test_what_waits_is_found_by_its_id_only(supervisor, body):
    supervisor.submit(body(), slot="k")
    waiting = supervisor.submit(TaskSpec.once(noop, name="waiting"), slot="k")
    assert supervisor.remove("waiting") is False
    assert supervisor.remove(waiting.id) is True
    assert kinds([waiting]) == [RejectionKind.REMOVED_FROM_QUEUE]
    assert supervisor.snapshot().slot("k").queue_depth == 0


def test_remove_returns_before_the_end_and_cancel_after_it(supervisor, body):
    work = body(stubborn=True)
    handle = supervisor.submit(work, slot="k")
    assert work.is_inside()
    assert supervisor.remove(handle.id) is True
    assert work.ctx.cancelled
    assert not handle.done()
    cancelled = call_in_thread(supervisor.cancel, handle.id)
    work.let_go()
    assert cancelled() is False
    assert handle.outcome(0) == Cancelled()


def test_a_cancel_that_is_not_waited_for_stands(supervisor, body):
    work = body(stubborn=True)
    handle = supervisor.submit(work, slot="k")
    assert work.is_inside()
    with pytest.raises(TimeoutError):
        supervisor.cancel(handle.id, timeout=0.01)
    assert work.ctx.cancelled
    work.let_go()
    assert outcome_of(handle) == Cancelled()


async def sleeps_on_the_loop(ctx):
    await ctx.sleep(30)


def returns_an_awaitable(ctx):
    return sleeps_on_the_loop(ctx)


@pytest.mark.parametrize("work", [lambda ctx: ctx.sleep(30), sleeps_on_the_loop, returns_an_awaitable])
def test_submitted_and_cancelled_at_once_it_is_cancelled(supervisor, work):
    for _ in range(100):
        handle = supervisor.submit(work, slot="k")
        assert handle.cancel() is True
        assert outcome_of(handle) == Cancelled()


def test_the_name_of_a_run_is_unique_while_it_is_registered(supervisor, body):
    running = supervisor.submit(TaskSpec.once(owner := body(), name="sync"), slot="a")
    assert owner.is_inside()
    assert kinds([supervisor.submit(TaskSpec.once(noop, name="sync"), slot="b")]) == [RejectionKind.ALREADY_EXISTS]
    owner.let_go()
    outcome_of(running)
    assert outcome_of(supervisor.submit(TaskSpec.once(noop, name="sync"), slot="b")) == Completed("done")


def test_tasks_lists_registered_runs_by_id(supervisor, body):
    works = [body() for _ in range(3)]
    handles = [supervisor.submit(work, slot=slot) for work, slot in zip(works, "cab", strict=True)]
    supervisor.submit(noop, slot="a")
    assert all(work.is_inside() for work in works)
    assert supervisor.tasks() == [(handle.id, slot) for handle, slot in zip(handles, "cab", strict=True)]


def test_a_snapshot_lists_slots_with_work_by_key(supervisor, body):
    assert supervisor.snapshot() == Snapshot()
    work = body()
    running = supervisor.submit(work, slot="b")
    supervisor.submit(noop, slot="b")
    other = body()
    supervisor.submit(other, slot="a")
    assert work.is_inside()
    assert other.is_inside()
    snapshot = supervisor.snapshot()
    assert [view.slot for view in snapshot.slots] == ["a", "b"]
    view = snapshot.slot("b")
    assert (view.status, view.owner_id, view.queue_depth) == (SlotStatus.RUNNING, running.id, 1)
    assert 0 <= view.status_for < SOON
    assert (snapshot.running_count, snapshot.total_queued) == (2, 1)


def test_join_waits_for_everything_that_was_accepted(supervisor, body):
    work = body()
    handles = [supervisor.submit(work, slot="k"), supervisor.submit(noop, slot="k")]
    with pytest.raises(TimeoutError):
        supervisor.join(timeout=0.01)
    joined = call_in_thread(supervisor.join)
    work.let_go()
    joined()
    assert all(handle.done() for handle in handles)
    supervisor.join(timeout=0.5)


# -- the end -------------------------------------------------------------------------------------------------------


def test_leaving_the_block_cancels_what_runs_and_turns_away_what_waits(body, nothing_is_left):
    with Supervisor(grace=1) as supervisor:
        work = body()
        running, waiting = supervisor.submit(work, slot="k"), supervisor.submit(noop, slot="k")
        assert work.is_inside()
    assert running.outcome(0) == Cancelled()
    assert waiting.outcome(0).kind is RejectionKind.SHUTTING_DOWN


def test_an_error_in_the_block_comes_out_of_it(nothing_is_left):
    def fail():
        with Supervisor() as supervisor:
            supervisor.submit(noop)
            raise KeyError

    with pytest.raises(KeyError):
        fail()


def test_every_caller_gets_the_same_report(start, body):
    supervisor = start()
    work = body(stubborn=True)
    supervisor.submit(work, slot="k")
    assert work.is_inside()
    callers = [call_in_thread(supervisor.shutdown) for _ in range(5)]
    assert eventually(lambda: work.ctx.cancelled)
    callers.append(call_in_thread(supervisor.shutdown))
    work.let_go()
    reports = [join() for join in callers]
    assert reports[0] == ShutdownReport(clean=True, grace=1)
    assert all(report is reports[0] for report in [*reports, supervisor.shutdown()])


def test_before_the_start_a_shutdown_is_the_end(nothing_is_left):
    supervisor = Supervisor(grace=3)
    assert supervisor.shutdown() == ShutdownReport(clean=True, grace=3)
    with pytest.raises(SupervisorClosedError):
        supervisor.submit(noop)
    with pytest.raises(SupervisorClosedError):
        supervisor.start()
    assert supervisor.shutdown() is supervisor.shutdown()


def test_shut_down_before_the_start_it_starts_nothing_on_a_runtime_of_the_applications_own(runtime):
    supervisor = Supervisor(runtime=runtime)
    supervisor.shutdown()
    with pytest.raises(SupervisorClosedError):
        supervisor.start()
    assert pykka.ActorRegistry.get_all() == []


def test_after_the_end_it_can_not_be_started_again(start):
    supervisor = start()
    supervisor.shutdown()
    with pytest.raises(SupervisorClosedError), supervisor:
        pass
    assert pykka.ActorRegistry.get_all() == []


def test_a_start_that_fails_can_be_tried_again(monkeypatch, nothing_is_left):
    supervisor = Supervisor()
    with monkeypatch.context() as patch:
        patch.setattr(RegistryActor, "start", fail)
        with pytest.raises(MemoryError):
            supervisor.start()
    assert eventually(lambda: our_threads() == [])
    with supervisor:
        assert outcome_of(supervisor.submit(noop)) == Completed("done")


def test_started_twice_it_is_started_once(start):
    supervisor = start()
    registry, threads = supervisor.registry, our_threads()
    assert supervisor.start() is supervisor
    with supervisor:
        assert supervisor.registry == registry
        assert our_threads() == threads


CALLS = {
    "submit": lambda supervisor: supervisor.submit(noop),
    "try_submit": lambda supervisor: supervisor.try_submit(noop),
    "join": lambda supervisor: supervisor.join(),
    "cancel": lambda supervisor: supervisor.cancel("name"),
    "remove": lambda supervisor: supervisor.remove("name"),
    "registry": lambda supervisor: supervisor.registry,
}
LOOKS = {"tasks": ([], lambda supervisor: supervisor.tasks()), "snapshot": (Snapshot(), lambda s: s.snapshot())}


@pytest.mark.parametrize("call", [*CALLS, *LOOKS])
def test_before_the_start_a_call_says_what_is_missing(call, nothing_is_left):
    supervisor = Supervisor()
    with pytest.raises(NotStartedError, match="start"):
        (CALLS.get(call) or LOOKS[call][1])(supervisor)
    assert our_threads() == []
    supervisor.shutdown()


@pytest.mark.parametrize("call", CALLS)
def test_after_the_end_a_call_says_so(start, call):
    supervisor = start()
    supervisor.shutdown()
    with pytest.raises(SupervisorClosedError):
        CALLS[call](supervisor)


@pytest.mark.parametrize("look", LOOKS)
def test_after_the_end_there_is_nothing_to_see(start, look):
    supervisor = start()
    supervisor.submit(noop)
    supervisor.shutdown()
    empty, call = LOOKS[look]
    assert call(supervisor) == empty


@pytest.mark.parametrize("call", ["remove", "cancel", "submit", "try_submit"])
def test_during_the_shutdown_a_call_says_so(start, body, call):
    supervisor = start(grace=60)
    work = body(stubborn=True)
    supervisor.submit(work, slot="k")
    assert work.is_inside()
    shutdown = call_in_thread(supervisor.shutdown)
    assert eventually(lambda: supervisor._core.intake.closed)
    with pytest.raises(SupervisorClosedError):
        CALLS[call](supervisor)
    assert supervisor.snapshot().slot("k").status is SlotStatus.RUNNING
    work.let_go()
    assert shutdown().clean


def test_a_body_that_ignores_the_shutdown_is_named_and_warned_of(body, nothing_is_left):
    work = body(stubborn=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Supervisor(grace=0.02) as supervisor:
            handle = supervisor.submit(TaskSpec.once(work, name="stubborn"), slot="k")
            supervisor.submit(body(), slot="listens")
            assert work.is_inside()
    assert ["stubborn" in str(warning.message) for warning in caught] == [True]
    assert caught[0].filename == __file__
    assert handle.outcome(0) == ForceAborted()
    report = supervisor.shutdown()
    assert (report.clean, report.stuck, report.still_inside) == (False, ("stubborn",), ("stubborn",))
    work.let_go()


def test_a_body_that_lingers_from_before_is_inside_and_not_stuck(start, body):
    supervisor = start(grace=0)
    work = body(stubborn=True)
    handle = supervisor.submit(TaskSpec.once(work, name="before"), slot="k")
    assert work.is_inside()
    handle.cancel()
    assert outcome_of(handle) == ForceAborted()
    report = supervisor.shutdown()
    assert (report.stuck, report.still_inside) == ((), ("before",))


@pytest.mark.parametrize("call", [Supervisor.shutdown, Supervisor.join], ids=["shutdown", "join"])
def test_a_body_can_not_wait_for_the_end_of_everything(supervisor, call):
    outcome = outcome_of(supervisor.submit(lambda _ctx: call(supervisor), slot="k"))
    assert isinstance(outcome.error, RuntimeError)
    assert "inside the body" in outcome.reason


def test_a_body_can_not_wait_for_its_own_cancellation(supervisor):
    outcome = outcome_of(supervisor.submit(lambda ctx: supervisor.cancel(ctx.task_id), slot="k"))
    assert isinstance(outcome.error, RuntimeError)


def test_a_runtime_of_the_applications_own_is_shared_and_not_closed(nothing_is_left):
    runtime = open_runtime()
    with Supervisor(runtime=runtime) as first:
        with Supervisor(runtime=runtime) as second:
            assert outcome_of(second.submit(noop)) == Completed("done")
        assert outcome_of(first.submit(noop)) == Completed("done")
    assert runtime.started
    runtime.close()
    runtime.join(1)


def test_no_thread_of_its_own_is_started_before_the_start(nothing_is_left):
    before = threading.active_count()
    supervisor = Supervisor()
    assert threading.active_count() == before
    supervisor.shutdown()


def test_who_waits_for_a_cancellation_when_the_shutdown_begins_is_told(start, body):
    supervisor = start(grace=60)
    handle = supervisor.submit(work := body(stubborn=True), slot="k")
    assert work.is_inside()
    waiting = [call_in_thread(supervisor.cancel, handle.id), call_in_thread(handle.cancel, wait=True)]
    assert eventually(lambda: len(supervisor.registry._actor_weakref().callers.get(handle.id, ())) == 2)
    shutdown = call_in_thread(supervisor.shutdown)
    for join in waiting:
        with pytest.raises(SupervisorClosedError):
            join()
    work.let_go()
    assert shutdown().clean


@pytest.mark.parametrize("call", ["join", "cancel", "remove"])
def test_a_call_that_crosses_the_end_says_so(start, call):
    supervisor = start()
    report = supervisor.shutdown()
    supervisor._core.settlement.report = None  # it was looked at a moment before
    with pytest.raises(SupervisorClosedError):
        CALLS[call](supervisor)
    supervisor._core.settlement.report = report


# -- wrong arguments -----------------------------------------------------------------------------------------------

NOT_SECONDS = [(-1, ValueError), (float("nan"), ValueError), ("1", TypeError), (True, TypeError)]


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        *(("grace", value, error) for value, error in [*NOT_SECONDS, (None, TypeError)]),
        *(("observer_timeout", value, error) for value, error in [*NOT_SECONDS, (None, TypeError)]),
        ("limits", 100, TypeError),
        ("limits", {"intake": 1}, TypeError),
        ("defaults", {"max_retries": 1}, TypeError),
    ],
)
def test_a_wrong_setting_is_refused_and_named(nothing_is_left, setting, value, error):
    with pytest.raises(error, match=setting):
        Supervisor(**{setting: value})
    assert our_threads() == []


WRONG_CALLS = [
    ("body", TypeError, lambda s: s.submit(5)),
    ("body", TypeError, lambda s: s.submit(None)),
    ("body", TypeError, lambda s: s.submit("noop")),
    ("slot", TypeError, lambda s: s.submit(noop, slot=1)),
    ("slot", TypeError, lambda s: s.submit(noop, slot=b"k")),
    ("slot", TypeError, lambda s: s.submit(noop, slot=["k"])),
    ("slot", TypeError, lambda s: s.submit(noop, slot=("k", "l"))),
    ("slot", TypeError, lambda s: s.submit(noop, slot={"k": {}})),
    ("slot", ValueError, lambda s: s.submit(noop, slot="")),
    ("policy", ValueError, lambda s: s.submit(noop, slot="k", policy="newest")),
    ("policy", ValueError, lambda s: s.submit(noop, slot="k", policy=None)),
    ("slot and policy", TypeError, lambda s: s.submit(Submission(noop), slot="k")),
    ("slot and policy", TypeError, lambda s: s.submit(Submission(noop), policy="replace")),
    ("slot", TypeError, lambda s: s.try_submit(noop, slot=1)),
    ("name", TypeError, lambda s: s.submit(TaskSpec.once(noop, name=1))),
    ("name", ValueError, lambda s: s.submit(TaskSpec.once(noop, name=""))),
    ("args", TypeError, lambda s: s.submit(TaskSpec.once(noop, args="tenant"))),
    ("kwargs", TypeError, lambda s: s.submit(TaskSpec.once(noop, kwargs=["tenant"]))),
    ("attempt_timeout", ValueError, lambda s: s.submit(TaskSpec.once(noop, attempt_timeout=0))),
    ("attempt_timeout", TypeError, lambda s: s.submit(TaskSpec.once(noop, attempt_timeout="1"))),
    ("max_retries", ValueError, lambda s: s.submit(TaskSpec.restartable(noop, max_retries=-1))),
    ("max_retries", TypeError, lambda s: s.submit(TaskSpec.restartable(noop, max_retries=1.0))),
    ("backoff", TypeError, lambda s: s.submit(TaskSpec.restartable(noop, backoff=1))),
    ("every", ValueError, lambda s: s.submit(TaskSpec.periodic(noop, -1))),
    ("target", TypeError, lambda s: s.remove(5)),
    ("target", TypeError, lambda s: s.cancel(None)),
    *[("timeout", error, lambda s, value=value: s.join(value)) for value, error in NOT_SECONDS],
    *[("timeout", error, lambda s, value=value: s.cancel("k", timeout=value)) for value, error in NOT_SECONDS],
]


@pytest.mark.parametrize(("parameter", "error", "call"), WRONG_CALLS)
def test_a_wrong_argument_is_refused_and_named_and_starts_nothing(supervisor, parameter, error, call):
    with pytest.raises(error, match=parameter):
        call(supervisor)
    assert supervisor.snapshot() == Snapshot()
    assert supervisor._core.intake.inside == 0


def test_what_is_looked_for_under_a_wrong_timeout_goes_on(supervisor, body):
    handle = supervisor.submit(work := body(), slot="k")
    assert work.is_inside()
    with pytest.raises(ValueError, match="timeout"):
        supervisor.cancel(handle.id, timeout=-1)
    assert not work.ctx.cancelled


def test_durations_may_be_timedeltas(start, body):
    supervisor = start(grace=timedelta(milliseconds=10), observer_timeout=timedelta(seconds=1))
    spec = TaskSpec.once(body(), attempt_timeout=timedelta(milliseconds=10))
    assert isinstance(outcome_of(supervisor.submit(spec, slot="k")), Failed)
    supervisor.join(timeout=timedelta(seconds=1))
    assert supervisor.shutdown().grace == 0.01


# -- context variables ---------------------------------------------------------------------------------------------

request_id = contextvars.ContextVar("request_id", default="none")


@pytest.mark.parametrize("coroutine", [False, True], ids=["thread", "coroutine"])
def test_a_body_sees_the_context_of_whoever_submitted_it(supervisor, coroutine):
    seen = []

    def look(ctx):
        seen.append((ctx.task, ctx.attempt, request_id.get()))
        request_id.set("dirty")
        if ctx.task == "a" and ctx.attempt == 1:
            raise ValueError

    async def look_async(ctx):
        look(ctx)

    def submit(name):
        spec = TaskSpec.restartable(look_async if coroutine else look, name=name, backoff=Backoff.constant(0))
        return supervisor.submit(spec, slot="k")

    def request(value, name):
        request_id.set(value)
        handle = submit(name)
        assert request_id.get() == value
        return handle

    handles = [contextvars.Context().run(request, "req-1", "a"), contextvars.Context().run(request, "req-2", "b")]
    handles.append(contextvars.Context().run(submit, "c"))
    assert {outcome_of(handle) for handle in handles} == {Completed(None)}
    assert seen == [("a", 1, "req-1"), ("a", 2, "req-1"), ("b", 1, "req-2"), ("c", 1, "none")]
    assert request_id.get() == "none"


# -- when nobody shuts it down -------------------------------------------------------------------------------------

PREAMBLE = """
import asyncio, threading, time
from actors import Supervisor
from admission import Backoff, TaskSpec

def fails_once(ctx):
    if ctx.attempt == 1:
        raise ValueError("the first time")

def ignores(ctx):
    inside.set()
    time.sleep(60)

async def listens(ctx):
    inside.set()
    await asyncio.sleep(60)

inside = threading.Event()
supervisor = Supervisor().start()
"""
EXITS = {
    "nothing was ever submitted": "",
    "a job pauses and another waits": """
supervisor.submit(TaskSpec.restartable(fails_once, backoff=Backoff.constant(5)), slot="k")
supervisor.submit(lambda ctx: None, slot="k")
""",
    "a body sleeps on": "supervisor.submit(ignores, slot='k'); inside.wait(5)",
    "a coroutine sleeps on": "supervisor.submit(listens, slot='k'); inside.wait(5)",
    "it is in the middle of everything": """
for number in range(200):
    supervisor.submit(lambda ctx: None, slot=f"s{number % 7}")
""",
}


def run_script(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize("end", EXITS)
def test_a_script_that_just_ends_ends_in_order(end):
    times = 5 if "pauses" in end else 1
    for join in [call_in_thread(run_script, PREAMBLE + EXITS[end]) for _ in range(times)]:
        done = join(timeout=20)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_script_that_fails_ends_with_its_own_error():
    done = run_script(PREAMBLE + "supervisor.submit(ignores, slot='k'); inside.wait(5); raise KeyError('mine')")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("KeyError: 'mine'")
    assert done.stderr.count("Traceback") == 1
