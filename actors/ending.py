"""How a run ends: membership, events, handle, callers, in one turn; for a registry and for a slot alone alike.

The tables are here, and what the slots decided is written into them. Who may be registered and which slots there are is
the business of the actor that has them; callers and the shutdown are in `actors.desk`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.messages import Finished, Refused, Register, Registered, Rejection, Released, Ticket, Withdrawn
from actors.orders import QUIET_ENDS, Answer, Publish, Settle, Tell, TellEnd, finished_fields
from actors.runtime import Deferred, RuntimeActor, TimerToken
from admission.effects import Cause
from admission.errors import TaskTerminationTimeoutError
from admission.events import EventKind
from admission.outcome import Outcome, Rejected, RejectionKind

if TYPE_CHECKING:
    from pykka import ActorRef

    from actors.publisher import Publisher
    from actors.runtime import Runtime
    from admission.identity import TaskId

__all__ = ["Caller", "Endings", "SlotRecord"]


@dataclass(slots=True, eq=False)
class SlotRecord:
    """What the desk knows of one slot. `open`: ids sent to it and not yet resolved, and one while a body lingers."""

    key: str | None
    ref: ActorRef[Any]
    open: int = 0
    idle_since: float = 0.0
    drained: bool = False


@dataclass(slots=True, eq=False)
class Caller:
    """Somebody who wants a run gone. Itself the token under which the slot answers."""

    reply: Deferred
    waits: bool
    timeout: float | None = None
    """Seconds that it waits for the end, from the decision on."""
    claimed: bool = False
    timer: TimerToken | None = None


@dataclass(slots=True)
class _Conclude:
    """The last effect of the turn in which a drain has nothing left to wait for."""

    endings: Endings

    def perform(self) -> None:
        """Do it."""
        self.endings.conclude()


@dataclass(slots=True)
class _EndOfRun:
    """The last effect of the turn in which everything that a `run` waits for is over."""

    endings: Endings

    def perform(self) -> None:
        """Do it."""
        self.endings.end_of_run()


class Endings(RuntimeActor):
    """The tables of who is on the way, registered or lingering. Insertion-ordered throughout."""

    component = "registry"

    def __init__(self, runtime: Runtime, publisher: Publisher) -> None:
        RuntimeActor.__init__(self, runtime)  # not `super`: a lone slot has a second half
        self.publisher = publisher
        self.routes: dict[TaskId, Ticket] = {}
        self.members: dict[TaskId, str] = {}
        self.names: dict[str, TaskId] = {}
        self.lingering: dict[TaskId, tuple[str, SlotRecord]] = {}
        self.lingering_names: dict[str, TaskId] = {}
        self.refused: dict[TaskId, SlotRecord] = {}
        self.callers: dict[TaskId, list[Caller]] = {}
        self.timed: dict[int, tuple[TaskId, Caller]] = {}  # by the identity of the timer's token
        self.joining: list[Deferred] = []
        self.private: dict[SlotRecord, None] = {}  # slots without a key, one for each run that was added directly
        self.epoch: int = 0
        self.running_out = False  # shut down when nothing is without its outcome
        self.deadline: float | None = None  # set when the drain begins
        self.stuck: list[str] = []
        self.concluding = False

    # -- what the actor with the tables decides ------------------------------------------------------------------------

    def to_slot(self, record: SlotRecord, message: Any) -> Any:
        """Return the effect that brings a message to a slot."""
        return Tell(record.ref, message)

    def all_slots(self) -> list[SlotRecord]:
        """Return every slot that there is."""
        raise NotImplementedError

    def opened(self, record: SlotRecord) -> None:
        """Count one more thing that is open in this slot."""
        record.open += 1

    def closed(self, record: SlotRecord, out: list[Any]) -> None:  # noqa: ARG002
        """Count one thing less that is open in this slot."""
        record.open -= 1

    def refusal(self, ticket: Ticket) -> tuple[RejectionKind, str] | None:
        """Say why this run may not be registered, if it may not."""
        raise NotImplementedError

    def conclude(self) -> None:
        """Nothing is left that a drain waits for."""
        raise NotImplementedError

    def end_of_run(self) -> None:
        """Everything that a `run` waits for is over."""
        raise NotImplementedError

    # -- from slots ----------------------------------------------------------------------------------------------------

    def on_register(self, message: Register) -> None:
        """Register the owner of a slot, or refuse it."""
        ticket = message.ticket
        if ticket.id not in self.routes:  # it has its outcome: a fault has cost it that, or the drain's last timer
            if ticket.record is not None:
                late = Refused(ticket.id, RejectionKind.ADMISSION_FAILED)
                self.runtime.perform(self, [self.to_slot(ticket.record, late)])
            return
        out: list[Any] = []
        refused = self.refusal(ticket)
        if refused is None:
            self.members[ticket.id] = ticket.name
            self.names[ticket.name] = ticket.id
            self.epoch += 1
            if not self.publisher.passes_over(ticket):
                out.append(Publish(self.publisher, EventKind.TASK_ADDED, ticket))
            out.append(self.to_slot(ticket.record, Registered(ticket.id, self.epoch)))
        else:
            self.refuse(ticket, *refused, out)
        self.runtime.perform(self, out)

    def on_withdrawn(self, message: Withdrawn) -> None:
        """Pass on what a slot decided about a withdrawal, if its caller still waits for that."""
        noted = self.callers.get(message.id)
        caller = message.op
        if noted is None or not isinstance(caller, Caller) or caller not in noted:
            return
        caller.claimed = message.claimed
        if not caller.waits:
            noted.remove(caller)
            if not noted:
                del self.callers[message.id]
            self.runtime.perform(self, [Answer(caller.reply, message.claimed)])
        elif caller.timeout is not None and caller.timer is None:
            due = self.runtime.clock.monotonic() + caller.timeout
            caller.timer = token = self.runtime.schedule(due, self.actor_ref)
            self.timed[id(token)] = message.id, caller

    def on_caller_timer(self, token: TimerToken) -> None:
        """A caller has waited for as long as it wanted to. What it asked for stands."""
        timed = self.timed.get(id(token))
        if timed is None:
            return
        id_, caller = timed
        answer = Answer(caller.reply, TaskTerminationTimeoutError(id_, caller.timeout or 0.0))
        noted = self.callers.get(id_, [])
        if caller in noted:
            noted.remove(caller)
            if not noted:
                del self.callers[id_]
        self.runtime.perform(self, [answer])
        self.timed.pop(id(token), None)  # last: if that failed, it is done once more

    def on_rejection(self, message: Rejection) -> None:
        """A slot turned a submission away: resolve it."""
        if message.ticket.id in self.routes:
            out: list[Any] = []
            self.finish(message.ticket, message.outcome, lingering=False, out=out)
            self.runtime.perform(self, out)

    def on_finished(self, message: Finished) -> None:
        """A run has its outcome."""
        ticket = message.ticket
        if ticket.id not in self.routes:
            return
        out: list[Any] = []
        self.finish(ticket, message.outcome, lingering=message.lingering, out=out)
        if message.forced_by is Cause.DRAIN:
            self.stuck.append(ticket.name)
        self.runtime.perform(self, out)

    def on_released(self, message: Released) -> None:
        """Nothing of this submission is in its slot any more: its place is free, and its name if its body lingered."""
        record = self.refused.pop(message.id, None)
        if record is None:
            if message.id not in self.lingering:
                return
            name, record = self.lingering.pop(message.id)
            if self.lingering_names.get(name) == message.id:
                del self.lingering_names[name]
        out: list[Any] = []
        self.closed(record, out)
        self.runtime.perform(self, out)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def refuse(self, ticket: Ticket, kind: RejectionKind, reason: str, out: list[Any]) -> None:
        """Turn the owner of a slot away, and tell everybody."""
        self.tell_add_failed(ticket, Rejected(kind, reason), out)
        self.answer_callers(ticket.id, out)
        out.append(self.to_slot(ticket.record, Refused(ticket.id, kind)))
        del self.routes[ticket.id]
        self.refused[ticket.id] = ticket.record  # not idle before it says so: it has yet to hear of this
        self.look_for_the_end(out)

    def tell_add_failed(self, ticket: Ticket, outcome: Rejected, out: list[Any]) -> None:
        """Settle a run that is not registered, and tell of it."""
        out.append(Settle(ticket, outcome))
        out.append(Publish(self.publisher, EventKind.TASK_ADD_FAILED, ticket, outcome.event_fields()))
        out.append(TellEnd(ticket))

    def leave(self, ticket: Ticket, out: list[Any], *, lingering: bool = False) -> None:
        """Drop the route of a submission that has its outcome; its place in the slot too, unless its body lingers."""
        del self.routes[ticket.id]  # first: if the rest fails it is not counted twice
        if lingering:
            self.lingering[ticket.id] = (ticket.name, ticket.record)
            self.lingering_names[ticket.name] = ticket.id
        else:
            self.closed(ticket.record, out)

    def answer_callers(self, id_: TaskId, out: list[Any], error: BaseException | None = None) -> None:
        """Answer every caller who is still noted under this id, with an error if there is one."""
        self.note_answers(id_, out, error)
        self.callers.pop(id_, None)

    def note_answers(self, id_: TaskId, out: list[Any], error: BaseException | None = None) -> None:
        """Order the answers to all callers under this id, who stay noted: if the rest fails, it is done once more."""
        callers = self.callers.get(id_, ())
        out += [Answer(caller.reply, caller.claimed if error is None else error) for caller in callers]
        for caller in callers:
            if caller.timer is not None:
                self.runtime.cancel(caller.timer)
                self.timed.pop(id(caller.timer), None)

    def unregister_member(self, ticket: Ticket) -> bool:
        """Take id and name out together; tell whether they were in."""
        name = self.members.pop(ticket.id, None)
        if name is not None and self.names.get(name) == ticket.id:
            del self.names[name]
        return name is not None

    def finish(self, ticket: Ticket, outcome: Outcome[Any], *, lingering: bool, out: list[Any]) -> None:
        """A submission has its outcome: membership, events, handle and callers, in this order, in one turn.

        Doing it again for one that is half done, because doing it failed, does the rest.
        """
        told = self.unregister_member(ticket)
        if told and outcome.label in QUIET_ENDS and self.publisher.passes_over(ticket, 2):
            told = False
        if told:
            out.append(Publish(self.publisher, EventKind.TASK_FINISHED, ticket, finished_fields(outcome)))
        out.append(Settle(ticket, outcome))
        if told:
            out.append(Publish(self.publisher, EventKind.TASK_REMOVED, ticket))
        if ticket.followed:
            out.append(TellEnd(ticket))
        if self.callers:
            self.note_answers(ticket.id, out)
        if ticket.id in self.routes:
            self.leave(ticket, out, lingering=lingering)
        if not self.routes:
            self.look_for_the_end(out)
        self.callers.pop(ticket.id, None)

    def fail_registration(self, ticket: Ticket, out: list[Any]) -> None:
        """Refuse a registration that failed."""
        kind, reason = RejectionKind.ADMISSION_FAILED, "internal fault at registration"
        self.unregister_member(ticket)
        if ticket.id in self.routes:
            self.refuse(ticket, kind, reason, out)
            return
        out += (Settle(ticket, Rejected(kind, reason)), TellEnd(ticket))  # it failed while it was being refused
        out += [
            self.to_slot(record, Refused(ticket.id, kind)) for record in self.all_slots() if record.key == ticket.slot
        ]

    def look_for_the_end(self, out: list[Any]) -> None:
        """Nothing is without its outcome: whoever waited for that is told, and a drain is concluded."""
        if self.routes:
            return
        joining, self.joining = self.joining, []
        out += [Answer(reply, None) for reply in joining]
        if self.deadline is None:
            if self.running_out:
                out.append(_EndOfRun(self))
        elif not self.concluding:
            out.append(_Conclude(self))
