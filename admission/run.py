"""How the owner's run goes: attempts, retries, timeouts, cancellation, release. All of it a pure state machine.

A method reads the state and returns a :class:`RunDecision` (or None for a message that is not current in this phase);
nothing changes until :meth:`RunMachine.commit`, which only assigns. Time comes in with the messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from admission.effects import (
    NO_FIELDS,
    AcquirePermit,
    BeginAttempt,
    CancelTimer,
    Cause,
    Effect,
    Emit,
    Entry,
    Finish,
    KillAttempt,
    ReleaseRun,
    ReturnPermit,
    SetCancelFlag,
    SetTimer,
    StopAttempt,
    TimerKind,
)
from admission.errors import AttemptTimeoutError, FatalError, TaskCancelledError, TaskFailedError
from admission.events import BackoffSource, EventKind
from admission.labels import Label
from admission.outcome import Cancelled, Completed, Failed, Fatal, ForceAborted, Outcome, Panicked
from admission.slot import Standing

if TYPE_CHECKING:
    from admission.backoff import RandomSource
    from admission.spec import RunSettings

__all__ = [
    "AttemptCancelled",
    "AttemptRaised",
    "AttemptResult",
    "AttemptReturned",
    "BodyResult",
    "RunDecision",
    "RunMachine",
    "RunPhase",
    "WorkerPanicked",
    "classify",
]

T_co = TypeVar("T_co", covariant=True)
LEAST_PERIOD: Final = 0.001
"""Successive attempts of a periodic run start at least this many seconds apart."""


# -- what an attempt can report ------------------------------------------------------------------------------------


@dataclass(slots=True)
class AttemptReturned(Generic[T_co]):
    """The body returned this value."""

    value: T_co


@dataclass(slots=True)
class AttemptRaised:
    """The body raised; `reason` is a bounded text of `error`, made on the body's own side."""

    error: BaseException
    reason: str
    fatal: bool = False
    exit_code: int | None = None


@dataclass(slots=True)
class AttemptCancelled:
    """The body reported its cancellation."""


@dataclass(slots=True)
class WorkerPanicked:
    """The machinery around the body failed."""

    reason: str


BodyResult: TypeAlias = AttemptReturned[T_co] | AttemptRaised | AttemptCancelled
AttemptResult: TypeAlias = BodyResult[T_co] | WorkerPanicked


def classify(error: BaseException, reason: str) -> AttemptRaised | AttemptCancelled:
    """Say what it means that a body raised `error`: any Exception may be retried, a bare BaseException not."""
    if isinstance(error, TaskCancelledError):
        return AttemptCancelled()
    if isinstance(error, (TaskFailedError, FatalError)):
        return AttemptRaised(error, reason, fatal=isinstance(error, FatalError), exit_code=error.exit_code)
    return AttemptRaised(error, reason, fatal=not isinstance(error, Exception))


# -- the machine ---------------------------------------------------------------------------------------------------


class RunPhase(Label):
    """Where the owner's run stands."""

    NEW = "new"
    WAITING_PERMIT = "waiting_permit"
    STARTING = "starting"
    """A worker has the attempt; its body is not inside yet."""
    INSIDE = "inside"
    OVERDUE = "overdue"
    """The attempt timed out and its body has not left; all that follows waits for the release."""
    REPORTED = "reported"
    """The result is there, the body's process has not left yet."""
    PAUSING = "pausing"
    """Between attempts: backoff after a failure, or the interval after a success."""
    LINGERING = "lingering"
    """The run has its outcome, its body has not left."""
    OVER = "over"


_ENDS: Final = {
    AttemptReturned: EventKind.ATTEMPT_SUCCEEDED,
    AttemptRaised: EventKind.ATTEMPT_FAILED,
    AttemptCancelled: EventKind.ATTEMPT_CANCELLED,
}
# A member's name is looked up once: on the hot road that costs as much as a call.
_NEW, _WAITING_PERMIT, _STARTING, _INSIDE = RunPhase.NEW, RunPhase.WAITING_PERMIT, RunPhase.STARTING, RunPhase.INSIDE
_OVERDUE, _REPORTED, _PAUSING = RunPhase.OVERDUE, RunPhase.REPORTED, RunPhase.PAUSING
_LINGERING, _OVER = RunPhase.LINGERING, RunPhase.OVER
_ATTEMPT_STARTING: Final = EventKind.ATTEMPT_STARTING

_WITH_BODY: Final = frozenset({_STARTING, _INSIDE, _OVERDUE, _REPORTED})

_UNREPORTED: Final = frozenset({_STARTING, _INSIDE, _OVERDUE})


class RunDecision:
    """What is to be assigned, what is to be done, and the end of the run if this is it."""

    __slots__ = ("attempt", "claimed", "deadline", "effects", "entered_at", "forced_by", "phase", "result", "retries")

    def __init__(self, machine: RunMachine, effects: list[Effect]) -> None:
        self.phase = machine.phase
        self.attempt = machine.attempt
        self.retries = machine.retries
        self.claimed = machine.claimed
        self.deadline = machine.deadline
        self.forced_by = machine.forced_by
        self.entered_at = machine.entered_at
        self.result = machine.result
        self.effects = effects


class RunMachine:
    """The state of one run. `limited` where attempts need a permit, `grace` in seconds."""

    __slots__ = (
        "attempt",
        "claimed",
        "deadline",
        "entered_at",
        "entry",
        "forced_by",
        "grace",
        "limited",
        "phase",
        "random",
        "result",
        "retries",
        "settings",
    )

    def __init__(
        self, entry: Entry, settings: RunSettings, *, grace: float, limited: bool, random: RandomSource
    ) -> None:
        self.entry = entry
        self.settings = settings
        self.grace = grace
        self.limited = limited
        self.random = random
        self.phase = _NEW
        self.attempt = 0
        self.retries = 0
        self.claimed = False
        self.deadline: float | None = None
        self.forced_by: Cause | None = None
        self.entered_at: float | None = None
        self.result: BodyResult[Any] | None = None

    def commit(self, decision: RunDecision) -> None:
        """Assign what was decided."""
        self.phase = decision.phase
        self.attempt = decision.attempt
        self.retries = decision.retries
        self.claimed = decision.claimed
        self.deadline = decision.deadline
        self.forced_by = decision.forced_by
        self.entered_at = decision.entered_at
        self.result = decision.result

    @property
    def standing(self) -> Standing:
        """How the run stands towards someone who wants it stopped."""
        if self.phase is _LINGERING or self.phase is _OVER:
            return Standing.OVER
        return Standing.CLAIMED if self.claimed else Standing.FREE

    # -- messages ------------------------------------------------------------------------------------------------

    def start(self, *, cancelled: bool = False) -> RunDecision:
        """Start the first attempt, or end the run before any."""
        decision = RunDecision(self, [])
        if cancelled:
            self._finish(decision, Cancelled())
        else:
            self._next_attempt(decision)
        return decision

    def granted(self, attempt: int) -> RunDecision | None:
        """The permit for this attempt is there."""
        if self.phase is not _WAITING_PERMIT or attempt != self.attempt:
            return None
        decision = RunDecision(self, [])
        self._begin(decision)
        return decision

    def denied(self, attempt: int, error: BaseException, now: float) -> RunDecision | None:
        """The limiter failed over this attempt's permit: it counts as an attempt that could not be started."""
        if self.phase is not _WAITING_PERMIT or attempt != self.attempt:
            return None
        decision = RunDecision(self, [Emit(_ATTEMPT_STARTING, self.entry, attempt)])
        self._settle(decision, AttemptRaised(error, str(error)), now, held=False)
        return decision

    def started(self, attempt: int, at: float) -> RunDecision | None:
        """The body was entered at this instant; its timeout counts from here."""
        if self.phase is not _STARTING or attempt != self.attempt:
            return None
        effects: list[Effect] = []
        decision = RunDecision(self, effects)
        decision.phase = _INSIDE
        decision.entered_at = at
        if self.settings.attempt_timeout is not None:
            effects.append(SetTimer(TimerKind.TIMEOUT, at + self.settings.attempt_timeout))
        return decision

    def ended(self, attempt: int, result: AttemptResult[Any], *, released: bool, now: float) -> RunDecision | None:
        """The worker reports how the body ended, and whether its code has left."""
        if self.phase not in _UNREPORTED or attempt != self.attempt:
            return self.released(attempt, now=now) if released else None
        decision = RunDecision(self, [])
        if isinstance(result, WorkerPanicked):
            self._drop_body_timers(decision)
            if not released:  # nobody waits for the result any more, so the body may as well stop
                decision.effects += (SetCancelFlag(Cause.CANCEL), KillAttempt())
            elif self.limited:
                decision.effects.append(ReturnPermit(attempt))
            self._finish(decision, Panicked(result.reason), lingering=not released)
        elif released:
            self._settle(decision, self._timed_out() if self.phase is _OVERDUE else result, now)
        elif self.phase is not _OVERDUE:
            decision.phase = _REPORTED
            decision.result = result
            decision.effects.append(CancelTimer(TimerKind.TIMEOUT))
        return decision

    def released(self, attempt: int, *, now: float) -> RunDecision | None:
        """The body's code has left."""
        if attempt != self.attempt:
            return None
        decision = RunDecision(self, [])
        if self.phase is _LINGERING:
            decision.phase = _OVER
            if self.limited:
                decision.effects.append(ReturnPermit(attempt))
            decision.effects.append(ReleaseRun())
        elif self.phase is _REPORTED and self.result is not None:
            self._settle(decision, self.result, now)
        elif self.phase is _OVERDUE:
            self._settle(decision, self._timed_out(), now)
        else:
            return None
        return decision

    def fired(self, timer: TimerKind, now: float) -> RunDecision | None:
        """A timer of this run is due."""
        decision = RunDecision(self, [])
        match timer:
            case TimerKind.TIMEOUT if self.phase is _INSIDE:
                self._overdue(decision, now)
            case TimerKind.GRACE if self.phase in _WITH_BODY:
                self._drop_body_timers(decision)
                decision.effects.append(KillAttempt())
                self._finish(decision, ForceAborted(), lingering=True, forced_by=self.forced_by)
            case TimerKind.PAUSE if self.phase is _PAUSING:
                self._next_attempt(decision)
            case _:
                return None
        return decision

    def claim(self, cause: Cause, now: float, deadline: float | None = None) -> RunDecision | None:
        """Somebody wants the run stopped. The first one claims it; a drain may bring its deadline forward.

        Its body has until the earlier of `deadline` and `grace` seconds from now.
        """
        standing = self.standing
        if standing is Standing.OVER or (standing is Standing.CLAIMED and deadline is None):
            return None
        effects: list[Effect] = []
        decision = RunDecision(self, effects)
        if standing is Standing.FREE:
            decision.claimed = True
            if self.phase is _WAITING_PERMIT:
                effects.append(ReturnPermit(self.attempt))
                self._finish(decision, Cancelled())
                return decision
            if self.phase is _PAUSING:
                effects.append(CancelTimer(TimerKind.PAUSE))
                self._finish(decision, Cancelled())
                return decision
            effects.append(SetCancelFlag(cause))
            effects.append(StopAttempt(cause))
        by = self.deadline  # of an overdue body it is set by its timeout; a later claim does not extend it
        if by is None:
            by, decision.forced_by = now + self.grace, cause
        if deadline is not None and deadline <= by:
            by, decision.forced_by = deadline, cause
        if by != self.deadline:
            decision.deadline = by
            effects.append(SetTimer(TimerKind.GRACE, by))
        return decision

    # -- parts ---------------------------------------------------------------------------------------------------

    def _next_attempt(self, decision: RunDecision) -> None:
        decision.attempt += 1
        decision.entered_at = decision.result = None
        if self.limited:
            decision.phase = _WAITING_PERMIT
            decision.effects.append(AcquirePermit(decision.attempt))
        else:
            self._begin(decision)

    def _begin(self, decision: RunDecision) -> None:
        decision.phase = _STARTING
        decision.effects.append(Emit(_ATTEMPT_STARTING, self.entry, decision.attempt, NO_FIELDS))
        decision.effects.append(BeginAttempt(decision.attempt))

    def _overdue(self, decision: RunDecision, now: float) -> None:
        fields = {"timeout": self.settings.attempt_timeout, "duration": self._elapsed(now)}
        decision.phase = _OVERDUE
        decision.effects += (
            SetCancelFlag(Cause.TIMEOUT),
            Emit(EventKind.ATTEMPT_TIMED_OUT, self.entry, self.attempt, fields),
            StopAttempt(Cause.TIMEOUT),
        )
        if self.deadline is None:  # one that a claim has set comes first anyway
            decision.deadline = now + self.grace
            decision.forced_by = Cause.TIMEOUT
            decision.effects.append(SetTimer(TimerKind.GRACE, decision.deadline))

    def _timed_out(self) -> AttemptRaised:
        error = AttemptTimeoutError(self.settings.attempt_timeout or 0.0)
        return AttemptRaised(error, str(error))

    def _settle(self, decision: RunDecision, result: BodyResult[Any], now: float, *, held: bool = True) -> None:
        """The body has left: say how the attempt went, then end the run or prepare its next attempt (table E.2)."""
        effects = decision.effects
        elapsed = self._elapsed(now)
        self._drop_body_timers(decision)
        if self.limited and held:
            effects.append(ReturnPermit(self.attempt))
        if self.phase is not _OVERDUE:  # an overdue attempt was reported when it timed out
            effects.append(self._attempt_event(result, elapsed))
        if isinstance(result, AttemptCancelled):
            self._finish(decision, Cancelled())
        elif isinstance(result, AttemptReturned):
            decision.retries = 0
            if self.claimed:
                self._finish(decision, Cancelled())
            elif self.settings.restart.after_success:
                self._rest(decision, elapsed, now)
            else:
                self._finish(decision, Completed(result.value))
        elif result.fatal:
            self._finish(decision, Fatal(result.reason, result.error, result.exit_code))
        else:
            self._retry_or_fail(decision, result, now)

    def _elapsed(self, now: float) -> float:
        return now - self.entered_at if self.entered_at is not None else 0.0

    def _attempt_event(self, result: BodyResult[Any], elapsed: float) -> Emit:
        fields: dict[str, Any] = {"duration": elapsed}
        if isinstance(result, AttemptRaised):
            fields["reason"] = result.reason
            if result.exit_code is not None:
                fields["exit_code"] = result.exit_code
        return Emit(_ENDS[type(result)], self.entry, self.attempt, fields)

    def _rest(self, decision: RunDecision, elapsed: float, now: float) -> None:
        """Pause after a success: the interval, and in any case no more than one attempt a millisecond."""
        interval = self.settings.restart.interval
        delay = max(interval or 0.0, LEAST_PERIOD - elapsed)
        if interval is not None:
            fields = {"delay": delay, "backoff_source": BackoffSource.SUCCESS}
            decision.effects.append(Emit(EventKind.BACKOFF_SCHEDULED, self.entry, self.attempt, fields))
        elif delay <= 0:
            self._next_attempt(decision)
            return
        self._pause(decision, now + delay)

    def _retry_or_fail(self, decision: RunDecision, result: AttemptRaised, now: float) -> None:
        settings = self.settings
        if not settings.restart.after_failure:
            self._finish(decision, Failed(result.reason, result.error, result.exit_code))
            return
        if settings.max_retries is not None and self.retries >= settings.max_retries:
            reason = f"retry limit reached ({self.retries} of {settings.max_retries}): {result.reason}"
            self._finish(decision, Failed(reason, result.error, result.exit_code))
            return
        delay = settings.backoff.delay_for_retry(self.retries, self.random)
        decision.retries += 1
        fields = {"delay": delay, "backoff_source": BackoffSource.FAILURE, "reason": result.reason}
        decision.effects.append(Emit(EventKind.BACKOFF_SCHEDULED, self.entry, self.attempt, fields))
        if self.claimed:  # the pause ends as soon as it begins
            self._finish(decision, Cancelled())
        else:
            self._pause(decision, now + delay)

    def _pause(self, decision: RunDecision, due: float) -> None:
        decision.phase = _PAUSING
        decision.effects.append(SetTimer(TimerKind.PAUSE, due))

    def _finish(
        self, decision: RunDecision, outcome: Outcome[Any], *, lingering: bool = False, forced_by: Cause | None = None
    ) -> None:
        decision.phase = _LINGERING if lingering else _OVER
        decision.effects.append(Finish(outcome, lingering, forced_by))

    def _drop_body_timers(self, decision: RunDecision) -> None:
        if self.phase is _INSIDE and self.settings.attempt_timeout is not None:
            decision.effects.append(CancelTimer(TimerKind.TIMEOUT))
        if self.deadline is not None:
            decision.effects.append(CancelTimer(TimerKind.GRACE))
        decision.deadline = decision.forced_by = None
