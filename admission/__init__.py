"""What is decided about keyed admission: values, and the pure state machines behind the actors."""

from admission.backoff import Backoff, Jitter
from admission.errors import (
    AlreadyRunningError,
    AttemptTimeoutError,
    FatalError,
    IntakeFullError,
    NotStartedError,
    ResourceLimitError,
    SlotkeeperError,
    SubmissionRejectedError,
    SupervisorClosedError,
    TaskAbortedError,
    TaskCancelledError,
    TaskExistsError,
    TaskFailedError,
    TaskPanickedError,
    TaskTerminationTimeoutError,
)
from admission.events import BackoffSource, Event, EventKind
from admission.identity import TaskId
from admission.limits import AdmissionLimits
from admission.outcome import (
    Cancelled,
    Completed,
    Failed,
    Fatal,
    ForceAborted,
    Outcome,
    OutcomeKind,
    Panicked,
    Rejected,
    RejectionKind,
)
from admission.policy import AdmissionPolicy, RestartPolicy
from admission.report import ShutdownReport
from admission.snapshot import Explanation, SlotStatus, SlotView, Snapshot, WaitsFor
from admission.spec import INHERIT, Submission, TaskDefaults, TaskSpec

__all__ = [
    "INHERIT",
    "AdmissionLimits",
    "AdmissionPolicy",
    "AlreadyRunningError",
    "AttemptTimeoutError",
    "Backoff",
    "BackoffSource",
    "Cancelled",
    "Completed",
    "Event",
    "EventKind",
    "Explanation",
    "Failed",
    "Fatal",
    "FatalError",
    "ForceAborted",
    "IntakeFullError",
    "Jitter",
    "NotStartedError",
    "Outcome",
    "OutcomeKind",
    "Panicked",
    "Rejected",
    "RejectionKind",
    "ResourceLimitError",
    "RestartPolicy",
    "ShutdownReport",
    "SlotStatus",
    "SlotView",
    "SlotkeeperError",
    "Snapshot",
    "Submission",
    "SubmissionRejectedError",
    "SupervisorClosedError",
    "TaskAbortedError",
    "TaskCancelledError",
    "TaskDefaults",
    "TaskExistsError",
    "TaskFailedError",
    "TaskId",
    "TaskPanickedError",
    "TaskSpec",
    "TaskTerminationTimeoutError",
    "WaitsFor",
]
