"""A slot without a registry: the same messages, the same outcomes, one key."""

from __future__ import annotations

import threading

import pykka
import pytest

from actors import Cancel, Join, Remove, Shutdown, SlotActor, Snapshot, Submit, TaskHandle, Tasks
from admission import (
    AdmissionLimits,
    Backoff,
    Cancelled,
    Completed,
    Failed,
    ForceAborted,
    RejectionKind,
    ShutdownReport,
    SlotStatus,
    Submission,
    SupervisorClosedError,
    TaskDefaults,
    TaskSpec,
)
from admission.slot import LEGAL_EDGES
from tests.actors.support import SOON, Log, eventually, noop, outcome_of


def ask(slot, message):
    return slot.ask(message, timeout=SOON)


def submit(slot, work, policy="queue"):
    return ask(slot, Submit(Submission(work, policy=policy)))


def test_it_takes_work_that_names_its_slot_or_none(lone_slot):
    assert isinstance(submit(lone_slot, noop), TaskHandle)
    assert submit(lone_slot, noop).slot == "alone"
    assert outcome_of(ask(lone_slot, Submit(Submission(noop, slot="alone")))) == Completed("done")


def test_it_refuses_work_for_another_slot_asked_or_told(lone_slot, body):
    with pytest.raises(ValueError, match="'alone'"):
        ask(lone_slot, Submit(Submission(noop, slot="other")))
    elsewhere = body()
    lone_slot.tell(Submit(Submission(elsewhere, slot="other")))
    assert outcome_of(submit(lone_slot, noop)) == Completed("done")
    assert elsewhere.runs == 0


def test_its_jobs_never_overlap_and_run_in_order(lone_slot, body):
    order, owner = [], body()
    first = submit(lone_slot, owner)
    handles = [submit(lone_slot, TaskSpec.once(lambda _ctx, n: order.append(n), args=(n,))) for n in range(3)]
    assert owner.is_inside()
    assert order == []
    owner.let_go()
    assert {outcome_of(handle) for handle in [first, *handles]} == {Completed(None)}
    assert order == [0, 1, 2]


def test_replace_and_drop_mean_what_they_mean_elsewhere(lone_slot, body):
    owner = body()
    running = submit(lone_slot, owner)
    assert owner.is_inside()
    assert outcome_of(submit(lone_slot, noop, "drop_if_running")).kind is RejectionKind.SLOT_BUSY
    assert outcome_of(submit(lone_slot, noop, "replace")) == Completed("done")
    assert outcome_of(running) == Cancelled()


def test_names_are_not_compared(lone_slot, body):
    running = submit(lone_slot, TaskSpec.once(owner := body(), name="same"))
    assert owner.is_inside()
    behind = submit(lone_slot, TaskSpec.once(noop, name="same"))
    owner.let_go()
    assert outcome_of(running) == Completed(None)
    assert outcome_of(behind) == Completed("done")


def test_it_is_asked_like_a_registry(lone_slot, body):
    assert len(ask(lone_slot, Snapshot())) == 0
    running = submit(lone_slot, TaskSpec.once(owner := body(), name="job"))
    waiting = submit(lone_slot, noop)
    assert owner.is_inside()
    view = ask(lone_slot, Snapshot()).slot("alone")
    assert (view.status, view.owner_id, view.queue_depth) == (SlotStatus.RUNNING, running.id, 1)
    assert ask(lone_slot, Tasks()) == [(running.id, "job")]
    assert ask(lone_slot, Remove(waiting.id)) is True
    assert ask(lone_slot, Remove(waiting.id)) is False
    assert ask(lone_slot, Cancel("job")) is True
    assert outcome_of(running) == Cancelled()
    assert ask(lone_slot, Join()) is None
    assert not running.cancel()


def test_its_handles_cancel_as_others_do(lone_slot, body):
    running, waiting = submit(lone_slot, owner := body()), submit(lone_slot, noop)
    assert owner.is_inside()
    assert waiting.cancel()
    assert running.cancel(wait=True, timeout=SOON)
    assert outcome_of(waiting).kind is RejectionKind.REMOVED_FROM_QUEUE


def test_a_join_is_answered_when_its_work_is_done(lone_slot, body):
    submit(lone_slot, owner := body())
    joined = lone_slot.ask(Join(), block=False)
    owner.let_go()
    assert joined.get(timeout=SOON) is None


def test_its_settings_are_a_registrys(runtime, body):
    slot = SlotActor.start(
        "alone",
        runtime=runtime,
        grace=0,
        limits=AdmissionLimits(max_slot_queue=1),
        defaults=TaskDefaults(max_retries=1, backoff=Backoff.constant(0)),
    )
    fails = body(raises=ValueError())
    fails.let_go()
    assert isinstance(outcome_of(submit(slot, TaskSpec.from_defaults(fails))), Failed)
    assert fails.runs == 2
    running = submit(slot, stubborn := body(stubborn=True))
    handles = [submit(slot, noop) for _ in range(2)]
    assert outcome_of(handles[1]).kind is RejectionKind.QUEUE_FULL
    assert stubborn.is_inside()
    assert running.cancel()
    assert outcome_of(running) == ForceAborted()
    assert ask(slot, Snapshot()).slot("alone").status is SlotStatus.TERMINATING
    stubborn.let_go()
    assert outcome_of(handles[0]) == Completed("done")


def test_its_permits_have_a_limit_too(runtime, body):
    slot = SlotActor.start("alone", runtime=runtime, limits=AdmissionLimits(max_concurrent=1))
    for _ in range(3):
        assert outcome_of(submit(slot, noop)) == Completed("done")


def test_a_shutdown_cancels_and_turns_away_and_reports_once_to_all(runtime, body):
    log = Log()
    slot = SlotActor.start("alone", runtime=runtime, grace=1, logger=log)
    running, waiting = submit(slot, owner := body(stubborn=True)), submit(slot, noop)
    assert owner.is_inside()
    reports = [slot.ask(Shutdown(), block=False) for _ in range(3)]
    assert outcome_of(waiting).kind is RejectionKind.SHUTTING_DOWN
    assert outcome_of(submit(slot, noop)).kind is RejectionKind.SHUTTING_DOWN
    with pytest.raises(SupervisorClosedError):
        ask(slot, Cancel(running.id))
    owner.let_go()
    assert {report.get(timeout=SOON) for report in reports} == {ShutdownReport(clean=True, grace=1)}
    assert outcome_of(running) == Cancelled()
    assert not slot.is_alive()
    with pytest.raises(pykka.ActorDeadError):
        ask(slot, Snapshot())
    assert log.records[-1][0] == "shutdown_finished"
    edges = [(fields["from_phase"], fields["to_phase"]) for fields in log.of("slot_transition")]
    assert set(edges) <= {(str(before), str(after)) for before, after in LEGAL_EDGES}
    assert [before for before, _ in edges[1:]] == [after for _, after in edges[:-1]]


def test_a_stop_gives_up_what_runs(runtime, body):
    slot = SlotActor.start("alone", runtime=runtime, grace=60)
    running, waiting = submit(slot, stubborn := body(stubborn=True)), submit(slot, noop)
    assert stubborn.is_inside()
    stopped = slot.stop(block=False)
    assert outcome_of(running) == ForceAborted()
    assert outcome_of(waiting).kind is RejectionKind.SHUTTING_DOWN
    assert stopped.get(timeout=SOON)
    assert pykka.ActorRegistry.get_all() == []
    stubborn.let_go()
    assert stubborn.left.wait(SOON)


def test_a_body_that_is_still_inside_is_named_in_the_report(runtime, body):
    slot = SlotActor.start("alone", runtime=runtime, grace=0)
    submit(slot, TaskSpec.once(stubborn := body(stubborn=True), name="stubborn"))
    assert stubborn.is_inside()
    report = ask(slot, Shutdown())
    assert (report.clean, report.stuck, report.still_inside) == (False, ("stubborn",), ("stubborn",))


@pytest.mark.parametrize(
    ("key", "settings", "error", "named"),
    [
        (1, {}, TypeError, "key"),
        ("", {}, ValueError, "key"),
        ("k", {"grace": -1}, ValueError, "grace"),
        ("k", {"observer_timeout": "1"}, TypeError, "observer_timeout"),
    ],
)
def test_a_wrong_setting_is_refused_and_starts_nothing(runtime, key, settings, error, named):
    with pytest.raises(error, match=named):
        SlotActor.start(key, runtime=runtime, **settings)
    assert pykka.ActorRegistry.get_all() == []


def test_two_slots_alone_share_a_runtime_and_nothing_else(runtime, body):
    first, second = (SlotActor.start(key, runtime=runtime) for key in "ab")
    running = submit(first, owner := body())
    assert owner.is_inside()
    assert outcome_of(submit(second, noop)) == Completed("done")
    assert second.stop(timeout=SOON)
    owner.let_go()
    assert outcome_of(running) == Completed(None)


def test_a_thousand_slots_alone_add_no_thread(runtime):
    before = threading.active_count()
    slots = [SlotActor.start(f"s{number}", runtime=runtime) for number in range(1000)]
    assert threading.active_count() <= before + 20  # the few that write the logs of all of them
    handles = [submit(slot, noop) for slot in slots[::100]]
    assert {outcome_of(handle) for handle in handles} == {Completed("done")}
    assert eventually(lambda: len(pykka.ActorRegistry.get_all()) == 1000)
