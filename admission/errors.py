"""What bodies raise to say how they ended, and what callers catch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from admission.identity import TaskId
    from admission.outcome import RejectionKind

__all__ = [
    "AlreadyRunningError",
    "AttemptTimeoutError",
    "FatalError",
    "IntakeFullError",
    "NotStartedError",
    "ResourceLimitError",
    "SlotkeeperError",
    "SubmissionRejectedError",
    "SupervisorClosedError",
    "TaskAbortedError",
    "TaskCancelledError",
    "TaskExistsError",
    "TaskFailedError",
    "TaskPanickedError",
    "TaskTerminationTimeoutError",
]


class SlotkeeperError(Exception):
    """Base of every error of this library. Tell them apart by type; texts are for people."""

    label: ClassVar[str] = "slotkeeper_error"


class TaskFailedError(SlotkeeperError):
    """Raised by a body: a failure that may be retried, with an exit code where there is one.

    Any other `Exception` is a retryable failure as well; this one only carries more.
    """

    label = "task_failed"
    exit_code: int | None = None  # of a subclass too that does not call this constructor

    def __init__(self, reason: str, *, exit_code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_code = exit_code


class FatalError(SlotkeeperError):
    """Raised by a body: a permanent failure; nothing is retried."""

    label = "task_fatal"
    exit_code: int | None = None

    def __init__(self, reason: str, *, exit_code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_code = exit_code


class TaskCancelledError(SlotkeeperError):
    """Raised in a body that observes its cancellation, and by `result()` of a cancelled submission."""

    label = "task_cancelled"


class AttemptTimeoutError(SlotkeeperError, TimeoutError):
    """An attempt ran longer than its `attempt_timeout`; the error of the `Failed` outcome that follows."""

    label = "task_timeout"

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self.timeout = timeout

    def __str__(self) -> str:
        return f"attempt timed out after {self.timeout:g} s"


class TaskTerminationTimeoutError(SlotkeeperError, TimeoutError):
    """A run did not end within the `timeout` of its cancellation, which stands."""

    label = "task_termination_timeout"

    def __init__(self, id_: TaskId, timeout: float) -> None:
        super().__init__(id_, timeout)
        self.id = id_
        self.timeout = timeout

    def __str__(self) -> str:
        return f"{self.id} has not ended {self.timeout:g} s after it was asked to"


class TaskAbortedError(SlotkeeperError):
    """Raised by `result()`: the body was given up after its grace; its code may still be running."""

    label = "task_force_aborted"


class TaskPanickedError(SlotkeeperError):
    """Raised by `result()`: an internal fault ended the run, not its body."""

    label = "task_panicked"


class SubmissionRejectedError(SlotkeeperError):
    """Raised by `result()`: the body never ran. `kind` says why, `cause_id` which submission was the cause."""

    label = "submission_rejected"

    def __init__(self, kind: RejectionKind, reason: str, cause_id: TaskId | None = None) -> None:
        super().__init__(kind, reason, cause_id)
        self.kind = kind
        self.reason = reason
        self.cause_id = cause_id

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class IntakeFullError(SlotkeeperError):
    """Raised by `try_submit`: as many submissions as `AdmissionLimits.intake` are waiting for a decision."""

    label = "intake_full"


class SupervisorClosedError(SlotkeeperError):
    """The supervisor has been shut down, or shutdown has begun; nothing was accepted."""

    label = "shutting_down"


class TaskExistsError(SlotkeeperError):
    """A run of this name is registered, or its body is still inside after its outcome; nothing was added."""

    label = "task_already_exists"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"a run named {self.name!r} is registered or still inside its body, or named twice in this batch"


class ResourceLimitError(SlotkeeperError):
    """A limit of `AdmissionLimits`, named in `resource`, would be exceeded; nothing was added."""

    label = "resource_limit_reached"

    def __init__(self, resource: str, limit: int) -> None:
        super().__init__(resource, limit)
        self.resource = resource
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.resource} ({self.limit}) would be exceeded"


class AlreadyRunningError(SlotkeeperError):
    """`run`, `run_until` and `run_with_os_signals` work once for a supervisor, whichever comes first."""

    label = "already_running"


class NotStartedError(SlotkeeperError):
    """The supervisor has not been started; enter its `with` block or call `start()` first."""

    label = "not_started"
