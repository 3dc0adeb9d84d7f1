"""Runs that are registered at once, without a slot to compete for: one, or a batch of which all or none are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.budget import closed_error
from actors.desk import Desk
from actors.handle import TaskHandle
from actors.messages import Adopt, Retire
from actors.orders import Publish, Settle
from actors.ticket import Ticket
from admission.errors import ResourceLimitError, TaskExistsError
from admission.events import EventKind
from admission.outcome import Rejected, RejectionKind
from admission.policy import AdmissionPolicy

if TYPE_CHECKING:
    from actors.ending import SlotRecord
    from actors.messages import Add
    from admission.spec import TaskSpec

__all__ = ["Adding"]

_EXISTS, _LIMIT, _BATCH = RejectionKind.ALREADY_EXISTS, RejectionKind.RESOURCE_LIMIT, RejectionKind.BATCH_REJECTED


class Adding(Desk):
    """A desk at which runs can be registered directly."""

    def new_private_slot(self) -> SlotRecord:
        """Make a slot for one run that competes with nobody."""
        raise NotImplementedError

    def on_add(self, message: Add) -> Any:
        """Register all of them, or none; asked for it, the reply is their handles."""
        if self.deadline is not None:
            error = closed_error()
            self.tell_not_taken(message, error)
            return error
        named = zip(message.specs, message.labels, strict=True)
        tickets = [self._ticket(spec, label, message) for spec, label in named]
        out: list[Any] = [Publish(self.publisher, EventKind.TASK_ADD_REQUESTED, ticket) for ticket in tickets]
        refused = self._refused(tickets)
        if refused is not None:
            reason, kinds = refused
            for ticket, kind in zip(tickets, kinds, strict=True):
                self.tell_add_failed(ticket, Rejected(kind, str(reason)), out)
            self.runtime.perform(self, out)
            return reason
        out += [Publish(self.publisher, EventKind.TASK_ADDED, ticket) for ticket in tickets]
        epochs = range(self.epoch + 1, self.epoch + 1 + len(tickets))
        for ticket, epoch in zip(tickets, epochs, strict=True):  # behind: all is announced before the first starts
            ticket.record = self.new_private_slot()
            out.append(self.to_slot(ticket.record, Adopt(ticket, epoch)))
        try:
            self._index(tickets)
        except BaseException as error:
            self._take_back(tickets, error)
            raise
        self.runtime.perform(self, out)
        return [ticket.handle for ticket in tickets]

    def _index(self, tickets: list[Ticket]) -> None:
        self.epoch += len(tickets)
        for ticket in tickets:
            self.members[ticket.id] = ticket.name
            self.names[ticket.name] = ticket.id
            self.opened(ticket.record)
            self.routes[ticket.id] = ticket

    def _take_back(self, tickets: list[Ticket], error: BaseException) -> None:
        """Nothing of the batch was announced or has begun: none of it has been there."""
        out: list[Any] = []
        for ticket in tickets:
            self.unregister_member(ticket)
            self.routes.pop(ticket.id, None)
            self.private.pop(ticket.record, None)
            out.append(self.to_slot(ticket.record, Retire()))
            out.append(Settle(ticket, Rejected(RejectionKind.ADMISSION_FAILED, f"not taken: {type(error).__name__}")))
        self.runtime.perform(self, out)

    def _ticket(self, spec: TaskSpec[Any], label: str, message: Add) -> Ticket:
        number = self.runtime.new_id()
        handle: TaskHandle[Any] = TaskHandle(number, None, self.runtime, self.actor_ref)
        name = spec.name or f"{label}{number}"
        ticket = Ticket(number, AdmissionPolicy.QUEUE, name, None, spec, handle, message.context.copy())
        if message.notify is not None:
            ticket.follow(self.forwarders.towards(message.notify), message.token)
        return ticket

    def _refused(self, tickets: list[Ticket]) -> tuple[Exception, list[RejectionKind]] | None:
        """Say why they can not be registered, and of each whether it is a cause of that."""
        seen: set[str] = set()
        first: str | None = None
        kinds: list[RejectionKind] = []
        for ticket in tickets:
            name = ticket.name
            conflicts = name in seen or name in self.names or name in self.lingering_names
            seen.add(name)
            kinds.append(_EXISTS if conflicts else _BATCH)
            if conflicts and first is None:
                first = name
        if first is not None:
            return TaskExistsError(first), kinds
        most = self.most_tasks()
        if most is not None and len(self.members) + len(self.lingering) + len(tickets) > most:
            return ResourceLimitError("max_tasks", most), [_LIMIT] * len(tickets)
        return None

    def most_tasks(self) -> int | None:
        """Return how many runs may be registered or lingering."""
        raise NotImplementedError
