"""One attempt's body as a runner gets it, and how what happens in it becomes a message."""

from __future__ import annotations

from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from actors.bodies.context import AsyncTaskContext, TaskContext
from actors.current import current_task
from actors.messages import BodyEntered, BodyReturned
from actors.runtime.guard import shared_lock
from admission.policy import RestartPolicy
from admission.run import AttemptCancelled, AttemptRaised, AttemptReturned, BodyResult, classify

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.messages import Ticket

__all__ = ["BodyJob", "BodyRunner", "describe", "judge", "returned"]

_LONGEST_REASON = 1000
_OURS = str(Path(__file__).parents[1])
_claiming = shared_lock()
_ONCE = RestartPolicy.NEVER
_NOTHING = AttemptReturned(None)


class _Nobody:
    """Before a job has a worker, nobody is told."""

    def put(self, _message: Any) -> None:
        """Nothing."""


_nobody = _Nobody()


class BodyJob:
    """One attempt: its body as a runner gets it, and what its slot remembers of it.

    Whoever passes `claim_entry` first, the runner or the one who gives the body up, decides whether it is entered.
    """

    __slots__ = (
        "attempt",
        "claimed",
        "clock",
        "context",
        "ctx",
        "inbox",
        "known_inside",
        "spec",
        "task",
        "ticket",
    )

    def __init__(self, ticket: Ticket, attempt: int, clock: Callable[[], float]) -> None:
        self.ticket = ticket
        self.attempt = attempt
        self.clock = clock
        self.spec = spec = ticket.spec
        kind = AsyncTaskContext if spec.is_coroutine else TaskContext
        self.ctx = kind(ticket.id, ticket.name, ticket.slot, attempt)
        self.context = _context_of(ticket)
        self.inbox: Any = _nobody  # the worker's mailbox
        self.known_inside = False  # the slot has been told that the body was entered
        self.task: Any = None  # the asyncio task, where there is one
        self.claimed = False

    def claim_entry(self) -> bool:
        """Decide whether this body is entered: True for the first caller only."""
        with _claiming:
            first, self.claimed = not self.claimed, True
        return first

    def call(self) -> Any:
        """Call the body; for the runner, inside the job's context."""
        current_task.set(self.ctx.task_id)
        return self.spec.body(self.ctx, *self.spec.args, **self.spec.kwargs)

    def entered(self) -> None:
        """Report that the body is entered now."""
        self.inbox.put(BodyEntered(self.clock()))

    def left(self, result: BodyResult[Any]) -> None:
        """Report that the body's code has left now."""
        self.inbox.put(BodyReturned(result, self.clock()))

    def given_up(self) -> None:
        """Report that the body is never entered."""
        self.inbox.put(BodyReturned(AttemptCancelled(), None))


class BodyRunner(Protocol):
    """How one kind of body runs. Every method returns at once; what happens is told to the job's worker."""

    def start(self, job: BodyJob) -> None:
        """Have the body entered. Raises where that can not be; then it is never entered."""
        ...

    def stop(self, job: BodyJob) -> None:
        """The job's scope is cancelled: wake the body; if it is not inside yet, it never will be."""
        ...

    def kill(self, job: BodyJob) -> None:
        """End the body where it can be ended; if it is not inside yet, it never will be."""
        ...

    def close(self) -> None:
        """Start nothing more."""
        ...


def _context_of(ticket: Ticket) -> Context:
    """Return a context that no other attempt has: of a run with one attempt, the one that was captured for it."""
    context = ticket.context
    if context is None:
        return Context()
    return context if ticket.spec.restart is _ONCE else context.copy()


def judge(error: BaseException) -> BodyResult[Any]:
    """Say what it means that a body raised this. Runs the user's `__str__`, so only where the body ran.

    Our own frames leave the traceback: a kept outcome must not hold the job.
    """
    with suppress(BaseException):
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
            trace = trace.tb_next
        error.__traceback__ = trace
    reason = describe(error)
    try:
        return classify(error, reason)
    except BaseException:  # noqa: BLE001 - a hostile `__class__` or `exit_code`
        return AttemptRaised(error, reason, fatal=True)


def describe(error: BaseException) -> str:
    """Return a bounded text for an exception, whatever its `__str__` does."""
    name = "exception"
    with suppress(BaseException):
        name = type(error).__name__
        text = str(error)
        label = getattr(type(error), "label", None)
        reason = text if label in ("task_failed", "task_fatal") else f"{name}: {text}" if text else name
        return reason[:_LONGEST_REASON]
    return f"{name} (its text can not be shown)"


def returned(value: Any) -> BodyResult[Any]:
    """Say that a body returned this."""
    return _NOTHING if value is None else AttemptReturned(value)
