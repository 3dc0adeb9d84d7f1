"""How a run is stopped: claims in every phase, the time that its body has, timeouts, bodies that stay inside."""

from __future__ import annotations

import pytest

from admission.effects import Cause, TimerKind
from admission.outcome import Cancelled
from admission.policy import RestartPolicy
from admission.run import AttemptCancelled, AttemptRaised, AttemptReturned, RunPhase, WorkerPanicked
from admission.slot import Standing
from tests.admission.support import Run, inside

OK = AttemptReturned("done")
BOOM = AttemptRaised(ValueError("boom"), "boom")


def overdue(*args, **settings):
    """Make a run whose body was entered at 0, timed out at 1, and has not left."""
    run = inside(*args, timeout=1.0, **settings)
    run.do_fire(TimerKind.TIMEOUT, 1.0)
    return run


def reported(**settings):
    """Make a run whose body has reported its result and has not left."""
    run = inside(**settings)
    run.do_end(OK, released=False)
    return run


def lingering(**settings):
    """Make a run that was given up at 10 with its body inside."""
    run = inside(**settings)
    run.do_claim()
    run.do_fire(TimerKind.GRACE, 10.0)
    return run


def starting(**settings):
    run = Run(**settings)
    run.do_start()
    return run


# -- a claim, phase by phase ---------------------------------------------------------------------------------------


def test_a_run_that_waits_for_its_permit_gives_it_up_and_is_cancelled():
    run = starting(limited=True)
    assert run.do_claim() == ["return permit 1", "finish cancelled"]
    assert run.phase is RunPhase.OVER


@pytest.mark.parametrize("ended", [OK, BOOM])
def test_a_run_between_two_attempts_is_cancelled_at_once(ended):
    run = inside(RestartPolicy.always(5), limited=True)
    run.do_end(ended)
    assert run.do_claim() == ["cancel pause", "finish cancelled"]


@pytest.mark.parametrize("cause", [Cause.REMOVE, Cause.CANCEL, Cause.REPLACE, Cause.DRAIN])
def test_a_body_is_asked_to_stop_and_has_the_grace_for_it(cause):
    assert inside(grace=10.0).do_claim(cause, now=2.0) == [f"flag {cause}", f"stop {cause}", "set grace 12"]


@pytest.mark.parametrize("make", [starting, reported], ids=["not inside yet", "reported, not released"])
def test_an_attempt_that_has_a_worker_is_asked_to_stop_wherever_it_stands(make):
    run = make(grace=10.0)
    assert run.do_claim(now=2.0) == ["flag remove", "stop remove", "set grace 12"]


def test_a_claim_does_not_end_an_attempt_whose_body_is_not_inside_yet():
    run = starting()
    run.do_claim()
    assert run.do_enter(at=1.0) == []
    assert run.do_end(AttemptCancelled(), now=2.0) == [
        "event attempt_cancelled #1 attempt 1 duration=1.0",
        "cancel grace",
        "finish cancelled",
    ]


def test_an_overdue_body_is_asked_again_and_gets_no_more_time():
    assert overdue(grace=10.0).do_claim(now=5.0) == ["flag remove", "stop remove"]


@pytest.mark.parametrize("deadline", [None, 3.0])
@pytest.mark.parametrize("over", [False, True], ids=["lingering", "over"])
def test_a_run_with_an_outcome_can_not_be_claimed(over, deadline):
    run = lingering()
    if over:
        run.do_release()
    assert run.do_claim(Cause.DRAIN, now=2.0, deadline=deadline) is None


def test_a_claimed_run_can_not_be_claimed_again():
    run = inside()
    run.do_claim()
    assert run.do_claim(now=1.0) is None


def test_a_zero_grace_gives_up_at_once():
    assert inside(grace=0.0).do_claim(now=2.0)[-1] == "set grace 2"


# -- how a run stands ----------------------------------------------------------------------------------------------


def test_a_run_is_free_until_somebody_claims_it():
    assert inside().standing is Standing.FREE


def test_a_run_is_claimed_until_it_is_over():
    run = inside()
    run.do_claim()
    assert run.standing is Standing.CLAIMED


def test_a_timeout_claims_nothing():
    assert overdue().standing is Standing.FREE


def test_a_run_is_over_with_its_outcome_whether_its_body_has_left_or_not():
    assert lingering().standing is Standing.OVER


# -- the deadline --------------------------------------------------------------------------------------------------


def forced_by(run, deadline):
    """Let the grace timer fire; tell what is said to have forced the end."""
    told = run.do_fire(TimerKind.GRACE, deadline)
    return told[-1].partition("forced by ")[2]


def test_a_drain_brings_the_grace_of_a_claimed_run_forward():
    run = inside(grace=10.0)
    run.do_claim(now=0.0)
    assert run.do_claim(Cause.DRAIN, now=1.0, deadline=4.0) == ["set grace 4"]
    assert forced_by(run, 4.0) == "drain"


def test_a_drain_never_puts_the_grace_of_a_claimed_run_off():
    run = inside(grace=10.0)
    run.do_claim(now=0.0)
    assert run.do_claim(Cause.DRAIN, now=1.0, deadline=11.0) == []
    assert forced_by(run, 10.0) == "remove"


def test_a_drain_of_a_free_run_gives_it_until_the_deadline():
    run = inside(grace=10.0)
    assert run.do_claim(Cause.DRAIN, now=1.0, deadline=4.0) == ["flag drain", "stop drain", "set grace 4"]
    assert forced_by(run, 4.0) == "drain"


def test_a_drain_of_a_free_run_gives_it_its_grace_where_that_is_less():
    run = inside(grace=2.0)
    assert run.do_claim(Cause.DRAIN, now=1.0, deadline=60.0)[-1] == "set grace 3"


def test_at_equal_deadlines_the_drain_has_forced_the_end():
    run = inside(grace=10.0)
    run.do_claim(now=0.0)
    assert run.do_claim(Cause.DRAIN, now=1.0, deadline=10.0) == []
    assert forced_by(run, 10.0) == "drain"


def test_a_drain_brings_the_grace_of_an_overdue_body_forward():
    run = overdue(grace=10.0)
    assert run.do_claim(Cause.DRAIN, now=2.0, deadline=4.0) == ["flag drain", "stop drain", "set grace 4"]
    assert forced_by(run, 4.0) == "drain"


def test_a_drain_never_puts_the_grace_of_an_overdue_body_off():
    run = overdue(grace=10.0)
    assert run.do_claim(Cause.DRAIN, now=2.0, deadline=60.0) == ["flag drain", "stop drain"]
    assert forced_by(run, 11.0) == "timeout"


def test_a_drain_may_bring_the_grace_of_a_claimed_overdue_body_forward():
    run = overdue(grace=10.0)
    run.do_claim(now=2.0)
    assert run.do_claim(Cause.DRAIN, now=3.0, deadline=4.0) == ["set grace 4"]


# -- grace is over -------------------------------------------------------------------------------------------------


def test_a_body_that_does_not_stop_is_given_up_without_an_attempt_event():
    run = inside(timeout=30.0, grace=10.0)
    run.do_claim(Cause.CANCEL)
    assert run.do_fire(TimerKind.GRACE, 10.0) == [
        "cancel attempt_timeout",
        "cancel grace",
        "kill",
        "finish force_aborted lingering forced by manual_cancel",
    ]


@pytest.mark.parametrize("make", [starting, reported], ids=["not inside yet", "reported, not released"])
def test_an_attempt_that_has_a_worker_is_given_up_wherever_it_stands(make):
    run = make()
    run.do_claim()
    assert run.do_fire(TimerKind.GRACE, 10.0)[1:] == ["kill", "finish force_aborted lingering forced by remove"]


def test_the_release_of_a_lingering_body_ends_everything():
    run = lingering(limited=True)
    assert run.do_release() == ["return permit 1", "release run"]
    assert run.phase is RunPhase.OVER


def test_a_late_result_of_a_lingering_body_counts_as_its_release_only():
    assert lingering().do_end(OK) == ["release run"]


def test_the_permit_stays_with_a_lingering_body():
    run = inside(limited=True)
    run.do_claim()
    assert "return permit 1" not in run.do_fire(TimerKind.GRACE, 10.0)


# -- an attempt that takes too long --------------------------------------------------------------------------------


def test_a_timeout_is_told_at_once_and_the_body_asked_to_stop():
    run = inside(timeout=1.0, grace=10.0)
    assert run.do_fire(TimerKind.TIMEOUT, 1.5) == [
        "flag timeout",
        "event attempt_timed_out #1 attempt 1 timeout=1.0 duration=1.5",
        "stop timeout",
        "set grace 11.5",
    ]


def test_what_follows_a_timeout_waits_for_the_release_and_counts_from_it():
    run = overdue(RestartPolicy.ON_FAILURE, limited=True)
    assert run.do_release(now=7.0) == [
        "return permit 1",
        "event backoff_scheduled #1 attempt 1 delay=4.0 backoff_source=failure",
        "cancel grace",
        "set pause 11",
    ]


def test_the_result_of_an_overdue_body_is_discarded():
    run = overdue(RestartPolicy.ON_FAILURE)
    assert run.do_end(OK, released=False) == []
    assert run.do_release(now=7.0)[-1] == "set pause 11"


def test_an_overdue_attempt_has_one_event_only():
    run = overdue()
    assert run.do_end(BOOM, now=2.0) == ["cancel grace", "finish failed"]


def test_an_overdue_body_that_does_not_come_back_is_given_up_retries_left_or_not():
    run = overdue(RestartPolicy.ON_FAILURE)
    assert forced_by(run, 11.0) == "timeout"
    assert run.phase is RunPhase.LINGERING


def test_a_timeout_does_not_put_off_the_deadline_of_a_claim():
    run = inside(timeout=1.0, grace=10.0)
    run.do_claim(now=0.5)
    assert not any(line.startswith("set") for line in run.do_fire(TimerKind.TIMEOUT, 1.0))
    assert forced_by(run, 10.5) == "remove"


def test_a_new_attempt_starts_with_no_deadline_of_the_one_before():
    run = overdue(RestartPolicy.ON_FAILURE)
    run.do_release(now=2.0)
    run.do_fire(TimerKind.PAUSE, 6.0)
    run.do_enter(at=6.0)
    assert run.do_claim(now=6.5)[-1] == "set grace 16.5"


# -- a body that has reported and not left -------------------------------------------------------------------------


def test_a_result_waits_for_the_release_of_its_body():
    run = inside(timeout=30.0, limited=True)
    assert run.do_end(OK, now=1.0, released=False) == ["cancel attempt_timeout"]
    assert run.do_release(now=2.0) == [
        "return permit 1",
        "event attempt_succeeded #1 attempt 1 duration=2.0",
        "finish completed",
    ]


def test_a_release_that_comes_twice_counts_once():
    run = inside(RestartPolicy.ON_FAILURE)
    run.do_end(BOOM, released=False)
    run.do_release(now=1.0)
    assert run.do_release(now=2.0) is None


def test_a_result_is_judged_at_the_release_when_somebody_has_claimed_the_run_meanwhile():
    run = reported()
    run.do_claim()
    run.do_release()
    assert run.outcome == Cancelled()


# -- a worker that fails -------------------------------------------------------------------------------------------


def test_a_worker_that_fails_outside_its_body_ends_the_run():
    run = inside(timeout=30.0, limited=True)
    run.do_claim()
    assert run.do_end(WorkerPanicked("bug")) == [
        "return permit 1",
        "cancel attempt_timeout",
        "cancel grace",
        "finish panicked",
    ]


def test_a_worker_that_fails_around_its_body_ends_the_run_and_the_body_is_asked_to_stop():
    run = inside(limited=True)
    assert run.do_end(WorkerPanicked("bug"), released=False) == [
        "flag manual_cancel",
        "kill",
        "finish panicked lingering",
    ]
    assert run.do_release() == ["return permit 1", "release run"]


def test_a_worker_that_fails_around_an_overdue_body_ends_the_run():
    assert overdue().do_end(WorkerPanicked("bug"), released=False) == [
        "flag manual_cancel",
        "cancel grace",
        "kill",
        "finish panicked lingering",
    ]
