"""How a submission ended: exactly one of these, exactly once.

The union is closed until 2.0, so `assert_never` after a full match is safe. Reasons are for people; code looks at
the type, at `Rejected.kind` and at `exit_code`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeAlias, TypeVar

from admission.labels import Label

if TYPE_CHECKING:
    from admission.identity import TaskId

__all__ = [
    "Cancelled",
    "Completed",
    "Failed",
    "Fatal",
    "ForceAborted",
    "Outcome",
    "OutcomeKind",
    "Panicked",
    "Rejected",
    "RejectionKind",
]

T_co = TypeVar("T_co", covariant=True)


class OutcomeKind(Label):
    """The label of an outcome in events and logs."""

    COMPLETED = "outcome_completed"
    FAILED = "outcome_failed"
    FATAL = "outcome_fatal"
    CANCELLED = "outcome_cancelled"
    FORCE_ABORTED = "outcome_force_aborted"
    PANICKED = "outcome_panicked"
    REJECTED = "outcome_rejected"


class RejectionKind(Label):
    """Why a body never ran. May grow in a minor release: match with a wildcard arm."""

    ALREADY_EXISTS = "already_exists"
    """The task name belongs to a registered run, or to a body that still runs after its outcome."""
    BATCH_REJECTED = "batch_rejected"
    """An innocent member of a batch that was rejected as a whole."""
    SLOT_BUSY = "slot_busy"
    """DROP_IF_RUNNING on a busy slot."""
    QUEUE_FULL = "queue_full"
    """QUEUE behind `max_slot_queue` waiting submissions."""
    SUPERSEDED_BY_REPLACE = "superseded_by_replace"
    """It waited at the head of the line when a newer REPLACE took that place; `cause_id` is the newer one."""
    REMOVED_FROM_QUEUE = "removed_from_queue"
    """Removed or cancelled by id while it waited."""
    SHUTTING_DOWN = "shutting_down"
    """Not admitted when shutdown began."""
    ADMISSION_FAILED = "admission_failed"
    """An internal fault during admission; a `runtime_failure` record says which."""
    RESOURCE_LIMIT = "resource_limit"
    """A limit of `AdmissionLimits` was reached."""


@dataclass(frozen=True, slots=True)
class Completed(Generic[T_co]):
    """The last attempt returned and no other follows; `value` is what it returned."""

    value: T_co
    label: ClassVar[OutcomeKind] = OutcomeKind.COMPLETED


@dataclass(frozen=True, slots=True)
class Failed:
    """A retryable failure that was not retried: the policy or the retry limit says stop.

    `error` is the body's own exception object (an `AttemptTimeoutError` for a timeout).
    """

    reason: str
    error: BaseException
    exit_code: int | None = None
    label: ClassVar[OutcomeKind] = OutcomeKind.FAILED


@dataclass(frozen=True, slots=True)
class Fatal:
    """The body reported a permanent failure; `error` is its exception object."""

    reason: str
    error: BaseException
    exit_code: int | None = None
    label: ClassVar[OutcomeKind] = OutcomeKind.FATAL


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Cancellation was requested, or reported by the body."""

    label: ClassVar[OutcomeKind] = OutcomeKind.CANCELLED


@dataclass(frozen=True, slots=True)
class ForceAborted:
    """The body did not stop within its grace. Its code may still run; the slot stays taken until it has left."""

    label: ClassVar[OutcomeKind] = OutcomeKind.FORCE_ABORTED


@dataclass(frozen=True, slots=True)
class Panicked:
    """An internal fault ended the run. If its body was inside, the slot stays taken until it has left."""

    reason: str
    label: ClassVar[OutcomeKind] = OutcomeKind.PANICKED


@dataclass(frozen=True, slots=True)
class Rejected:
    """The body never ran; `kind` says why, `cause_id` names the submission that caused it, if one did."""

    kind: RejectionKind
    reason: str
    cause_id: TaskId | None = None
    label: ClassVar[OutcomeKind] = OutcomeKind.REJECTED

    def event_fields(self) -> dict[str, object]:
        """Return what events and log records say of it."""
        fields: dict[str, object] = {
            "outcome_kind": self.label,
            "rejection_kind": self.kind,
            "reason": self.reason,
        }
        if self.cause_id is not None:
            fields["cause_id"] = int(self.cause_id)
        return fields


Outcome: TypeAlias = Completed[T_co] | Failed | Fatal | Cancelled | ForceAborted | Panicked | Rejected
