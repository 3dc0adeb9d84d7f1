"""What a desk and its actors order besides messages between slots and bodies: each effect carries itself out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission.outcome import Failed, Fatal, ForceAborted, Outcome, OutcomeKind, Panicked

if TYPE_CHECKING:
    from pykka import ActorRef

    from actors.messages import Ticket
    from actors.publisher import Publisher
    from actors.runtime import Deferred
    from admission.events import EventKind
    from admission.identity import TaskId

__all__ = ["QUIET_ENDS", "Answer", "Publish", "Settle", "Tell", "TellEnd", "finished_fields"]


@dataclass(slots=True)
class Tell:
    """Deliver a message."""

    ref: ActorRef[Any]
    message: Any

    def perform(self) -> None:
        """Do it."""
        self.ref.actor_inbox.put(self.message)


@dataclass(slots=True)
class Publish:
    """Tell the observers."""

    publisher: Publisher
    kind: EventKind
    ticket: Ticket | None = None
    fields: dict[str, Any] | None = None
    slot: str | None = None
    announced: bool = True
    about: TaskId | None = None
    """Whom it is about, where there is no ticket."""

    def perform(self) -> None:
        """Do it."""
        self.publisher.publish(
            self.kind, self.ticket, None, self.fields, about=self.about, slot=self.slot, announced=self.announced
        )


@dataclass(slots=True)
class Settle:
    """Give a submission its outcome."""

    ticket: Ticket
    outcome: Outcome[Any]

    def perform(self) -> None:
        """Do it."""
        self.ticket.settle(self.outcome)


@dataclass(slots=True)
class TellEnd:
    """Notify whoever follows a submission of its outcome: the last that it hears."""

    ticket: Ticket

    def perform(self) -> None:
        """Do it."""
        self.ticket.tell_end()


@dataclass(slots=True)
class Answer:
    """Answer a caller, with a value or an error."""

    reply: Deferred
    value: Any

    def perform(self) -> None:
        """Do it."""
        if isinstance(self.value, BaseException):
            self.reply.fail(self.value)
        else:
            self.reply.set(self.value)


QUIET_ENDS: Final = frozenset({OutcomeKind.COMPLETED, OutcomeKind.CANCELLED})
"""Outcomes that a log takes at the level of the kind itself; the others are raised above it."""


def finished_fields(outcome: Outcome[Any]) -> dict[str, Any]:
    """Return what `task_finished` says of an outcome."""
    fields: dict[str, Any] = {"outcome_kind": outcome.label}
    match outcome:
        case Failed() | Fatal():
            fields["reason"] = outcome.reason
            if outcome.exit_code is not None:
                fields["exit_code"] = outcome.exit_code
        case ForceAborted():
            fields["reason"] = "the body did not stop within its grace"
        case Panicked():
            fields["reason"] = outcome.reason
        case _:
            pass
    return fields
