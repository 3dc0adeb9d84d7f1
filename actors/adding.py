"""Runs that are registered at once, without a slot to compete for: one, or a batch of which all or none are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.budget import closed_error
from actors.desk import Desk
from actors.handle import TaskHandle
from actors.messages import Adopt
from actors.orders import Publish, Settle, TellEnd
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
                fields = {"outcome_kind": "outcome_rejected", "rejection_kind": kind, "reason": str(reason)}
                out.append(Settle(ticket, Rejected(kind, str(reason))))
                out.append(Publish(self.publisher, EventKind.TASK_ADD_FAILED, ticket, fields))
                out.append(TellEnd(ticket))
            self.runtime.perform(self, out)
            return reason
        records = [self.new_private_slot() for _ in tickets]  # the last that can fail before anything has changed
        adopted: list[Any] = []
        for ticket, record in zip(tickets, records, strict=True):
            self.members[ticket.id] = ticket.name
            self.names[ticket.name] = ticket.id
            self.epoch += 1
            ticket.record = record
            self.opened(record)
            self.routes[ticket.id] = ticket
            out.append(Publish(self.publisher, EventKind.TASK_ADDED, ticket))
            adopted.append(self.to_slot(record, Adopt(ticket, self.epoch)))
        self.runtime.perform(self, out + adopted)  # the whole batch is announced before the first of it starts
        return [ticket.handle for ticket in tickets]

    def _ticket(self, spec: TaskSpec[Any], label: str, message: Add) -> Ticket:
        number = self.runtime.new_id()
        handle: TaskHandle[Any] = TaskHandle(number, None, self.runtime, self.actor_ref)
        name = spec.name or f"{label}{number}"
        ticket = Ticket(number, AdmissionPolicy.QUEUE, name, None, spec, handle, message.context.copy())
        if message.notify is not None:
            ticket.notify, ticket.token = self.forwarders.towards(message.notify), message.token
            ticket.followed = True
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
