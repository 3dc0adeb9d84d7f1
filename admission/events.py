"""What is told to observers: the kinds of lifecycle events, and the record of one.

Events are observability. They drive nothing: losing any of them changes nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from admission.labels import Label

if TYPE_CHECKING:
    from admission.identity import TaskId

__all__ = ["DIAGNOSTICS", "BackoffSource", "Event", "EventKind"]


class BackoffSource(Label):
    """What a pause between attempts follows."""

    SUCCESS = "success"
    FAILURE = "failure"


class EventKind(Label):
    """What happened. Labels are stable; new kinds may come in a minor release."""

    # Admission.
    SUBMISSION_ACCEPTED = "submission_accepted"
    SUBMISSION_REJECTED = "submission_rejected"
    SLOT_TRANSITION = "slot_transition"
    TASK_ADD_REQUESTED = "task_add_requested"
    TASK_ADDED = "task_added"
    TASK_ADD_FAILED = "task_add_failed"
    TASK_REMOVE_REQUESTED = "task_remove_requested"
    # Attempts.
    ATTEMPT_STARTING = "attempt_starting"
    ATTEMPT_SUCCEEDED = "attempt_succeeded"
    ATTEMPT_CANCELLED = "attempt_cancelled"
    ATTEMPT_FAILED = "attempt_failed"
    ATTEMPT_TIMED_OUT = "attempt_timed_out"
    BACKOFF_SCHEDULED = "backoff_scheduled"
    # The end of a run.
    TASK_FINISHED = "task_finished"
    TASK_REMOVED = "task_removed"
    # The end of everything.
    SHUTDOWN_REQUESTED = "shutdown_requested"
    ALL_STOPPED_WITHIN_GRACE = "all_stopped_within_grace"
    GRACE_EXCEEDED = "grace_exceeded"
    # Diagnostics: faults of the machinery itself, and of whoever listens.
    RUNTIME_FAILURE = "runtime_failure"
    SUBSCRIBER_PANICKED = "subscriber_panicked"
    SUBSCRIBER_OVERFLOW = "subscriber_overflow"
    # Only in the log.
    SLOT_CREATED = "slot_created"
    SLOT_RETIRED = "slot_retired"
    BODY_ENTERED = "body_entered"
    BODY_LEFT = "body_left"
    ATTEMPT_RELEASED = "attempt_released"
    SHUTDOWN_FINISHED = "shutdown_finished"

    @property
    def is_diagnostic(self) -> bool:
        """Whether it tells of the machinery and of subscribers, and not of work. Nothing is reported about one."""
        return self in DIAGNOSTICS


DIAGNOSTICS: Final = frozenset(
    {EventKind.RUNTIME_FAILURE, EventKind.SUBSCRIBER_PANICKED, EventKind.SUBSCRIBER_OVERFLOW}
)
"""The kinds whose loss and whose faults are not reported: reporting would never end."""


@dataclass(slots=True, eq=False)
class Event:
    """One thing that happened.

    `seq` orders the records of one supervisor, `mono` is the monotonic clock in seconds, `at` the wall clock in seconds
    since the epoch (for people). `fields` holds what is particular to the kind.
    """

    seq: int
    kind: EventKind
    at: float
    mono: float
    id: TaskId | None = None
    task: str | None = None
    slot: str | None = None
    attempt: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Event:
        """Return the same for somebody who may change it."""
        fields = dict(self.fields)
        return Event(self.seq, self.kind, self.at, self.mono, self.id, self.task, self.slot, self.attempt, fields)
