"""The desk: whoever submits, removes, cancels, looks, waits or shuts down is answered here.

Built on the tables of `actors.ending`; the registry and the lone slot are built on this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.bodies.job import describe
from actors.budget import closed_error
from actors.ending import Caller, SlotRecord
from actors.handle import TaskHandle
from actors.messages import (
    Admit,
    Cancel,
    Drain,
    Ended,
    Finished,
    Flush,
    Flushed,
    Join,
    Register,
    Rejection,
    Released,
    Remove,
    Retire,
    Shutdown,
    Snapshot,
    Submit,
    Tasks,
    Ticket,
    Viewed,
    Withdraw,
    Withdrawn,
)
from actors.observers.forward import Forwarders
from actors.orders import Answer, Publish, Settle
from actors.runtime import Deferred, TimerFired, TimerToken, deliver
from actors.views import Look, Views
from admission.effects import Cause
from admission.events import EventKind
from admission.outcome import ForceAborted, Rejected, RejectionKind
from admission.report import ShutdownReport

if TYPE_CHECKING:
    from contextvars import Context

    from pykka import ActorRef

    from actors.budget import Intake
    from actors.publisher import Publisher
    from actors.runtime import Runtime
    from admission.identity import TaskId
    from admission.spec import Submission

__all__ = ["DESK_HANDLERS", "Desk", "Settlement", "make_ticket"]

_AFTER_DEADLINE = 1.0
"""Seconds after the drain's deadline at which the desk resolves what a faulty slot left."""


def make_ticket(
    submission: Submission[Any],
    runtime: Runtime,
    registry: ActorRef[Any] | None,
    context: Context,
    intake: Intake | None = None,
) -> Ticket:
    """Put together what a submission is on its way: take its id and settle which slot it competes for."""
    spec = submission.spec
    number: TaskId = runtime.new_id()
    slot = submission.slot or spec.name or f"{spec.label}{number}"
    handle: TaskHandle[Any] = TaskHandle(number, slot, runtime, registry)
    return Ticket(number, submission.policy, spec.name or slot, slot, spec, handle, context, intake)


class Settlement:
    """Where the report of a shutdown is kept for whoever comes after the actor has stopped."""

    __slots__ = ("report",)

    def __init__(self) -> None:
        self.report: ShutdownReport | None = None


@dataclass(slots=True)
class _FlushLog:
    """The last effect of the conclusion."""

    desk: Desk

    def perform(self) -> None:
        """Do it."""
        self.desk.flush_log()


class Desk(Views):
    """Endings, and everybody who asks about them."""

    def __init__(
        self,
        runtime: Runtime,
        publisher: Publisher,
        *,
        grace: float,
        observer_timeout: float,
        intake: Intake | None = None,
        settlement: Settlement | None = None,
    ) -> None:
        Views.__init__(self, runtime, publisher)
        self.grace = grace
        self.observer_timeout = observer_timeout
        self.intake = intake
        self.settlement = settlement or Settlement()
        self.forwarders = Forwarders(runtime)
        self.drain_grace = grace
        self.announces = True  # an abandon tells nobody that it was requested
        self.closing: list[Deferred] = []
        self.last_timer: TimerToken | None = None
        self.flush_timer: TimerToken | None = None

    # -- what the actor with the desk decides --------------------------------------------------------------------------

    def named(self, submission: Submission[Any]) -> Submission[Any]:
        """Return a submission that did not come through the face as it is meant here."""
        return submission

    def find_slot(self, key: str, out: list[Any]) -> SlotRecord | None:
        """Return the slot of this key, made if need be; None where a limit forbids it."""
        raise NotImplementedError

    def forget_slots(self) -> None:
        """Let go of everything: the shutdown is concluded."""
        if self.publisher.log is not None:
            deliver(self.publisher.log, Retire())

    def still_inside(self) -> tuple[str, ...]:
        """Return the names of the runs whose body has not left."""
        return tuple(sorted(name for name, _ in self.lingering.values()))

    # -- from callers --------------------------------------------------------------------------------------------------

    def on_submit(self, message: Submit[Any]) -> TaskHandle[Any]:
        """Take in a submission that did not come through the face; asked for it, the reply is its handle."""
        submission = self.named(message.submission)
        message.ticket = ticket = make_ticket(submission, self.runtime, self.actor_ref, message.context.copy())
        if message.notify is not None:
            ticket.notify, ticket.token = self.forwarders.towards(message.notify), message.token
            ticket.followed = True
        if self.intake is None or self.intake.closed:
            self.on_ticket(ticket)
        elif self.intake.take():
            ticket.intake = self.intake
            self.on_ticket(ticket)
        else:
            self._turn_away(ticket, RejectionKind.RESOURCE_LIMIT, "the intake is full")
        return ticket.handle

    def on_ticket(self, ticket: Ticket) -> None:
        """Route a submission to its slot."""
        if self.deadline is not None:
            self._turn_away(ticket, RejectionKind.SHUTTING_DOWN, "shutdown has begun")
            return
        out: list[Any] = []
        record = self.find_slot(ticket.slot, out)
        if record is None:
            self._turn_away(ticket, RejectionKind.RESOURCE_LIMIT, "max_slots is reached")
            return
        out.append(self.to_slot(record, Admit(ticket)))
        self.opened(record)
        ticket.record = record
        self.routes[ticket.id] = ticket  # last: nothing can fail that would leave it behind
        self.runtime.perform(self, out)

    def on_remove(self, message: Remove) -> Any:
        """Withdraw a run; answered when its slot has decided."""
        return self._withdraw(message.target, Cause.REMOVE, waits=False)

    def on_cancel(self, message: Cancel) -> Any:
        """Withdraw a run; answered when its slot has decided, or with its outcome."""
        return self._withdraw(message.target, Cause.CANCEL, waits=message.wait)

    def on_join(self, _message: Join) -> Any:
        """Answer when nothing is without its outcome."""
        if not self.routes:
            return None
        reply = Deferred()
        self.joining.append(reply)
        return reply

    def on_shutdown(self, message: Shutdown) -> Any:
        """Begin the one shutdown, or wait for it."""
        return self._shut_down(self.grace if message.grace is None else message.grace, announced=True)

    def on_stop_requested(self) -> Any:
        """Abandon: shut down with no grace, or join the shutdown that runs."""
        return self._shut_down(0.0, announced=False)

    # -- time ----------------------------------------------------------------------------------------------------------

    def on_timer(self, message: TimerFired) -> None:
        """A timer of the shutdown is due."""
        if message.token is self.last_timer:
            self._give_up()
        elif message.token is self.flush_timer:
            self._close()

    def on_flushed(self, _message: Flushed) -> None:
        """The log has been written to its end."""
        if self.concluding:
            self._close()

    # -- faults --------------------------------------------------------------------------------------------------------

    def on_fault(self, message: Any, error: BaseException) -> Any:
        """Settle what the message stood for; the tables are as they were before it."""
        self.publisher.failure(self.component, message, error)
        out: list[Any] = []
        reply: Any = error
        match message:
            case Submit():
                reply = self.fail_submit(message, error)  # pyright: ignore[reportUnknownArgumentType]
            case Ticket():
                _not_taken(message, error)
            case Register(ticket=ticket):
                self.fail_registration(ticket, out)
            case Finished(ticket=ticket, outcome=outcome) | Rejection(ticket=ticket, outcome=outcome):
                self.finish(ticket, outcome, lingering=getattr(message, "lingering", False), out=out)
            case Released():
                self.on_released(message)
            case TimerFired():
                self.on_timer(message)
            case Withdrawn():
                self.answer_callers(message.id, out)
            case Viewed(op=look) if isinstance(look, Look):
                out.append(Answer(look.reply, error))
            case _:
                pass
        self.look_for_the_end(out)
        self.runtime.perform(self, out)
        return reply

    def on_effect_fault(self, effect: Any, error: BaseException) -> None:
        """Tell of it; what must not be lost is done by hand."""
        self.publisher.failure(self.component, effect, error)
        if not isinstance(effect, Publish):
            effect.perform()

    def fail_submit(self, message: Submit[Any], error: BaseException) -> Any:
        """Settle a submission that can not be taken, and return what answers whoever asked."""
        ticket = message.ticket
        if ticket is not None:
            _not_taken(ticket, error)
            return ticket.handle
        if message.notify is not None:
            outcome = Rejected(RejectionKind.ADMISSION_FAILED, f"not taken: {describe(error)}")
            self.forwarders.towards(message.notify).put(Ended(message.token, None, outcome))
        return error

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _turn_away(self, ticket: Ticket, kind: RejectionKind, reason: str) -> None:
        ticket.decided()
        fields = {"rejection_kind": kind, "reason": reason}
        told = Publish(self.publisher, EventKind.SUBMISSION_REJECTED, ticket, fields)
        self.runtime.perform(self, [told, Settle(ticket, Rejected(kind, reason))])

    def _withdraw(self, target: TaskId | str, cause: Cause, *, waits: bool) -> Any:
        if self.deadline is not None:
            return closed_error()
        id_ = self.names.get(target) if isinstance(target, str) else target
        ticket = self.routes.get(id_) if id_ is not None else None
        if ticket is None or id_ is None:
            if cause is Cause.REMOVE and id_ is not None:
                fields = {"id": int(id_)}
                self.runtime.perform(self, [Publish(self.publisher, EventKind.TASK_REMOVE_REQUESTED, None, fields)])
            return False
        caller = Caller(Deferred(), waits)
        self.callers.setdefault(id_, []).append(caller)
        self.runtime.perform(self, [self.to_slot(ticket.record, Withdraw(id_, caller, cause))])
        return caller.reply

    # -- shutdown ------------------------------------------------------------------------------------------------------

    def _shut_down(self, grace: float, *, announced: bool) -> Any:
        if self.settlement.report is not None:
            return self.settlement.report
        reply = Deferred()
        self.closing.append(reply)
        if self.deadline is not None:
            return reply
        self.drain_grace = grace
        self.announces = announced
        self.deadline = self.runtime.clock.monotonic() + grace
        if self.intake is not None:
            self.intake.close()
        out: list[Any] = []
        if announced:
            out.append(Publish(self.publisher, EventKind.SHUTDOWN_REQUESTED))
        for id_ in list(self.callers):
            out += [Answer(caller.reply, closed_error()) for caller in self.callers.pop(id_)]
        for record in self.slots_at_work():
            record.drained = True
            out.append(self.to_slot(record, Drain(self.deadline)))
        self.last_timer = self.runtime.schedule(self.deadline + _AFTER_DEADLINE, self.actor_ref)
        self.look_for_the_end(out)
        self.runtime.perform(self, out)
        return reply

    def _give_up(self) -> None:
        """The drain is over and a slot has not said how its run ended: resolve it here."""
        out: list[Any] = []
        for ticket in list(self.routes.values()):
            error = TimeoutError(f"slot {ticket.slot!r} did not end {ticket.id} within the drain")
            self.publisher.failure(self.component, ticket, error)
            self.stuck.append(ticket.name)
            self.finish(ticket, ForceAborted(), lingering=True, out=out)
        self.look_for_the_end(out)
        self.runtime.perform(self, out)

    def conclude(self) -> None:
        """The drain is over: say how it went, retire the slots, and have the log written to its end."""
        out: list[Any] = []
        if self.announces:
            kind = EventKind.GRACE_EXCEEDED if self.stuck else EventKind.ALL_STOPPED_WITHIN_GRACE
            out.append(Publish(self.publisher, kind, None, {"stuck": sorted(self.stuck)} if self.stuck else None))
        for record in self.all_slots():
            if not record.drained:
                self.retired(record, out)
            out.append(self.to_slot(record, Retire()))
        if self.last_timer is not None:
            self.runtime.cancel(self.last_timer)
            self.last_timer = None
        fields = {"still_inside": list(self.still_inside())}
        out.append(Publish(self.publisher, EventKind.SHUTDOWN_FINISHED, None, fields))
        out.append(_FlushLog(self))
        self.runtime.perform(self, out)

    def retired(self, record: SlotRecord, out: list[Any]) -> None:
        """Log that an idle slot is gone."""
        fields = {"from_phase": "idle", "to_phase": "absent"}
        out.append(Publish(self.publisher, EventKind.SLOT_TRANSITION, None, fields, record.key, announced=False))
        out.append(Publish(self.publisher, EventKind.SLOT_RETIRED, None, None, record.key, announced=False))

    def flush_log(self) -> None:
        """Number nothing more, and wait for the log no longer than `observer_timeout`."""
        self.publisher.close()
        log = self.publisher.log
        if log is None:
            self._close()
            return
        self.flush_timer = self.runtime.schedule(self.runtime.clock.monotonic() + self.observer_timeout, self.actor_ref)
        deliver(log, Flush(self.actor_ref))

    def _close(self) -> None:
        """Keep the report, send it to everybody who waits, and end."""
        if self.settlement.report is not None:
            return
        if self.flush_timer is not None:
            self.runtime.cancel(self.flush_timer)
        self.settlement.report = report = ShutdownReport(
            clean=not self.stuck and not self.publisher.faults,
            stuck=tuple(sorted(self.stuck)),
            still_inside=self.still_inside(),
            grace=self.drain_grace,
            log_dropped=self.publisher.unwritten(),
        )
        self.forget_slots()
        self._unregister()
        closing, self.closing = self.closing, []
        for reply in closing:
            reply.set(report)
        self.end()


def _not_taken(ticket: Ticket, error: BaseException) -> None:
    ticket.decided()
    ticket.settle(Rejected(RejectionKind.ADMISSION_FAILED, f"not taken: {describe(error)}"))


def _on_timer(desk: Desk, message: TimerFired) -> None:
    """Leave it to whatever kind of desk this is."""
    desk.on_timer(message)


DESK_HANDLERS: dict[type, Any] = {
    Ticket: Desk.on_ticket,
    Submit: Desk.on_submit,
    Remove: Desk.on_remove,
    Cancel: Desk.on_cancel,
    Tasks: Desk.on_tasks,
    Snapshot: Desk.on_snapshot,
    Join: Desk.on_join,
    Shutdown: Desk.on_shutdown,
    Register: Desk.on_register,
    Withdrawn: Desk.on_withdrawn,
    Rejection: Desk.on_rejection,
    Finished: Desk.on_finished,
    Released: Desk.on_released,
    Viewed: Desk.on_viewed,
    TimerFired: _on_timer,
    Flushed: Desk.on_flushed,
}

Desk.handlers = DESK_HANDLERS
