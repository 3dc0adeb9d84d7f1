"""Scenarios 40 to 70: attempts, retries, pauses, timeouts, permits."""

from __future__ import annotations

from functools import partial

import pytest

from actors.testing import Script, scripted
from admission import (
    AdmissionLimits,
    AttemptTimeoutError,
    Backoff,
    Cancelled,
    Completed,
    Failed,
    Fatal,
    FatalError,
    ForceAborted,
    RestartPolicy,
    TaskCancelledError,
    TaskFailedError,
    TaskSpec,
)
from admission.effects import SetTimer, TimerKind
from admission.run import AttemptReturned
from tests.actors.support import SOON, outcome_of
from tests.admission.support import inside
from tests.conformance.support import COOP, COOP_CANCELLED, FAST, GRACE, OK, gate, seeds, stubborn
from tests.conformance.verdicts import adapted

BOOM = Script(0, ValueError("boom"))
FOREVER_AGAIN = partial(TaskSpec.periodic, every=None)


TOLD = (
    *("attempt_starting", "attempt_succeeded", "attempt_failed", "attempt_cancelled", "attempt_timed_out"),
    *("backoff_scheduled", "task_finished", "task_removed"),
)


def counts(world, handle=None):
    """Tell how often each thing happened to a submission, or to all, without what only the log hears."""
    return {name: number for name in TOLD if (number := world.count(name, handle))}


def finished(world, handle):
    (record,) = world.of("task_finished", handle)
    return record


# -- what follows an attempt ---------------------------------------------------------------------------------------


WAYS = {
    "submit": lambda supervisor, spec: supervisor.submit(spec, slot="s").outcome(),
    "add": lambda supervisor, spec: supervisor.add(spec).outcome(),
    "run": lambda supervisor, spec: supervisor.run([spec]),
}


@seeds
@pytest.mark.parametrize("way", WAYS)
def test_s040_one_success(simulate, seed, way):
    """A run that succeeds at once starts, succeeds, is finished and removed, once each and in this order."""
    world, supervisor = simulate(seed)
    WAYS[way](supervisor, TaskSpec.once(scripted(OK), name="one"))
    told = ["attempt_starting", "attempt_succeeded", "task_finished", "task_removed"]
    assert counts(world) == dict.fromkeys(told, 1)
    assert [record["event"] for record in world.records if record["event"] in told] == told
    (end,) = world.of("task_finished")
    assert "reason" not in end
    assert end["outcome_kind"] == "outcome_completed"
    assert world.of("attempt_succeeded")[0]["duration"] == 0


def test_s041_one_failure(simulate):
    """The reason of a failure is told by the attempt and by the end of the run."""
    world, supervisor = simulate()
    handle = supervisor.submit(TaskSpec.once(scripted(BOOM)), slot="s")
    assert isinstance(handle.outcome(), Failed)
    assert counts(world, handle) == {"attempt_starting": 1, "attempt_failed": 1, "task_finished": 1, "task_removed": 1}
    assert "boom" in world.of("attempt_failed", handle)[0]["reason"]
    assert "boom" in finished(world, handle)["reason"]


def test_s042_success_after_retries(simulate):
    """A run that fails twice is retried after the backoff each time, and completes."""
    world, supervisor = simulate()
    handle = supervisor.submit(TaskSpec.restartable(scripted(BOOM, BOOM, OK), backoff=FAST), slot="s")
    assert handle.outcome() == Completed("ok")
    told = counts(world, handle)
    assert (told["attempt_starting"], told["attempt_failed"], told["attempt_succeeded"]) == (3, 2, 1)
    pauses = world.of("backoff_scheduled", handle)
    assert [(pause["backoff_source"], pause["delay"]) for pause in pauses] == [("failure", 0.001)] * 2
    assert all("boom" in pause["reason"] for pause in pauses)
    assert "reason" not in finished(world, handle)


def test_s043_fatal(simulate):
    """A permanent failure is not retried; its exit code and reason arrive."""
    world, supervisor = simulate()
    body = scripted(Script(0, FatalError("never", exit_code=7)))
    outcome = (handle := supervisor.submit(TaskSpec.restartable(body, backoff=FAST), slot="s")).outcome()
    assert isinstance(outcome, Fatal)
    assert counts(world, handle) == {"attempt_starting": 1, "attempt_failed": 1, "task_finished": 1, "task_removed": 1}
    assert world.of("attempt_failed", handle)[0]["exit_code"] == 7
    end = finished(world, handle)
    assert (end["outcome_kind"], end["exit_code"]) == ("outcome_fatal", 7)
    assert "never" in end["reason"]


def test_s044_fatal_of_a_periodic_run(simulate):
    """A permanent failure ends a periodic run too."""
    world, supervisor = simulate()
    handle = supervisor.submit(FOREVER_AGAIN(scripted(Script(0, FatalError("never")))), slot="s")
    assert isinstance(handle.outcome(), Fatal)
    assert world.count("attempt_starting", handle) == 1


def always_42():
    return scripted(Script(0, TaskFailedError("boom", exit_code=42)))


@pytest.mark.parametrize("retries", [1, 3])
def test_s045_retry_limit(simulate, retries):
    """A limit of n retries allows n + 1 attempts, each told with its exit code, and n pauses."""
    world, supervisor = simulate()
    spec = TaskSpec.restartable(always_42(), max_retries=retries, backoff=FAST)
    handle = supervisor.submit(spec, slot="s")
    handle.outcome()
    told = counts(world, handle)
    assert (told["attempt_starting"], told["attempt_failed"]) == (retries + 1, retries + 1)
    assert (told["backoff_scheduled"], told["task_finished"]) == (retries, 1)
    assert [record["exit_code"] for record in world.of("attempt_failed", handle)] == [42] * (retries + 1)
    end = finished(world, handle)
    assert (end["outcome_kind"], end["exit_code"]) == ("outcome_failed", 42)
    assert "boom" in end["reason"]


@pytest.mark.parametrize("retries", [1, 3])
def test_s046_reason_of_the_outcome(simulate, retries):
    """The outcome has the reason and the exit code of the record of its end, to the letter."""
    world, supervisor = simulate()
    spec = TaskSpec.restartable(always_42(), max_retries=retries, backoff=FAST)
    outcome = (handle := supervisor.submit(spec, slot="s")).outcome()
    end = finished(world, handle)
    assert (outcome.reason, outcome.exit_code) == (end["reason"], end["exit_code"])


def test_s047_again_and_again(simulate):
    """Without an interval a periodic run starts again at once, no pause told of, at most once a millisecond."""
    world, supervisor = simulate()
    handle = supervisor.submit(FOREVER_AGAIN(scripted(OK)), slot="s")
    world.advance(0.025)
    assert 5 <= world.count("attempt_starting", handle) <= 200
    assert world.count("backoff_scheduled", handle) == 0


def test_s048_interval(simulate):
    """An interval after a success is told as such, with no reason."""
    world, supervisor = simulate()
    handle = supervisor.submit(TaskSpec.periodic(scripted(OK), 0.005), slot="s")
    world.advance(0.025)
    pauses = world.of("backoff_scheduled", handle)
    assert len(pauses) >= 2
    assert {(pause["backoff_source"], pause["delay"], pause.get("reason")) for pause in pauses} == {
        ("success", 0.005, None)
    }
    assert world.count("attempt_failed", handle) == 0


def test_s049_periodic_run_that_fails_once(simulate):
    """A periodic run with one retry survives its first failure."""
    world, supervisor = simulate()
    handle = supervisor.submit(FOREVER_AGAIN(scripted(BOOM, OK), max_retries=1, backoff=FAST), slot="s")
    while world.count("body_left", handle) < 6:
        world.advance(0.001)
    told = counts(world, handle)
    assert (told["attempt_failed"], told["backoff_scheduled"]) == (1, 1)
    assert "task_finished" not in told
    assert (handle.id, "s") in supervisor.tasks()


def test_s050_retries_count_from_the_last_success(simulate):
    """A periodic run that fails every other time never runs out of its one retry, and goes on counting attempts."""
    world, supervisor = simulate()
    handle = supervisor.submit(FOREVER_AGAIN(scripted(*[BOOM, OK] * 20), max_retries=1, backoff=FAST), slot="s")
    world.advance(0.035)
    attempts = [record["attempt"] for record in world.of("attempt_starting", handle)]
    assert attempts == [*range(1, len(attempts) + 1)]
    assert world.count("attempt_failed", handle) > 10
    assert not handle.done()


# -- a body that breaks --------------------------------------------------------------------------------------------


def broken(_ctx):
    raise ZeroDivisionError("by accident")


def test_s051_broken_body(simulate):
    """A body that breaks by accident is a failure that names the accident; the `run` of it comes to its end."""
    world, supervisor = simulate()
    assert supervisor.run([TaskSpec.once(broken)]).clean
    (end,) = world.of("task_finished")
    assert end["outcome_kind"] == "outcome_failed"
    assert "ZeroDivisionError" in end["reason"]
    assert "by accident" in end["reason"]


def breaks_once(ctx):
    return broken(ctx) if ctx.attempt == 1 else "ok"


def test_s052_body_that_breaks_once(simulate):
    """A body that breaks by accident is retried."""
    world, supervisor = simulate()
    handle = supervisor.submit(TaskSpec.restartable(breaks_once, backoff=FAST), slot="s")
    assert handle.outcome() == Completed("ok")
    told = counts(world, handle)
    assert (told["attempt_failed"], told["backoff_scheduled"]) == (1, 1)


async def fine(_ctx):
    return "ok"


def breaks_before_it_awaits(ctx):
    """Make the awaitable of the attempt, or fail to."""
    return broken(ctx) if ctx.attempt == 1 else fine(ctx)


@pytest.mark.parametrize("make", [TaskSpec.once, TaskSpec.restartable], ids=["once", "restartable"])
def test_s053_body_that_breaks_before_it_awaits(supervisor, make):
    """A callable that breaks before there is anything to await has failed like any other body."""
    outcome = outcome_of(supervisor.submit(make(breaks_before_it_awaits, backoff=FAST), slot="s"))
    if make == TaskSpec.restartable:
        assert outcome == Completed("ok")
    else:
        assert isinstance(outcome, Failed)
        assert "by accident" in outcome.reason


# -- cancellation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [TaskSpec.restartable, FOREVER_AGAIN], ids=["restartable", "periodic"])
def test_s054_body_that_reports_a_cancellation(simulate, make):
    """A body that reports a cancellation that nobody asked for is cancelled, and not retried."""
    world, supervisor = simulate()
    handle = supervisor.submit(make(scripted(Script(0, TaskCancelledError("by itself")))), slot="s")
    assert handle.outcome() == Cancelled()
    told = counts(world, handle)
    assert (told["attempt_cancelled"], told["attempt_starting"]) == (1, 1)
    assert "backoff_scheduled" not in told


@seeds
def test_s055_cancelled_body_that_returns(simulate, seed):
    """A body that returns after it was asked to stop has succeeded as an attempt, and is cancelled as a run."""
    world, supervisor = simulate(seed)
    handle = supervisor.submit(scripted(COOP), slot="s")
    world.run_until_idle()
    assert supervisor.cancel(handle.id) is True
    assert counts(world, handle)["attempt_succeeded"] == 1
    assert finished(world, handle)["outcome_kind"] == "outcome_cancelled"
    assert handle.outcome() == Cancelled()


@seeds
def test_s056_cancelled_body_that_says_so(simulate, seed):
    """A body that reports its cancellation has neither succeeded nor failed."""
    world, supervisor = simulate(seed)
    handle = supervisor.submit(scripted(COOP_CANCELLED), slot="s")
    world.run_until_idle()
    assert supervisor.cancel(handle.id) is True
    told = ["attempt_starting", "attempt_cancelled", "task_finished", "task_removed"]
    assert counts(world, handle) == dict.fromkeys(told, 1)
    assert finished(world, handle)["outcome_kind"] == "outcome_cancelled"


@seeds
def test_s057_cancelled_in_a_pause(simulate, seed):
    """A cancellation in a long pause ends the run at once, without another attempt."""
    world, supervisor = simulate(seed)
    handle = supervisor.submit(TaskSpec.restartable(scripted(BOOM), backoff=Backoff.constant(1000)), slot="s")
    world.advance(1)
    before = counts(world, handle)
    assert supervisor.cancel(handle.id) is True
    assert world.now == 1
    assert handle.outcome() == Cancelled()
    assert counts(world, handle) == before | {"task_finished": 1, "task_removed": 1}


def test_s058_source_of_a_failure(simulate):
    """The outcome holds the very exception that the body raised."""
    _, supervisor = simulate()
    error = ConnectionResetError("peer")
    outcome = supervisor.submit(scripted(Script(0, error)), slot="s").outcome()
    assert outcome.error is error


@pytest.mark.parametrize(
    ("interval", "elapsed", "delay"),
    [(0, 0, 0.001), (0.0005, 0, 0.001), (0, 0.002, 0), (10, 0, 10), (10, 0.003, 10)],
)
def test_s059_least_period(interval, elapsed, delay):
    """The pause after a success is the interval, or what is missing to a millisecond since the attempt began."""
    run = inside(RestartPolicy.always(interval))
    run.do_end(AttemptReturned(None), now=elapsed)
    (timer,) = (effect for effect in run.last if isinstance(effect, SetTimer))
    assert timer.kind is TimerKind.PAUSE
    assert timer.due - elapsed == pytest.approx(delay)


# -- timeouts ------------------------------------------------------------------------------------------------------


@seeds
def test_s060_every_attempt_times_out(simulate, seed):
    """A timeout is told as such and not as a failure, and is retried like one."""
    world, supervisor = simulate(seed)
    spec = TaskSpec.restartable(scripted(COOP_CANCELLED), attempt_timeout=0.05, max_retries=1, backoff=FAST)
    outcome = (handle := supervisor.submit(spec, slot="s")).outcome()
    assert isinstance(outcome, Failed)
    told = counts(world, handle)
    assert "attempt_failed" not in told
    assert (told["attempt_timed_out"], told["backoff_scheduled"]) == (2, 1)
    timeouts = [(record["attempt"], record["timeout"]) for record in world.of("attempt_timed_out", handle)]
    assert timeouts == [(1, 0.05), (2, 0.05)]
    assert "timed out" in finished(world, handle)["reason"]


@seeds
def test_s061_first_attempt_times_out(simulate, seed):
    """A second attempt may make good for one that timed out."""
    world, supervisor = simulate(seed)
    spec = TaskSpec.restartable(scripted(COOP_CANCELLED, OK), attempt_timeout=0.05, backoff=FAST)
    handle = supervisor.submit(spec, slot="s")
    assert handle.outcome() == Completed("ok")
    told = counts(world, handle)
    assert (told["attempt_timed_out"], told["attempt_starting"], told["attempt_succeeded"]) == (1, 2, 1)
    assert [pause["backoff_source"] for pause in world.of("backoff_scheduled", handle)] == ["failure"]


@adapted("*no timeout* is None; 0 is refused at the call", rule="durations")
def test_s062_no_timeout(simulate):
    """Without a timeout, an attempt takes the time that it takes."""
    world, supervisor = simulate()
    with pytest.raises(ValueError, match="attempt_timeout"):
        TaskSpec.once(scripted(Script(0.03)), attempt_timeout=0)
    handle = supervisor.submit(TaskSpec.once(scripted(Script(0.03, "ok")), attempt_timeout=None), slot="s")
    assert handle.outcome() == Completed("ok")
    assert world.count("attempt_timed_out") == 0


def test_s063_timeout_of_the_bodys_own(simulate):
    """A timeout error that the body itself raises is a failure, not a timeout of the attempt."""
    world, supervisor = simulate()
    error = AttemptTimeoutError(7)
    outcome = (handle := supervisor.submit(scripted(Script(0, error)), slot="s")).outcome()
    assert isinstance(outcome, Failed)
    assert outcome.error is error
    told = counts(world, handle)
    assert told["attempt_failed"] == 1
    assert "attempt_timed_out" not in told


def test_s064_context_of_an_attempt_that_timed_out(supervisor):
    """A timeout cancels the context of its own attempt, which may be kept; the next attempt has a fresh one."""
    kept, states = [], []

    def work(ctx):
        kept.append(ctx)
        states.append(ctx.cancelled)
        return ctx.wait(SOON) if ctx.attempt == 1 else "ok"

    spec = TaskSpec.restartable(work, attempt_timeout=0.05, backoff=FAST)
    assert outcome_of(supervisor.submit(spec, slot="s")) == Completed("ok")
    assert states == [False, False]
    assert [ctx.cancelled for ctx in kept] == [True, False]


# -- permits -------------------------------------------------------------------------------------------------------

ONE_AT_A_TIME = AdmissionLimits(max_concurrent=1)


@seeds
def test_s065_cancelled_before_the_permit(simulate, seed):
    """A run that is cancelled while it waits for a permit has no attempt, and ends once."""
    world, supervisor = simulate(seed, limits=ONE_AT_A_TIME)
    first = supervisor.submit(scripted(gate(10)), slot="a")
    world.run_until_idle()
    second = supervisor.submit(scripted(OK), slot="b")
    world.run_until_idle()
    assert supervisor.cancel(second.id) is True
    assert second.outcome() == Cancelled()
    assert counts(world, second) == {"task_finished": 1, "task_removed": 1}
    assert finished(world, second)["outcome_kind"] == "outcome_cancelled"
    assert first.outcome() == Completed("ok")


@pytest.mark.parametrize("seed", range(3))
def test_s066_four_of_a_hundred(simulate, seed):
    """Of a hundred registered runs no more than four attempts execute, to the end of the shutdown."""
    world, supervisor = simulate(seed, limits=AdmissionLimits(max_concurrent=4))
    supervisor.add_batch([TaskSpec.once(scripted(COOP), name=f"n{number}") for number in range(100)])
    world.run_until_idle()
    assert len(supervisor.tasks()) == 100
    assert world.count("attempt_starting") == world.count("body_entered") == 4
    assert supervisor.shutdown().clean
    inside = peak = 0
    for record in world.records:
        inside += (record["event"] == "body_entered") - (record["event"] == "body_left")
        peak = max(peak, inside)
    assert peak == 4


@seeds
def test_s067_no_permit_in_a_pause(simulate, seed):
    """A run in a long pause holds no permit."""
    world, supervisor = simulate(seed, limits=ONE_AT_A_TIME)
    pausing = supervisor.submit(TaskSpec.restartable(scripted(BOOM), backoff=Backoff.constant(1000)), slot="a")
    world.run_until_idle()
    assert supervisor.submit(scripted(OK), slot="b").outcome() == Completed("ok")
    assert world.now == 0
    assert not pausing.done()


@seeds
def test_s068_permit_of_an_aborted_body(simulate, seed):
    """A body that was given up holds its permit until it has really left."""
    world, supervisor = simulate(seed, limits=ONE_AT_A_TIME)
    first = supervisor.submit(scripted(stubborn(60)), slot="a")
    world.run_until_idle()
    second = supervisor.submit(scripted(OK), slot="b")
    assert supervisor.cancel(first.id) is True
    assert first.outcome() == ForceAborted()
    assert world.now == GRACE
    assert not second.done()
    assert second.outcome() == Completed("ok")
    (left,), (entered,) = world.of("body_left", first), world.of("body_entered", second)
    assert left["left_at"] == 60
    assert entered["entered_at"] >= left["left_at"]
