"""The vocabulary of events, and the record of one."""

from __future__ import annotations

from dataclasses import fields

from admission import BackoffSource, Event, EventKind, TaskId

LABELS = """
    submission_accepted submission_rejected slot_transition
    task_add_requested task_added task_add_failed task_remove_requested
    attempt_starting attempt_succeeded attempt_cancelled attempt_failed attempt_timed_out backoff_scheduled
    task_finished task_removed
    shutdown_requested all_stopped_within_grace grace_exceeded
    runtime_failure subscriber_panicked subscriber_overflow
    slot_created slot_retired body_entered body_left attempt_released shutdown_finished
"""


def test_the_labels_of_events_are_stable():
    assert set(LABELS.split()) <= set(EventKind)


def test_diagnostics_are_about_the_machinery_and_its_observers():
    assert [kind for kind in EventKind if kind.is_diagnostic] == [
        "runtime_failure",
        "subscriber_panicked",
        "subscriber_overflow",
    ]


def test_whoever_changes_the_copy_of_an_event_changes_nothing_else():
    event = Event(1, EventKind.TASK_ADDED, 2.0, 3.0, TaskId(4), "task", "slot", 5, {"x": 6})
    copy = event.copy()
    names = [each.name for each in fields(Event)]
    assert [getattr(copy, name) for name in names] == [getattr(event, name) for name in names]
    copy.fields["x"] = 7
    assert event.fields == {"x": 6}


def test_a_backoff_follows_a_success_or_a_failure():
    assert list(BackoffSource) == ["success", "failure"]


def test_events_do_not_share_their_fields():
    one, other = (Event(seq, EventKind.TASK_ADDED, at=0.0, mono=0.0) for seq in (1, 2))
    one.fields["x"] = 1
    assert other.fields == {}
