"""What bodies raise and callers catch."""

from __future__ import annotations

import copy

import pytest

from admission import (
    AttemptTimeoutError,
    FatalError,
    IntakeFullError,
    NotStartedError,
    RejectionKind,
    SlotkeeperError,
    SubmissionRejectedError,
    SupervisorClosedError,
    TaskAbortedError,
    TaskCancelledError,
    TaskFailedError,
    TaskId,
    TaskPanickedError,
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


def test_a_rejection_says_why_and_which_submission_was_the_cause():
    error = SubmissionRejectedError(RejectionKind.SUPERSEDED_BY_REPLACE, "newer", TaskId(9))
    assert (error.kind, error.reason, error.cause_id) == (RejectionKind.SUPERSEDED_BY_REPLACE, "newer", TaskId(9))
    assert str(error) == "superseded_by_replace: newer"
