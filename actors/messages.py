"""The protocol: every message, grouped by who sends it to whom.

Every message about a run names `(TaskId, attempt)`, a timer its token, everything else the slot ref or a Deferred. A
receiver drops what is not current in a phase that expects it.
"""

from __future__ import annotations

import contextlib
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pykka import ActorDeadError

from actors.looks import Alive, Explain, Snapshot, Tasks, View, Viewed
from actors.runtime import Undeliverable, deliver
from actors.ticket import Ended, Lifecycle, Ticket
from admission.outcome import Outcome, Rejected, RejectionKind
from admission.spec import Submission, TaskSpec

if TYPE_CHECKING:
    from pykka import ActorRef

    from admission.effects import Cause
    from admission.identity import TaskId
    from admission.run import AttemptResult, BodyResult

__all__ = [
    "Acquire",
    "Add",
    "Admit",
    "Adopt",
    "Alive",
    "AttemptEnded",
    "AttemptReleased",
    "AttemptStarted",
    "Begin",
    "BodyEntered",
    "BodyReturned",
    "Cancel",
    "Denied",
    "Drain",
    "Ended",
    "Explain",
    "Finished",
    "Flush",
    "Flushed",
    "Granted",
    "Join",
    "Kill",
    "Lifecycle",
    "Refused",
    "Register",
    "Registered",
    "Rejection",
    "Released",
    "Remove",
    "Retire",
    "Return",
    "RunOut",
    "Shutdown",
    "Snapshot",
    "Stop",
    "Submit",
    "Tasks",
    "Ticket",
    "View",
    "Viewed",
    "Withdraw",
    "Withdrawn",
]

T = TypeVar("T")


# -- caller -> registry --------------------------------------------------------------------------------------------


class _FromActor(Undeliverable):
    """Work from an actor. Context variables are captured here, by whoever makes the message."""

    __slots__ = ("context", "notify", "token")

    def __init__(self, notify: ActorRef[Any] | None, token: Any) -> None:
        self.notify = notify
        self.token = token
        self.context = copy_context()

    @property
    def number(self) -> int:
        """How many submissions it is."""
        return 1

    def undelivered(self) -> None:
        """Settle it: the registry has stopped."""
        if self.notify is not None:
            with contextlib.suppress(ActorDeadError):
                outcome = Rejected(RejectionKind.SHUTTING_DOWN, "the registry has stopped")
                for _ in range(self.number):
                    self.notify.tell(Ended(self.token, None, outcome))


class Submit(_FromActor, Generic[T]):
    """Submit this. Asked: answered with a `TaskHandle`. Told: answered through `notify`, if given.

    `notify` is the ref of any Pykka actor. It receives a `Lifecycle` message per event of this submission and, as the
    last, exactly one `Ended`, each with this `token`. Nothing is dropped. Context variables are captured here, by
    whoever makes the message. Never waits: past the intake limit it ends as Rejected(RESOURCE_LIMIT).
    """

    __slots__ = ("label", "submission", "ticket")

    def __init__(
        self, submission: Submission[T] | TaskSpec[T], *, notify: ActorRef[Any] | None = None, token: Any = None
    ) -> None:
        self.submission = submission if isinstance(submission, Submission) else Submission(submission)
        super().__init__(notify, token)
        nameless = self.submission.slot is None and self.submission.spec.name is None
        self.label = self.submission.spec.label if nameless else ""  # may be the application's code: not on our thread
        self.ticket: Ticket | None = None  # made by the registry


class Add(_FromActor):
    """Register these specs at once, without a slot: all of them or none.

    Asked: answered with their handles, in order, or with `TaskExistsError` or `ResourceLimitError`. Told: answered
    through `notify` like `Submit`, for each of them with this `token`.
    """

    __slots__ = ("labels", "specs")

    def __init__(self, *specs: TaskSpec[Any], notify: ActorRef[Any] | None = None, token: Any = None) -> None:
        self.specs = specs
        super().__init__(notify, token)
        self.labels = tuple(spec.label if spec.name is None else "" for spec in specs)  # as in `Submit`

    @property
    def number(self) -> int:
        """How many submissions it is."""
        return len(self.specs)


@dataclass(slots=True, eq=False)
class Remove:
    """Ask for this run (by id or by registered name) to end; answered with whether this call claimed it, at once."""

    target: TaskId | str


@dataclass(slots=True, eq=False)
class Cancel:
    """Like Remove, but with `wait` answered only when the run has its outcome.

    With a `timeout`, no later than so many seconds after its slot has decided, then with `TaskTerminationTimeoutError`.
    """

    target: TaskId | str
    wait: bool = True
    timeout: float | None = None


@dataclass(slots=True, eq=False)
class Join:
    """Answered as soon as nothing that was accepted is without its outcome."""


@dataclass(slots=True, eq=False)
class RunOut:
    """Shut down as soon as nothing is without its outcome; answered with the one `ShutdownReport`."""


@dataclass(slots=True, eq=False)
class Shutdown:
    """Shut down within `grace` seconds (default: the configured ones); answered with the one `ShutdownReport`."""

    grace: float | None = None


# -- registry -> slot ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Admit(Undeliverable):
    """Decide about this submission."""

    ticket: Ticket

    def undelivered(self) -> None:
        """Settle it: the slot has ended."""
        self.ticket.undelivered()


@dataclass(slots=True, eq=False)
class Adopt(Undeliverable):
    """Run this registered submission in a slot of its own, which has no key; `epoch` as in `Registered`."""

    ticket: Ticket
    epoch: int

    def undelivered(self) -> None:
        """Settle it: the slot has ended."""
        self.ticket.undelivered()


@dataclass(slots=True, eq=False)
class Registered:
    """The owner with this id is a registered run; `epoch` grows with every owner of every slot."""

    id: TaskId
    epoch: int


@dataclass(slots=True, eq=False)
class Refused:
    """The owner with this id was turned away, and everybody has been told."""

    id: TaskId
    kind: RejectionKind


@dataclass(slots=True, eq=False)
class Withdraw:
    """Somebody wants this submission gone; answered by `Withdrawn` with the same `op`."""

    id: TaskId
    op: object
    cause: Cause


@dataclass(slots=True, eq=False)
class Drain:
    """Shutdown: turn the line away, stop the owner by `deadline` (monotonic seconds), start nothing more."""

    deadline: float


@dataclass(slots=True, eq=False)
class Retire:
    """End, at once or with the release of a body that is still inside."""


# -- slot -> registry ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Register(Undeliverable):
    """Register this submission as its slot's owner; answered by `Registered` or `Refused`."""

    ticket: Ticket

    def undelivered(self) -> None:
        """Settle it: the registry has stopped."""
        self.ticket.undelivered()


@dataclass(slots=True, eq=False)
class Withdrawn:
    """Whether the withdrawal `op` claimed this id."""

    id: TaskId
    op: object
    claimed: bool


@dataclass(slots=True, eq=False)
class Rejection(Undeliverable):
    """The slot has turned this submission away."""

    ticket: Ticket
    outcome: Rejected

    def undelivered(self) -> None:
        """Settle it with the outcome that it carries."""
        self.ticket.settle(self.outcome)
        self.ticket.tell_end()


@dataclass(slots=True, eq=False)
class Finished(Undeliverable):
    """The owner has its outcome; `lingering` where its body is still inside, `forced_by` what ended the wait for it."""

    ticket: Ticket
    outcome: Outcome[Any]
    lingering: bool = False
    forced_by: Cause | None = None

    def undelivered(self) -> None:
        """Settle it with the outcome that it carries."""
        self.ticket.settle(self.outcome)
        self.ticket.tell_end()


@dataclass(slots=True, eq=False)
class Released:
    """Nothing of this submission is left in the slot: the body of a finished run, or an owner that was refused."""

    id: TaskId


# -- slot -> limiter, limiter -> slot ------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Acquire:
    """Ask for a permit for this attempt."""

    id: TaskId
    attempt: int
    slot: ActorRef[Any]


@dataclass(slots=True, eq=False)
class Return:
    """Give up the permit of this attempt, held or still asked for."""

    id: TaskId
    attempt: int


@dataclass(slots=True, eq=False)
class Granted:
    """The permit for this attempt is there."""

    id: TaskId
    attempt: int


@dataclass(slots=True, eq=False)
class Denied:
    """The limiter failed over this request; there will be no permit."""

    id: TaskId
    attempt: int
    error: BaseException


# -- slot -> worker ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Begin:
    """Start the body."""


@dataclass(slots=True, eq=False)
class Stop:
    """Wake the body, which has been asked to stop; take it out if it is not inside yet."""

    cause: Cause


@dataclass(slots=True, eq=False)
class Kill:
    """End the body where it can be ended."""


# -- worker -> slot ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class AttemptStarted:
    """The body of this attempt was entered at this instant of the monotonic clock."""

    id: TaskId
    attempt: int
    at: float


@dataclass(slots=True, eq=False)
class AttemptEnded:
    """How the attempt ended; `released` where its code has left (at `at`, if it was ever inside)."""

    id: TaskId
    attempt: int
    result: AttemptResult[Any]
    released: bool
    at: float | None = None


@dataclass(slots=True, eq=False)
class AttemptReleased:
    """The code of an attempt that has already ended has left, at this instant."""

    id: TaskId
    attempt: int
    at: float | None = None


# -- body -> worker ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class BodyEntered:
    """The body was entered at this instant, taken by the code that entered it."""

    at: float


@dataclass(slots=True, eq=False)
class BodyReturned:
    """The body has left at this instant (None: it was never entered), with this result."""

    result: BodyResult[Any]
    at: float | None


# -- registry -> observers and back --------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Flush(Undeliverable):
    """Answer `Flushed` to this ref when everything before has been written (log) or taken (subscriber)."""

    reply_to: ActorRef[Any]
    of_log: bool = True

    def undelivered(self) -> None:
        """Settle it: whoever should answer takes nothing more."""
        deliver(self.reply_to, Flushed(self.of_log))


@dataclass(slots=True, eq=False)
class Flushed:
    """Everything before `Flush` has been written or taken."""

    of_log: bool = True
