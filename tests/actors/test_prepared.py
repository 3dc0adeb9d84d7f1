"""A prepared submission: an id that is known before anything is handed in."""

from __future__ import annotations

import threading

import pytest

from actors import Supervisor
from admission import AdmissionLimits, Completed, IntakeFullError, NotStartedError, Submission, SupervisorClosedError
from tests.actors.support import SOON, noop, outcome_of


def test_its_id_is_the_one_of_the_submission(supervisor):
    prepared = supervisor.prepare(noop, slot="k", policy="replace")
    handle = prepared.submit()
    assert handle.id == prepared.id
    assert outcome_of(handle) == Completed("done")


def test_it_takes_a_submission_as_well(supervisor):
    submission = Submission(noop, slot="k")
    prepared = supervisor.prepare(submission)
    assert prepared.submission is submission
    assert outcome_of(prepared.try_submit()) == Completed("done")


def test_it_is_handed_in_once(supervisor):
    prepared = supervisor.prepare(noop, slot="k")
    prepared.submit()
    for again in (prepared.submit, prepared.try_submit):
        with pytest.raises(RuntimeError, match="prepare another"):
            again()
    assert "submitted" in repr(prepared)


def test_of_many_threads_one_hands_it_in(supervisor):
    prepared = supervisor.prepare(noop, slot="k")
    together, handles, errors = threading.Barrier(8), [], []

    def hand_in():
        together.wait(SOON)
        try:
            handles.append(prepared.submit())
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=hand_in) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert (len(handles), len(errors)) == (1, 7)


def test_dropping_it_is_silent(supervisor):
    before = supervisor.prepare(noop).id
    assert supervisor.prepare(noop).id == before + 1
    assert supervisor.tasks() == []


def test_what_could_not_be_handed_in_may_be_tried_again(start, body):
    supervisor = start(limits=AdmissionLimits(intake=1))
    prepared = supervisor.prepare(noop, slot="k")
    assert supervisor._core.intake.take()
    with pytest.raises(IntakeFullError):
        prepared.try_submit()
    supervisor._core.intake.give()
    assert outcome_of(prepared.try_submit()) == Completed("done")


def test_it_may_be_prepared_before_the_start_and_not_submitted(nothing_is_left):
    supervisor = Supervisor()
    prepared = supervisor.prepare(noop, slot="k")
    with pytest.raises(NotStartedError):
        prepared.submit()
    with supervisor:
        assert outcome_of(prepared.submit()) == Completed("done")
    late = supervisor.prepare(noop)
    with pytest.raises(SupervisorClosedError):
        late.submit()
