"""A submission on its way, and what whoever asked to be notified hears of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from actors.runtime import Undeliverable
from admission.effects import Entry
from admission.outcome import Outcome, Rejected, RejectionKind

if TYPE_CHECKING:
    from contextvars import Context

    from actors.budget import Intake
    from actors.handle import TaskHandle
    from actors.observers.forward import Forwarder
    from admission.events import Event
    from admission.identity import TaskId
    from admission.spec import TaskSpec

__all__ = ["Ended", "Lifecycle", "Ticket"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Something happened to the submission that was told with this token."""

    token: Any
    event: Event = field(compare=False)


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """The last message about the submission told with this token. `id` is None if it never got one."""

    token: Any
    id: TaskId | None
    outcome: Outcome[T]


@dataclass(slots=True, eq=False)
class Ticket(Entry, Undeliverable):
    """One submission on its way: what the state machines know of it, and what is needed to run and to settle it.

    Itself the message by which the face hands in what it has put together in the caller's thread.
    """

    slot: str | None
    """The key that it competes for; None for one that was added directly."""
    spec: TaskSpec[Any]
    handle: TaskHandle[Any]
    context: Context | None
    intake: Intake | None = None
    notify: Forwarder | None = None
    token: Any = None
    record: Any = None
    """What the registry knows of its slot, from the turn that sends it there to the turn that gives it its outcome."""

    def follow(self, forwarder: Forwarder, token: Any) -> None:
        """Have everything that happens to it told there, with this token."""
        self.notify, self.token, self.followed = forwarder, token, True

    def decided(self) -> None:
        """Give the place in the intake back. Doing it again does nothing."""
        intake, self.intake = self.intake, None
        if intake is not None:
            intake.give()

    def settle(self, outcome: Outcome[Any]) -> None:
        """Resolve the handle: once, whoever comes first."""
        if self.handle.resolve(outcome):
            self.context = None

    def tell_end(self) -> None:
        """Tell whoever wants to be notified of the outcome, once, and of nothing afterwards."""
        notify, self.notify = self.notify, None
        if notify is not None and self.handle.done():
            notify.put(Ended(self.token, self.id, self.handle.outcome()))

    def undelivered(self) -> None:
        """Settle a submission whose message nobody will handle any more."""
        self.decided()
        self.settle(Rejected(RejectionKind.SHUTTING_DOWN, "shutdown has begun"))
        self.tell_end()
