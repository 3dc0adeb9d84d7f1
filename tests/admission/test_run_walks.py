"""Random sequences of messages to one run, as a worker, a limiter, timers and callers could send them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admission import effects as fx
from admission.backoff import Backoff, Jitter
from admission.effects import Cause, TimerKind
from admission.events import EventKind
from admission.outcome import ForceAborted, Panicked
from admission.policy import RestartPolicy
from admission.rules import Rules
from admission.run import AttemptCancelled, AttemptRaised, AttemptReturned, RunMachine, RunPhase, WorkerPanicked
from admission.slot import Standing
from admission.spec import RunSettings
from tests.admission.support import JITTER, entry

BOOM = AttemptRaised(ValueError("boom"), "boom")
RESULTS = [
    AttemptReturned(1),
    BOOM,
    AttemptRaised(ValueError(), "x", fatal=True),
    AttemptCancelled(),
    WorkerPanicked("x"),
]
LIKELY = [AttemptReturned(1), BOOM, BOOM]
ORDER = {
    EventKind.ATTEMPT_STARTING: 1,
    EventKind.ATTEMPT_SUCCEEDED: 2,
    EventKind.ATTEMPT_FAILED: 2,
    EventKind.ATTEMPT_CANCELLED: 2,
    EventKind.ATTEMPT_TIMED_OUT: 2,
    EventKind.BACKOFF_SCHEDULED: 3,
}
"""The order of the events of one attempt; at most one of each rank."""

settings = st.builds(
    RunSettings,
    restart=st.sampled_from(
        [RestartPolicy.NEVER, RestartPolicy.ON_FAILURE, RestartPolicy.always(), RestartPolicy.always(2)]
    ),
    backoff=st.sampled_from([Backoff(), Backoff.constant(0), Backoff(jitter=Jitter.FULL)]),
    attempt_timeout=st.sampled_from([None, 1.0]),
    max_retries=st.sampled_from([None, 0, 1, 2]),
)
STEPS = [
    "permit",
    "permit",
    "enter",
    "enter",
    "end",
    "end",
    "report",
    "release",
    "due",
    "due",
    "claim",
    "drain",
    "stray",
]
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), max_size=40)


class Walk:
    """Everything around one run; checks after every message what must always hold. A number picks among choices."""

    def __init__(self, settings, *, limited):
        self.run = RunMachine(entry(1), settings, Rules(grace=5.0, limited=limited, random=JITTER))
        self.now = 0.0
        self.timers = {}
        self.asked = None  # attempt whose permit is asked for and not there yet
        self.held = None  # attempt that holds a permit
        self.worker = None  # attempt that has a worker whose body has not left
        self.inside = self.reported = False
        self.begun = 0
        self.trail = []  # (attempt, rank) of its events
        self.finish: Any = None
        self.is_released = False
        self.carry_out(self.run.start())

    def take(self, step, number):
        self.now += 0.25
        getattr(self, step)(number)
        self.check()

    def permit(self, number):
        if self.asked is None:
            return
        attempt, self.asked = self.asked, None
        if number == 0:
            self.carry_out(self.run.denied(attempt, ValueError(), self.now))
        else:
            self.held = attempt
            self.carry_out(self.run.granted(attempt))

    def enter(self, _number):
        if self.worker is not None and not self.inside and not self.reported:
            self.inside = True
            self.carry_out(self.run.started(self.worker, self.now))

    def end(self, number):
        if self.worker is not None and not self.reported:
            result = RESULTS[number] if number < len(RESULTS) else LIKELY[number % 3]
            attempt, self.worker, self.inside = self.worker, None, False
            self.carry_out(self.run.ended(attempt, result, released=True, now=self.now))

    def report(self, number):
        if self.worker is not None and not self.reported:
            self.reported = True
            result = RESULTS[number % len(RESULTS)]
            self.carry_out(self.run.ended(self.worker, result, released=False, now=self.now))

    def release(self, _number):
        if self.worker is not None and self.reported:
            attempt, self.worker, self.inside, self.reported = self.worker, None, False, False
            self.carry_out(self.run.released(attempt, now=self.now))

    def due(self, number):
        if self.timers:
            kind = sorted(self.timers)[number % len(self.timers)]
            self.now = max(self.now, self.timers.pop(kind))
            self.carry_out(self.run.fired(kind, self.now))

    def claim(self, number):
        if number < 4:  # seldom: little happens afterwards
            self.carry_out(self.run.claim(Cause.REMOVE, self.now))

    def drain(self, number):
        if number < 4:
            self.carry_out(self.run.claim(Cause.DRAIN, self.now, self.now + number))

    def stray(self, number):
        """A message about an attempt that is long over, or that there never was."""
        attempt = self.run.attempt + (1 if number % 2 else -1)
        for effects in (
            self.run.granted(attempt),
            self.run.denied(attempt, ValueError(), self.now),
            self.run.started(attempt, self.now),
            self.run.ended(attempt, BOOM, released=number < 6, now=self.now),
            self.run.released(attempt, now=self.now),
        ):
            assert effects is None

    def carry_out(self, effects):  # noqa: C901 - one case per kind of effect
        if effects is None:
            return
        for effect in fx.in_order(effects):
            assert self.finish is None or isinstance(effect, fx.ReturnPermit | fx.ReleaseRun)
            match effect:
                case fx.AcquirePermit(attempt):
                    assert (self.asked, self.held) == (None, None)
                    self.asked = attempt
                case fx.ReturnPermit(_, attempt):
                    assert attempt in (self.asked, self.held)
                    self.asked = self.held = None
                case fx.BeginAttempt(attempt):
                    assert self.worker is None  # the body before it has left
                    assert attempt > self.begun
                    assert self.held == (attempt if self.run.rules.limited else None)
                    self.worker = self.begun = attempt
                case fx.SetTimer(kind, due):
                    self.timers[kind] = due
                case fx.CancelTimer(kind):
                    self.timers.pop(kind, None)
                case fx.Emit(kind, _, attempt):
                    self.trail.append((attempt, ORDER[kind]))
                case fx.Finish():
                    self.finish = effect
                case fx.ReleaseRun():
                    assert self.finish.lingering
                    assert not self.is_released
                    self.is_released = True

    def check(self):
        run = self.run
        assert (run.standing is Standing.OVER) == (self.finish is not None)
        assert self.trail == sorted(set(self.trail))
        if self.finish is not None:
            assert self.timers == {}  # one left over would fire into the next owner's run
            assert self.finish.lingering == (self.worker is not None or self.is_released)
        if self.worker is None:
            assert self.held is None
        if run.claimed and self.finish is None:
            assert TimerKind.GRACE in self.timers  # a claimed run ends, whatever its body does

    def end_it(self):
        """Let the time that everybody has run out, and the body leave."""
        self.carry_out(self.run.claim(Cause.REMOVE, self.now))
        if self.finish is None:
            self.timers = {TimerKind.GRACE: self.timers[TimerKind.GRACE]}
            self.due(0)
        self.check()
        if self.worker is not None:
            self.reported = True
            self.release(0)
        self.check()


def walked(settings, limited, walk):
    around = Walk(settings, limited=limited)
    for step, number in walk:
        around.take(step, number)
    return around


@given(settings, st.booleans(), steps)
def test_a_run_ends_once_and_nothing_of_it_is_left(settings, limited, walk):
    around = walked(settings, limited, walk)
    around.end_it()
    assert around.run.phase is RunPhase.OVER
    assert around.finish is not None
    assert (around.asked, around.held, around.worker) == (None, None, None)


@given(settings, st.booleans(), steps)
def test_every_attempt_that_was_started_tells_how_it_went_unless_it_was_given_up(settings, limited, walk):
    around = walked(settings, limited, walk)
    around.end_it()
    started = {attempt for attempt, rank in around.trail if rank == 1}
    told = {attempt for attempt, rank in around.trail if rank == 2}
    given_up = isinstance(around.finish.outcome, ForceAborted | Panicked)
    assert told <= started
    assert started - told <= ({around.run.attempt} if given_up else set())
