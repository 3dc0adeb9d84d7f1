"""How a run goes from attempt to attempt: what follows an attempt, retries, pauses, permits, messages out of date."""

from __future__ import annotations

import pytest

from admission.backoff import Backoff
from admission.effects import Emit, TimerKind
from admission.errors import AttemptTimeoutError, FatalError, TaskCancelledError, TaskFailedError
from admission.events import EventKind
from admission.outcome import Cancelled, Completed, Failed, Fatal, Panicked
from admission.policy import RestartPolicy
from admission.run import AttemptCancelled, AttemptRaised, AttemptReturned, RunPhase, WorkerPanicked, classify
from admission.slot import Standing
from tests.admission.support import Run, inside

NEVER, ON_FAILURE, ALWAYS = RestartPolicy.NEVER, RestartPolicy.ON_FAILURE, RestartPolicy.always(5)

OK = AttemptReturned("done")
BOOM = AttemptRaised(ValueError("boom"), "boom")
DEAD = AttemptRaised(FatalError("dead"), "dead", fatal=True)


def event_of(run, kind):
    (event,) = (each for each in run.last if isinstance(each, Emit) and each.kind is kind)
    return event


# -- what follows an attempt ---------------------------------------------------------------------------------------


def end_with(result):
    return lambda run: run.do_end(result, now=1.0)


def time_out(run):
    run.do_fire(TimerKind.TIMEOUT, 1.0)
    return run.do_end(OK, now=2.0)


ENDINGS = {
    "ok": end_with(OK),
    "failure": end_with(BOOM),
    "timeout": time_out,
    "timeout raised by the body": end_with(classify(AttemptTimeoutError(7), "7 s")),
    "fatal": end_with(DEAD),
    "cancelled": end_with(AttemptCancelled()),
    "interrupt": end_with(classify(KeyboardInterrupt(), "^C")),
    "panic": end_with(WorkerPanicked("bug")),
}

FOLLOWS = """
    attempt result              | claimed | retries | never     | on_failure | always
    ok                          | no      | left    | completed | completed  | pause
    ok                          | yes     | left    | cancelled | cancelled  | cancelled
    ok                          | no      | used up | completed | completed  | pause
    failure                     | no      | left    | failed    | retry      | retry
    failure                     | yes     | left    | failed    | cancelled  | cancelled
    failure                     | no      | used up | failed    | failed     | failed
    failure                     | yes     | used up | failed    | failed     | failed
    timeout                     | no      | left    | failed    | retry      | retry
    timeout                     | yes     | left    | failed    | cancelled  | cancelled
    timeout                     | no      | used up | failed    | failed     | failed
    timeout                     | yes     | used up | failed    | failed     | failed
    timeout raised by the body  | no      | left    | failed    | retry      | retry
    fatal                       | no      | left    | fatal     | fatal      | fatal
    fatal                       | yes     | left    | fatal     | fatal      | fatal
    cancelled                   | no      | left    | cancelled | cancelled  | cancelled
    cancelled                   | yes     | left    | cancelled | cancelled  | cancelled
    interrupt                   | no      | left    | fatal     | fatal      | fatal
    panic                       | no      | left    | panicked  | panicked   | panicked
    panic                       | yes     | left    | panicked  | panicked   | panicked
"""


def cells_of_the_table():
    rows = [[cell.strip() for cell in line.split("|")] for line in FOLLOWS.strip().splitlines()]
    for result, claimed, retries, *expected in rows[1:]:
        for restart, follows in zip((NEVER, ON_FAILURE, ALWAYS), expected, strict=True):
            name = dict(zip((NEVER, ON_FAILURE, ALWAYS), rows[0][3:], strict=True))[restart]
            case = f"{result}, claimed {claimed}, retries {retries}, {name}"
            yield pytest.param(result, claimed == "yes", retries == "left", restart, follows, id=case)


def what_follows(told):
    for line in told:
        if line.startswith("finish "):
            return line.removeprefix("finish ")
    (source,) = (line.rpartition("=")[2] for line in told if line.startswith("event backoff_scheduled"))
    assert any(line.startswith("set pause") for line in told)
    return {"failure": "retry", "success": "pause"}[source]


@pytest.mark.parametrize(("result", "claimed", "retries_left", "restart", "follows"), [*cells_of_the_table()])
def test_what_follows_an_attempt(result, claimed, retries_left, restart, follows):
    run = inside(restart, timeout=1.0, max_retries=None if retries_left else 0)
    if claimed:
        run.do_claim()
    assert what_follows(ENDINGS[result](run)) == follows


# -- outcomes ------------------------------------------------------------------------------------------------------


def test_completed_carries_what_the_body_returned():
    run = inside()
    value = object()
    run.do_end(AttemptReturned(value))
    assert isinstance(run.outcome, Completed)
    assert run.outcome.value is value


@pytest.mark.parametrize(("fatal", "kind"), [(False, Failed), (True, Fatal)])
def test_a_failure_carries_the_bodys_own_error_its_reason_and_exit_code(fatal, kind):
    run = inside()
    error = ValueError("boom")
    run.do_end(AttemptRaised(error, "boom", fatal=fatal, exit_code=42))
    assert run.outcome == kind("boom", error, 42)
    assert run.outcome.error is error


def test_a_timed_out_run_carries_a_timeout_error_with_the_timeout():
    run = inside(timeout=1.5)
    time_out(run)
    assert isinstance(run.outcome.error, AttemptTimeoutError)
    assert run.outcome.error.timeout == 1.5
    assert "1.5 s" in run.outcome.reason


def test_a_panicked_run_says_what_failed():
    run = inside()
    run.do_end(WorkerPanicked("bug"))
    assert run.outcome == Panicked("bug")


def test_the_reason_of_an_exhausted_run_tells_the_limit_and_the_last_error():
    run = inside(ON_FAILURE, max_retries=1, backoff=Backoff.constant(0))
    run.do_end(BOOM)
    run.do_fire(TimerKind.PAUSE)
    last = ValueError("crash")
    run.do_end(AttemptRaised(last, "crash", exit_code=3))
    assert run.outcome == Failed("retry limit reached (1 of 1): crash", last, 3)


def test_a_run_that_never_restarts_tells_the_plain_reason_whatever_its_retry_limit():
    run = inside(NEVER, max_retries=0)
    run.do_end(BOOM)
    assert run.outcome.reason == "boom"


# -- what it means that a body raised ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError(), AttemptTimeoutError(7), TaskFailedError("x")])
def test_any_exception_may_be_retried(error):
    assert classify(error, "x") == AttemptRaised(error, "x", fatal=False)


@pytest.mark.parametrize("error", [FatalError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_a_fatal_error_or_a_bare_base_exception_is_never_retried(error):
    assert classify(error, "x") == AttemptRaised(error, "x", fatal=True)


@pytest.mark.parametrize("kind", [TaskFailedError, FatalError])
def test_an_exit_code_is_taken_from_errors_that_have_one(kind):
    error = kind("x", exit_code=42)
    assert classify(error, "x") == AttemptRaised(error, "x", fatal=kind is FatalError, exit_code=42)


def test_a_reported_cancellation_is_one():
    assert classify(TaskCancelledError("x"), "x") == AttemptCancelled()


def test_a_failure_whose_constructor_skips_ours_may_be_retried_too():
    class OwnError(TaskFailedError):
        def __init__(self):
            pass

    error = OwnError()
    assert classify(error, "x") == AttemptRaised(error, "x", fatal=False, exit_code=None)


# -- one attempt ---------------------------------------------------------------------------------------------------


def test_a_run_begins_with_its_first_attempt():
    assert Run().do_start() == ["event attempt_starting #1 attempt 1", "begin 1"]


def test_a_run_that_is_cancelled_at_its_registration_makes_no_attempt():
    run = Run(limited=True)
    assert run.do_start(cancelled=True) == ["finish cancelled"]
    assert run.attempt == 0
    assert run.standing is Standing.OVER


def test_the_timeout_counts_from_the_moment_the_body_was_entered():
    run = Run(timeout=30.0)
    assert not any(line.startswith("set") for line in run.do_start())
    assert run.do_enter(at=7.0) == ["set attempt_timeout 37"]


def test_without_a_timeout_no_timer_is_set():
    run = Run()
    run.do_start()
    assert run.do_enter() == []


def test_an_attempt_that_ends_in_time_drops_its_timeout():
    run = inside(timeout=30.0)
    assert run.do_end(OK, now=2.5) == [
        "event attempt_succeeded #1 attempt 1 duration=2.5",
        "cancel attempt_timeout",
        "finish completed",
    ]


@pytest.mark.parametrize(
    ("result", "event"),
    [
        (OK, "event attempt_succeeded #1 attempt 1 duration=2.5"),
        (BOOM, "event attempt_failed #1 attempt 1 duration=2.5"),
        (AttemptRaised(ValueError(), "x", exit_code=7), "event attempt_failed #1 attempt 1 duration=2.5 exit_code=7"),
        (AttemptCancelled(), "event attempt_cancelled #1 attempt 1 duration=2.5"),
    ],
)
def test_every_attempt_that_ends_tells_how(result, event):
    assert inside(at=4.0).do_end(result, now=6.5)[0] == event


def test_a_failed_attempt_tells_why():
    run = inside()
    run.do_end(BOOM)
    assert event_of(run, EventKind.ATTEMPT_FAILED).fields["reason"] == "boom"


def test_an_attempt_that_could_not_be_started_took_no_time():
    run = Run()
    run.do_start()
    assert run.do_end(BOOM, now=9.0)[0] == "event attempt_failed #1 attempt 1 duration=0.0"


def test_a_retry_that_could_not_be_started_took_no_time_either():
    run = inside(ON_FAILURE)
    run.do_end(BOOM, now=5.0)
    run.do_fire(TimerKind.PAUSE, 9.0)
    assert run.do_end(BOOM, now=9.5)[0] == "event attempt_failed #1 attempt 2 duration=0.0"


def test_a_body_that_returns_after_a_claim_succeeded_and_its_run_is_cancelled():
    run = inside()
    run.do_claim()
    told = run.do_end(OK, now=1.0)
    assert told[0] == "event attempt_succeeded #1 attempt 1 duration=1.0"
    assert run.outcome == Cancelled()


# -- retries -------------------------------------------------------------------------------------------------------


def fail(run, now=0.0):
    told = run.do_end(BOOM, now=now)
    if run.phase is RunPhase.PAUSING:
        run.do_fire(TimerKind.PAUSE, now)
        run.do_enter(now)
    return told


def succeed(run, now=0.0):
    told = run.do_end(OK, now=now)
    run.do_fire(TimerKind.PAUSE, now)
    run.do_enter(now)
    return told


def test_a_retry_waits_for_its_backoff_and_takes_the_next_number():
    run = inside(ON_FAILURE, backoff=Backoff.constant(4))
    assert run.do_end(BOOM, now=10.0) == [
        "event attempt_failed #1 attempt 1 duration=10.0",
        "event backoff_scheduled #1 attempt 1 delay=4.0 backoff_source=failure",
        "set pause 14",
    ]
    assert run.do_fire(TimerKind.PAUSE, 14.0) == ["event attempt_starting #1 attempt 2", "begin 2"]


def test_a_scheduled_retry_tells_what_failed():
    run = inside(ON_FAILURE)
    run.do_end(BOOM)
    assert event_of(run, EventKind.BACKOFF_SCHEDULED).fields["reason"] == "boom"


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_max_retries_allows_one_attempt_more(retries):
    run = inside(ON_FAILURE, max_retries=retries)
    for _ in range(retries):
        fail(run)
    assert run.attempt == retries + 1
    assert fail(run)[-1] == "finish failed"


def test_without_a_limit_retries_never_end():
    run = inside(ON_FAILURE)
    for _ in range(1000):
        fail(run)
    assert run.phase is RunPhase.INSIDE


def delay_of(told):
    (delay,) = (line.partition("delay=")[2].split()[0] for line in told if "backoff_scheduled" in line)
    return float(delay)


def test_the_backoff_grows_with_every_retry_and_starts_anew_after_a_success():
    run = inside(RestartPolicy.always(0.5), backoff=Backoff.exponential(1))
    failures = [delay_of(fail(run)) for _ in range(3)]
    succeed(run)
    assert [*failures, delay_of(fail(run))] == [1, 2, 4, 1]


def test_one_failure_per_success_never_exhausts_one_retry():
    run = inside(RestartPolicy.always(0.5), max_retries=1)
    for _ in range(10):
        fail(run)
        succeed(run)
    assert run.phase is RunPhase.INSIDE
    assert run.attempt == 21


# -- the pause after a success -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "elapsed", "delay"),
    [(0, 0, 0.001), (0.0005, 0, 0.001), (0, 0.002, 0), (0.01, 0, 0.01), (0.01, 0.003, 0.01)],
)
def test_an_interval_is_a_fixed_delay_of_at_least_a_millisecond_per_attempt(interval, elapsed, delay):
    run = inside(RestartPolicy.always(interval))
    told = run.do_end(OK, now=elapsed)
    assert delay_of(told) == pytest.approx(delay)
    assert told[-1] == f"set pause {elapsed + delay:g}"


def test_the_pause_after_a_success_says_so_and_gives_no_reason():
    run = inside(RestartPolicy.always(5))
    assert run.do_end(OK, now=2.0) == [
        "event attempt_succeeded #1 attempt 1 duration=2.0",
        "event backoff_scheduled #1 attempt 1 delay=5.0 backoff_source=success",
        "set pause 7",
    ]
    assert "reason" not in event_of(run, EventKind.BACKOFF_SCHEDULED).fields


def test_without_an_interval_a_quick_attempt_waits_for_the_rest_of_its_millisecond_untold():
    run = inside(RestartPolicy.always())
    assert run.do_end(OK, now=0.00025)[1:] == ["set pause 0.001"]


def test_without_an_interval_the_next_attempt_follows_in_the_same_turn():
    run = inside(RestartPolicy.always())
    assert run.do_end(OK, now=1.0) == [
        "event attempt_succeeded #1 attempt 1 duration=1.0",
        "event attempt_starting #1 attempt 2",
        "begin 2",
    ]


# -- permits -------------------------------------------------------------------------------------------------------


def test_a_limited_attempt_starts_with_its_permit():
    run = Run(limited=True)
    assert run.do_start() == ["acquire permit 1"]
    assert run.do_grant() == ["event attempt_starting #1 attempt 1", "begin 1"]


@pytest.mark.parametrize("result", [OK, BOOM, DEAD, AttemptCancelled(), WorkerPanicked("bug")])
def test_the_permit_goes_back_first_when_the_body_has_left(result):
    assert inside(limited=True).do_end(result)[0] == "return permit 1"


def test_no_permit_is_held_during_a_backoff():
    run = inside(ON_FAILURE, limited=True)
    assert run.do_end(BOOM)[0] == "return permit 1"
    assert run.do_fire(TimerKind.PAUSE) == ["acquire permit 2"]


def test_a_permit_that_is_denied_is_an_attempt_that_failed_with_nothing_to_return():
    run = Run(ON_FAILURE, limited=True)
    run.do_start()
    assert run.do_deny(RuntimeError("bug"), now=3.0) == [
        "event attempt_starting #1 attempt 1",
        "event attempt_failed #1 attempt 1 duration=0.0",
        "event backoff_scheduled #1 attempt 1 delay=4.0 backoff_source=failure",
        "set pause 7",
    ]


def test_a_run_ends_with_the_error_of_a_denied_permit():
    run = Run(limited=True)
    run.do_start()
    error = RuntimeError("bug")
    run.do_deny(error)
    assert run.outcome == Failed("bug", error)


# -- messages out of date ------------------------------------------------------------------------------------------


def time_out_now(run):
    run.do_fire(TimerKind.TIMEOUT, 1.0)


def give_up(run):
    run.do_fire(TimerKind.GRACE, 2.0)


def report(run):
    run.do_end(OK, released=False)


WAYS = {
    RunPhase.WAITING_PERMIT: (),
    RunPhase.STARTING: (Run.do_grant,),
    RunPhase.INSIDE: (Run.do_grant, Run.do_enter),
    RunPhase.OVERDUE: (Run.do_grant, Run.do_enter, time_out_now),
    RunPhase.REPORTED: (Run.do_grant, Run.do_enter, report),
    RunPhase.PAUSING: (Run.do_grant, Run.do_enter, end_with(BOOM)),
    RunPhase.LINGERING: (Run.do_grant, Run.do_enter, time_out_now, give_up),
    RunPhase.OVER: (Run.do_grant, Run.do_enter, end_with(OK)),
}


def run_in(phase):
    """Make a run whose second attempt has come to this phase."""
    if phase is RunPhase.NEW:
        return Run()
    run = inside(ON_FAILURE, timeout=1.0, limited=True)
    run.do_end(BOOM)
    run.do_fire(TimerKind.PAUSE)
    for step in WAYS[phase]:
        step(run)
    return run


CURRENT = {
    RunPhase.NEW: set(),
    RunPhase.WAITING_PERMIT: {"granted", "denied"},
    RunPhase.STARTING: {"started", "ended", "ended, body inside", "grace due"},
    RunPhase.INSIDE: {"ended", "ended, body inside", "timeout due", "grace due"},
    RunPhase.OVERDUE: {"ended", "ended, body inside", "released", "grace due"},
    RunPhase.REPORTED: {"ended", "released", "grace due"},
    RunPhase.PAUSING: {"pause due"},
    RunPhase.LINGERING: {"ended", "released"},
    RunPhase.OVER: set(),
}
"""The messages about the current attempt that a phase expects. Every other one is dropped."""

ABOUT_AN_ATTEMPT = {
    "granted": lambda run, attempt: run.do_grant(attempt),
    "denied": lambda run, attempt: run.do_deny(ValueError(), attempt),
    "started": lambda run, attempt: run.do_enter(1.0, attempt),
    "ended": lambda run, attempt: run.do_end(OK, attempt=attempt),
    "ended, body inside": lambda run, attempt: run.do_end(OK, attempt=attempt, released=False),
    "released": lambda run, attempt: run.do_release(attempt=attempt),
}
MESSAGES = ABOUT_AN_ATTEMPT | {
    "timeout due": lambda run, _: run.do_fire(TimerKind.TIMEOUT, 9.0),
    "grace due": lambda run, _: run.do_fire(TimerKind.GRACE, 9.0),
    "pause due": lambda run, _: run.do_fire(TimerKind.PAUSE, 9.0),
}


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("phase", CURRENT)
def test_a_message_is_taken_in_the_phases_that_expect_it(phase, message):
    run = run_in(phase)
    assert run.phase is phase
    told = MESSAGES[message](run, run.attempt or 1)
    assert (told is not None) == (message in CURRENT[phase])


@pytest.mark.parametrize("attempt", [1, 3])
@pytest.mark.parametrize("message", ABOUT_AN_ATTEMPT)
@pytest.mark.parametrize("phase", WAYS)
def test_a_message_about_another_attempt_is_dropped_in_every_phase(phase, message, attempt):
    run = run_in(phase)
    assert run.attempt == 2
    assert ABOUT_AN_ATTEMPT[message](run, attempt) is None
