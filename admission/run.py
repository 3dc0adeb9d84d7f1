"""How the owner's run goes: attempts, retries, timeouts, cancellation, release. All of it a pure state machine.

Each method is one message: it decides, then assigns what is new, the phase last, and returns the effects in the order
in which they were decided (None for a message that is not current in this phase). Time comes in with the messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from admission.effects import (
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
    from admission.rules import Rules
    from admission.spec import RunSettings

__all__ = [
    "AttemptCancelled",
    "AttemptRaised",
    "AttemptResult",
    "AttemptReturned",
    "BodyResult",
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
_DONE: Final[Completed[None]] = Completed(None)
_CANCELLED: Final = Cancelled()

_WITH_BODY: Final = frozenset({_STARTING, _INSIDE, _OVERDUE, _REPORTED})

_UNREPORTED: Final = frozenset({_STARTING, _INSIDE, _OVERDUE})


class RunMachine:
    """The state of one run."""

    __slots__ = (
        "attempt",
        "claimed",
        "deadline",
        "entered_at",
        "entry",
        "forced_by",
        "phase",
        "result",
        "retries",
        "rules",
        "settings",
    )

    def __init__(self, entry: Entry, settings: RunSettings, rules: Rules) -> None:
        self.entry = entry
        self.settings = settings
        self.rules = rules
        self.phase = _NEW
        self.attempt = 0
        self.retries = 0
        self.claimed = False
        self.deadline: float | None = None
        self.forced_by: Cause | None = None
        self.entered_at: float | None = None
        self.result: BodyResult[Any] | None = None

    @property
    def standing(self) -> Standing:
        """How the run stands towards someone who wants it stopped."""
        if self.phase is _LINGERING or self.phase is _OVER:
            return Standing.OVER
        return Standing.CLAIMED if self.claimed else Standing.FREE

    # -- messages ------------------------------------------------------------------------------------------------

    def start(self, *, cancelled: bool = False) -> list[Effect]:
        """Start the first attempt, or end the run before any."""
        effects: list[Effect] = []
        if cancelled:
            self._finish(effects, _CANCELLED)
        else:
            self._next_attempt(effects)
        return effects

    def granted(self, attempt: int) -> list[Effect] | None:
        """The permit for this attempt is there."""
        if self.phase is not _WAITING_PERMIT or attempt != self.attempt:
            return None
        effects: list[Effect] = []
        self._begin(effects, attempt)
        return effects

    def denied(self, attempt: int, error: BaseException, now: float) -> list[Effect] | None:
        """The limiter failed over this attempt's permit: it counts as an attempt that could not be started."""
        if self.phase is not _WAITING_PERMIT or attempt != self.attempt:
            return None
        effects: list[Effect] = [Emit(_ATTEMPT_STARTING, self.entry, attempt)]
        self._settle(effects, AttemptRaised(error, str(error)), now, held=False)
        return effects

    def started(self, attempt: int, at: float) -> list[Effect] | None:
        """The body was entered at this instant; its timeout counts from here."""
        if self.phase is not _STARTING or attempt != self.attempt:
            return None
        effects: list[Effect] = []
        if self.settings.attempt_timeout is not None:
            effects.append(SetTimer(TimerKind.TIMEOUT, at + self.settings.attempt_timeout))
        self.entered_at = at
        self.phase = _INSIDE
        return effects

    def ended(self, attempt: int, result: AttemptResult[Any], *, released: bool, now: float) -> list[Effect] | None:
        """The worker reports how the body ended, and whether its code has left."""
        if self.phase not in _UNREPORTED or attempt != self.attempt:
            return self.released(attempt, now=now) if released else None
        effects: list[Effect] = []
        if isinstance(result, WorkerPanicked):
            self._drop_body_timers(effects)
            if not released:  # nobody waits for the result any more, so the body may as well stop
                effects += (SetCancelFlag(Cause.CANCEL), KillAttempt())
            elif self.rules.limited:
                effects.append(ReturnPermit(self.entry.id, attempt))
            self._finish(effects, Panicked(result.reason), lingering=not released)
        elif released:
            self._settle(effects, self._timed_out() if self.phase is _OVERDUE else result, now)
        elif self.phase is not _OVERDUE:
            effects.append(CancelTimer(TimerKind.TIMEOUT))
            self.result = result
            self.phase = _REPORTED
        return effects

    def released(self, attempt: int, *, now: float) -> list[Effect] | None:
        """The body's code has left."""
        if attempt != self.attempt:
            return None
        effects: list[Effect] = []
        if self.phase is _LINGERING:
            if self.rules.limited:
                effects.append(ReturnPermit(self.entry.id, attempt))
            effects.append(ReleaseRun())
            self.phase = _OVER
        elif self.phase is _REPORTED and self.result is not None:
            self._settle(effects, self.result, now)
        elif self.phase is _OVERDUE:
            self._settle(effects, self._timed_out(), now)
        else:
            return None
        return effects

    def fired(self, timer: TimerKind, now: float) -> list[Effect] | None:
        """A timer of this run is due."""
        effects: list[Effect] = []
        match timer:
            case TimerKind.TIMEOUT if self.phase is _INSIDE:
                self._overdue(effects, now)
            case TimerKind.GRACE if self.phase in _WITH_BODY:
                forced_by = self.forced_by
                self._drop_body_timers(effects)
                effects.append(KillAttempt())
                self._finish(effects, ForceAborted(), lingering=True, forced_by=forced_by)
            case TimerKind.PAUSE if self.phase is _PAUSING:
                self._next_attempt(effects)
            case _:
                return None
        return effects

    def claim(self, cause: Cause, now: float, deadline: float | None = None) -> list[Effect] | None:
        """Somebody wants the run stopped. The first one claims it; a drain may bring its deadline forward.

        Its body has until the earlier of `deadline` and `grace` seconds from now.
        """
        standing = self.standing
        if standing is Standing.OVER or (standing is Standing.CLAIMED and deadline is None):
            return None
        effects: list[Effect] = []
        if standing is Standing.FREE:
            if self.phase is _WAITING_PERMIT or self.phase is _PAUSING:
                waits = self.phase is _WAITING_PERMIT
                effects.append(ReturnPermit(self.entry.id, self.attempt) if waits else CancelTimer(TimerKind.PAUSE))
                self.claimed = True
                self._finish(effects, _CANCELLED)
                return effects
            effects.append(SetCancelFlag(cause))
            effects.append(StopAttempt(cause))
        by, forced_by = self.deadline, self.forced_by
        if by is None:  # of an overdue body it is set by its timeout; a later claim does not extend it
            by, forced_by = now + self.rules.grace, cause
        if deadline is not None and deadline <= by:
            by, forced_by = deadline, cause
        if by != self.deadline:
            effects.append(SetTimer(TimerKind.GRACE, by))
        self.deadline, self.forced_by = by, forced_by
        self.claimed = True
        return effects

    # -- parts ---------------------------------------------------------------------------------------------------

    def _next_attempt(self, effects: list[Effect]) -> None:
        attempt = self.attempt + 1
        if self.rules.limited:
            effects.append(AcquirePermit(attempt))
            self.attempt, self.entered_at, self.result = attempt, None, None
            self.phase = _WAITING_PERMIT
        else:
            self._begin(effects, attempt)

    def _begin(self, effects: list[Effect], attempt: int) -> None:
        if not self.rules.audience.passes_over(self.entry):
            effects.append(Emit(_ATTEMPT_STARTING, self.entry, attempt))
        effects.append(BeginAttempt(attempt))
        self.attempt, self.entered_at, self.result = attempt, None, None
        self.phase = _STARTING

    def _overdue(self, effects: list[Effect], now: float) -> None:
        fields = {"timeout": self.settings.attempt_timeout, "duration": self._elapsed(now)}
        effects += (
            SetCancelFlag(Cause.TIMEOUT),
            Emit(EventKind.ATTEMPT_TIMED_OUT, self.entry, self.attempt, fields),
            StopAttempt(Cause.TIMEOUT),
        )
        if self.deadline is None:  # one that a claim has set comes first anyway
            deadline = now + self.rules.grace
            effects.append(SetTimer(TimerKind.GRACE, deadline))
            self.deadline, self.forced_by = deadline, Cause.TIMEOUT
        self.phase = _OVERDUE

    def _timed_out(self) -> AttemptRaised:
        error = AttemptTimeoutError(self.settings.attempt_timeout or 0.0)
        return AttemptRaised(error, str(error))

    def _settle(self, effects: list[Effect], result: BodyResult[Any], now: float, *, held: bool = True) -> None:
        """The body has left: say how the attempt went, then end the run or prepare its next attempt (table E.2)."""
        self._drop_body_timers(effects)
        if held and self.rules.limited:
            effects.append(ReturnPermit(self.entry.id, self.attempt))
        if self.phase is not _OVERDUE:  # an overdue attempt was reported when it timed out
            self._report(effects, result, now)
        if isinstance(result, AttemptReturned):
            if self.settings.restart.after_success:
                self.retries = 0
                self._rest(effects, now)
            elif self.claimed:
                self._finish(effects, _CANCELLED)
            else:
                self._finish(effects, _DONE if result.value is None else Completed(result.value))
        elif isinstance(result, AttemptCancelled):
            self._finish(effects, _CANCELLED)
        elif result.fatal:
            self._finish(effects, Fatal(result.reason, result.error, result.exit_code))
        else:
            self._retry_or_fail(effects, result, now)

    def _elapsed(self, now: float) -> float:
        return now - self.entered_at if self.entered_at is not None else 0.0

    def _report(self, effects: list[Effect], result: BodyResult[Any], now: float) -> None:
        failed = result if isinstance(result, AttemptRaised) else None
        if failed is None and self.rules.audience.passes_over(self.entry):
            return
        fields: dict[str, Any] = {"duration": self._elapsed(now)}
        if failed is not None:
            fields["reason"] = failed.reason
            if failed.exit_code is not None:
                fields["exit_code"] = failed.exit_code
        effects.append(Emit(_ENDS[type(result)], self.entry, self.attempt, fields))

    def _rest(self, effects: list[Effect], now: float) -> None:
        """Pause after a success: the interval, and in any case no more than one attempt a millisecond."""
        interval = self.settings.restart.interval
        delay = max(interval or 0.0, LEAST_PERIOD - self._elapsed(now))
        if interval is not None:
            fields = {"delay": delay, "backoff_source": BackoffSource.SUCCESS}
            effects.append(Emit(EventKind.BACKOFF_SCHEDULED, self.entry, self.attempt, fields))
        if self.claimed:  # the pause ends as soon as it begins
            self._finish(effects, _CANCELLED)
        elif interval is None and delay <= 0:
            self._next_attempt(effects)
        else:
            self._pause(effects, now + delay)

    def _retry_or_fail(self, effects: list[Effect], result: AttemptRaised, now: float) -> None:
        settings = self.settings
        if not settings.restart.after_failure:
            self._finish(effects, Failed(result.reason, result.error, result.exit_code))
            return
        if settings.max_retries is not None and self.retries >= settings.max_retries:
            reason = f"retry limit reached ({self.retries} of {settings.max_retries}): {result.reason}"
            self._finish(effects, Failed(reason, result.error, result.exit_code))
            return
        delay = settings.backoff.delay_for_retry(self.retries, self.rules.random)
        fields = {"delay": delay, "backoff_source": BackoffSource.FAILURE, "reason": result.reason}
        effects.append(Emit(EventKind.BACKOFF_SCHEDULED, self.entry, self.attempt, fields))
        self.retries += 1
        if self.claimed:  # the pause ends as soon as it begins
            self._finish(effects, _CANCELLED)
        else:
            self._pause(effects, now + delay)

    def _pause(self, effects: list[Effect], due: float) -> None:
        effects.append(SetTimer(TimerKind.PAUSE, due))
        self.phase = _PAUSING

    def _finish(
        self,
        effects: list[Effect],
        outcome: Outcome[Any],
        *,
        lingering: bool = False,
        forced_by: Cause | None = None,
    ) -> None:
        effects.append(Finish(self.entry, outcome, lingering, forced_by))
        self.phase = _LINGERING if lingering else _OVER

    def _drop_body_timers(self, effects: list[Effect]) -> None:
        if self.phase is _INSIDE and self.settings.attempt_timeout is not None:
            effects.append(CancelTimer(TimerKind.TIMEOUT))
        if self.deadline is not None:
            effects.append(CancelTimer(TimerKind.GRACE))
            self.deadline = self.forced_by = None
