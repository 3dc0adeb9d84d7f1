"""The vocabulary of events, and the record of one."""

from __future__ import annotations

from admission import BackoffSource, Event, EventKind

LABELS = """
    submission_accepted submission_rejected slot_transition
    task_add_requested task_added task_add_failed task_remove_requested
    attempt_starting attempt_succeeded attempt_cancelled attempt_failed attempt_timed_out backoff_scheduled
    task_finished task_removed
    shutdown_requested all_stopped_within_grace grace_exceeded
    runtime_failure
    slot_created slot_retired body_entered body_left attempt_released shutdown_finished
"""


def test_the_labels_of_events_are_stable():
    assert set(LABELS.split()) <= set(EventKind)


def test_a_backoff_follows_a_success_or_a_failure():
    assert list(BackoffSource) == ["success", "failure"]


def test_events_do_not_share_their_fields():
    one, other = (Event(seq, EventKind.TASK_ADDED, at=0.0, mono=0.0) for seq in (1, 2))
    one.fields["x"] = 1
    assert other.fields == {}
