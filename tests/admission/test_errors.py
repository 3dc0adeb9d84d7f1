"""What bodies raise and callers catch."""

from __future__ import annotations

import copy

import pytest

from admission import (
    AlreadyRunningError,
    AttemptTimeoutError,
    FatalError,
    IntakeFullError,
    NotStartedError,
    RejectionKind,
    ResourceLimitError,
    SlotkeeperError,
    SubmissionRejectedError,
    SupervisorClosedError,
    TaskAbortedError,
    TaskCancelledError,
    TaskExistsError,
    TaskFailedError,
    TaskId,
    TaskPanickedError,
    TaskTerminationTimeoutError,
)
from tests.admission.support import pickled

ERRORS = [
    (TaskFailedError("boom", exit_code=42), "task_failed"),
    (FatalError("boom", exit_code=42), "task_fatal"),
    (TaskCancelledError("stop"), "task_cancelled"),
    (AttemptTimeoutError(1.5), "task_timeout"),
    (TaskAbortedError("given up"), "task_force_aborted"),
    (TaskPanickedError("bug"), "task_panicked"),
    (SubmissionRejectedError(RejectionKind.SLOT_BUSY, "busy", TaskId(3)), "submission_rejected"),
    (IntakeFullError("full"), "intake_full"),
    (SupervisorClosedError("closed"), "shutting_down"),
    (NotStartedError("not yet"), "not_started"),
    (AlreadyRunningError("once"), "already_running"),
    (TaskExistsError("svc"), "task_already_exists"),
    (ResourceLimitError("max_tasks", 3), "resource_limit_reached"),
    (TaskTerminationTimeoutError(TaskId(3), 0.5), "task_termination_timeout"),
]
each_error = pytest.mark.parametrize(("error", "label"), ERRORS, ids=[label for _, label in ERRORS])


@each_error
def test_every_error_has_its_label_and_the_common_base(error, label):
    assert error.label == label
    assert isinstance(error, SlotkeeperError)


@each_error
@pytest.mark.parametrize("copied", [copy.copy, pickled])
def test_an_error_survives_the_way_to_another_process(error, label, copied):
    other = copied(error)
    assert type(other) is type(error)
    assert (str(other), vars(other)) == (str(error), vars(error))


@pytest.mark.parametrize("kind", [TaskFailedError, FatalError])
def test_a_failure_carries_its_reason_and_maybe_an_exit_code(kind):
    error = kind("boom", exit_code=42)
    assert (str(error), error.reason, error.exit_code) == ("boom", "boom", 42)
    assert kind("boom").exit_code is None


def test_a_timeout_is_a_timeout_error_to_anybody():
    error = AttemptTimeoutError(1.5)
    assert isinstance(error, TimeoutError)
    assert (str(error), error.timeout) == ("attempt timed out after 1.5 s", 1.5)


def test_a_run_that_does_not_end_in_time_is_a_timeout_error_too():
    error = TaskTerminationTimeoutError(TaskId(3), 0.5)
    assert isinstance(error, TimeoutError)
    assert (str(error), error.id, error.timeout) == ("#3 has not ended 0.5 s after it was asked to", 3, 0.5)


def test_what_could_not_be_added_says_why():
    assert (str(TaskExistsError("svc")), TaskExistsError("svc").name) == (
        "a run named 'svc' is registered or still inside its body, or named twice in this batch",
        "svc",
    )
    limit = ResourceLimitError("max_tasks", 3)
    assert (str(limit), limit.resource, limit.limit) == ("max_tasks (3) would be exceeded", "max_tasks", 3)


def test_a_rejection_says_why_and_which_submission_was_the_cause():
    error = SubmissionRejectedError(RejectionKind.SUPERSEDED_BY_REPLACE, "newer", TaskId(9))
    assert (error.kind, error.reason, error.cause_id) == (RejectionKind.SUPERSEDED_BY_REPLACE, "newer", TaskId(9))
    assert str(error) == "superseded_by_replace: newer"
