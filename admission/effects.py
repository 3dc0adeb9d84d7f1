"""What the two state machines order: a closed vocabulary of effects, carried out by the actor around them.

Effects are plain data; no machine carries anything out. Their rank fixes the order inside one turn: cancel flags,
then what is given back, events, work on attempts, answers, the end of a run, and the registration of the next owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from admission.labels import Label

if TYPE_CHECKING:
    from admission.events import EventKind
    from admission.identity import TaskId
    from admission.outcome import Outcome, RejectionKind
    from admission.policy import AdmissionPolicy

__all__ = [
    "AcquirePermit",
    "AnswerWithdrawal",
    "BeginAttempt",
    "CancelTimer",
    "Cause",
    "ClaimRun",
    "DrainRun",
    "Edge",
    "Effect",
    "Emit",
    "Entry",
    "Finish",
    "KillAttempt",
    "Phase",
    "Rank",
    "Register",
    "Reject",
    "ReleaseRun",
    "ReturnPermit",
    "ReturnUnit",
    "SetCancelFlag",
    "SetTimer",
    "StartRun",
    "StopAttempt",
    "TimerKind",
    "Vacate",
    "in_order",
]


@dataclass(slots=True, eq=False)
class Entry:
    """One submission as the machines know it."""

    id: TaskId
    policy: AdmissionPolicy
    name: str
    followed: bool = field(default=False, kw_only=True)
    """Whether somebody asked to hear of everything that happens to this one."""


class Phase(Label):
    """Where a slot stands. `admission.slot.LEGAL_EDGES` lists every change that there is."""

    ABSENT = "absent"
    IDLE = "idle"
    ADMITTING = "admitting"
    CANCEL_PENDING = "cancel_pending"
    RUNNING = "running"
    TERMINATING = "terminating"
    CLOSED = "closed"


class Cause(Label):
    """Who asks a run to stop, or what ended the wait for it."""

    REMOVE = "remove"
    CANCEL = "manual_cancel"
    REPLACE = "replace"
    DRAIN = "drain"
    TIMEOUT = "timeout"


class TimerKind(Label):
    """The timers of a run; at most one of each is pending."""

    TIMEOUT = "attempt_timeout"
    GRACE = "grace"
    PAUSE = "pause"


class Rank(IntEnum):
    """The order of effects inside one turn."""

    FLAG = 0
    RETURN = 1
    EVENT = 2
    WORK = 3
    ANSWER = 4
    REJECT = 5
    END = 6
    REGISTER = 7


@dataclass(slots=True)
class SetCancelFlag:
    """Make the running attempt's context cancelled; visible to the body before anyone is answered."""

    cause: Cause
    rank: ClassVar[Rank] = Rank.FLAG


@dataclass(slots=True)
class ReturnPermit:
    """Give up the permit of this attempt, held or still asked for."""

    id: TaskId
    attempt: int
    rank: ClassVar[Rank] = Rank.RETURN


@dataclass(slots=True)
class ReturnUnit:
    """Give back the unit of the shared budget that one waiting submission held."""

    rank: ClassVar[Rank] = Rank.RETURN


@dataclass(slots=True)
class Emit:
    """Tell observers that this happened to this submission."""

    kind: EventKind
    entry: Entry
    attempt: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    rank: ClassVar[Rank] = Rank.EVENT


@dataclass(slots=True)
class Edge:
    """The slot changed its phase; `announced` where subscribers hear of it and not only the log."""

    from_phase: Phase
    to_phase: Phase
    announced: bool = False
    reason: str | None = None
    rank: ClassVar[Rank] = Rank.EVENT


@dataclass(slots=True)
class SetTimer:
    """Fire this timer at this monotonic instant (seconds); replaces a pending one of its kind."""

    kind: TimerKind
    due: float
    rank: ClassVar[Rank] = Rank.WORK


@dataclass(slots=True)
class CancelTimer:
    """Drop this timer, if it is pending."""

    kind: TimerKind
    rank: ClassVar[Rank] = Rank.WORK


@dataclass(slots=True)
class AcquirePermit:
    """Ask for one of the `max_concurrent` permits for this attempt."""

    attempt: int
    rank: ClassVar[Rank] = Rank.WORK


@dataclass(slots=True)
class BeginAttempt:
    """Start a worker for this attempt."""

    attempt: int
    rank: ClassVar[Rank] = Rank.WORK


@dataclass(slots=True)
class StopAttempt:
    """Have the worker wake its body, which is asked to stop."""

    cause: Cause
    rank: ClassVar[Rank] = Rank.WORK


@dataclass(slots=True)
class KillAttempt:
    """Have the worker end its body where it can be ended; where not, it is never entered if it is not yet inside."""

    rank: ClassVar[Rank] = Rank.WORK


@dataclass(slots=True)
class StartRun:
    """The owner is registered: start its first attempt, or end it as Cancelled before any."""

    entry: Entry
    epoch: int
    cancelled: bool = False
    rank: ClassVar[Rank] = Rank.WORK


@dataclass(slots=True)
class ClaimRun:
    """Ask the owner's run to stop."""

    cause: Cause
    rank: ClassVar[Rank] = Rank.WORK


@dataclass(slots=True)
class DrainRun:
    """Ask the owner's run to stop by this monotonic instant at the latest."""

    deadline: float
    rank: ClassVar[Rank] = Rank.WORK


@dataclass(slots=True)
class AnswerWithdrawal:
    """Tell whether the withdrawal `op` of this id is the one that claimed it."""

    id: TaskId
    op: object
    claimed: bool
    rank: ClassVar[Rank] = Rank.ANSWER


@dataclass(slots=True)
class Reject:
    """Turn this submission away."""

    entry: Entry
    kind: RejectionKind
    reason: str
    cause_id: TaskId | None = None
    rank: ClassVar[Rank] = Rank.REJECT


@dataclass(slots=True)
class Finish:
    """The run has its outcome; `lingering` where its body has not left yet, `forced_by` what ended the wait for it."""

    entry: Entry
    outcome: Outcome[Any]
    lingering: bool = False
    forced_by: Cause | None = None
    rank: ClassVar[Rank] = Rank.END


@dataclass(slots=True)
class ReleaseRun:
    """The body of a run that already has its outcome has left."""

    rank: ClassVar[Rank] = Rank.END


@dataclass(slots=True)
class Vacate:
    """Tell that nothing of this submission is left in the slot."""

    id: TaskId
    rank: ClassVar[Rank] = Rank.END


@dataclass(slots=True)
class Register:
    """Ask for this submission to be registered as the slot's owner."""

    entry: Entry
    rank: ClassVar[Rank] = Rank.REGISTER


Effect: TypeAlias = (
    SetCancelFlag
    | ReturnPermit
    | ReturnUnit
    | Emit
    | Edge
    | SetTimer
    | CancelTimer
    | AcquirePermit
    | BeginAttempt
    | StopAttempt
    | KillAttempt
    | StartRun
    | ClaimRun
    | DrainRun
    | AnswerWithdrawal
    | Reject
    | Finish
    | ReleaseRun
    | Vacate
    | Register
)


_rank = attrgetter("rank")


def in_order(effects: list[Effect]) -> list[Effect]:
    """Return the effects of one turn in the order in which they are carried out (stable within a rank)."""
    return sorted(effects, key=_rank)
