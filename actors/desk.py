"""The desk: whoever submits, removes, cancels, looks, waits or shuts down is answered here.

Built on the tables of `actors.ending`; the registry and the lone slot are built on this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from actors.bodies.job import describe
from actors.budget import closed_error
from actors.closing import Closing, FlushSubscribers
from actors.ending import Caller, SlotRecord
from actors.handle import TaskHandle
from actors.messages import (
    Add,
    Admit,
    Cancel,
    Drain,
    Ended,
    Finished,
    Flushed,
    Join,
    Register,
    Rejection,
    Released,
    Remove,
    Retire,
    RunOut,
    Shutdown,
    Submit,
    Ticket,
    Viewed,
    Withdraw,
    Withdrawn,
)
from actors.observers.forward import Forwarders
from actors.orders import Answer, Publish, Settle, TellEnd
from actors.runtime import Deferred, TimerFired, TimerToken, deliver
from actors.views import VIEW_HANDLERS, Look
from admission.effects import Cause
from admission.errors import SupervisorClosedError
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
    *,
    intake: Intake | None = None,
    number: TaskId | None = None,
    label: str | None = None,
) -> Ticket:
    """Put together what a submission is on its way: take its id, if it has none yet, and settle its slot."""
    spec = submission.spec
    id_: TaskId = number if number is not None else runtime.new_id()
    slot = submission.slot or spec.name or f"{spec.label if label is None else label}{id_}"
    handle: TaskHandle[Any] = TaskHandle(id_, slot, runtime, registry)
    return Ticket(id_, submission.policy, spec.name or slot, slot, spec, handle, context, intake)


class Settlement:
    """Where the report of a shutdown is kept for whoever comes after the actor has stopped."""

    __slots__ = ("report",)

    def __init__(self) -> None:
        self.report: ShutdownReport | None = None


class Desk(Closing):
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
        Closing.__init__(self, runtime, publisher, observer_timeout)
        self.grace = grace
        self.intake = intake
        self.settlement = settlement or Settlement()
        self.forwarders = Forwarders(runtime)
        self.drain_grace = grace
        self.gives_verdict = True  # an abandon gives none
        self.closing: list[Deferred] = []
        self.last_timer: TimerToken | None = None

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

    # -- from callers --------------------------------------------------------------------------------------------------

    def on_submit(self, message: Submit[Any]) -> TaskHandle[Any]:
        """Take in a submission that did not come through the face; asked for it, the reply is its handle."""
        message.ticket = None  # the same message may be told twice
        forwarder = None if message.notify is None else self.forwarders.towards(message.notify)
        submission, context = self.named(message.submission), message.context.copy()
        ticket = make_ticket(submission, self.runtime, self.actor_ref, context, label=message.label)
        if forwarder is not None:
            ticket.follow(forwarder, message.token)
        message.ticket = ticket
        if self.intake is None or self.intake.closed:
            self.on_ticket(ticket)
        elif self.intake.take():
            ticket.intake = self.intake
            self.on_ticket(ticket)
        else:
            self._turn_away(ticket, RejectionKind.RESOURCE_LIMIT, "the intake is full")
        message.ticket = None
        return ticket.handle

    def on_ticket(self, ticket: Ticket) -> None:
        """Route a submission to its slot."""
        if self.deadline is not None:
            self._turn_away(ticket, RejectionKind.SHUTTING_DOWN, "shutdown has begun")
            return
        out: list[Any] = []
        record = self.find_slot(cast("str", ticket.slot), out)
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
        return self._withdraw(message.target, Cause.CANCEL, waits=message.wait, timeout=message.timeout)

    def on_join(self, _message: Join) -> Any:
        """Answer when nothing is without its outcome."""
        if not self.routes:
            return None
        reply = Deferred()
        self.joining.append(reply)
        return reply

    def on_run_out(self, _message: RunOut) -> Any:
        """Begin the one shutdown once nothing is without its outcome."""
        if self.deadline is not None:
            return self._shut_down(0.0)
        reply = Deferred()
        self.closing.append(reply)
        self.running_out = True
        out: list[Any] = []
        self.look_for_the_end(out)
        self.runtime.perform(self, out)
        return reply

    def end_of_run(self) -> None:
        """Shut down: nothing is left, so nobody asked for it and all have stopped."""
        if self.deadline is not None:
            self._go_on_draining([])
        elif not self.routes:
            self._shut_down(self.grace, requested=False)

    def on_shutdown(self, message: Shutdown) -> Any:
        """Begin the one shutdown, or wait for it."""
        return self._shut_down(self.grace if message.grace is None else message.grace)

    def on_stop_requested(self) -> Any:
        """Abandon: shut down with no grace, or join the shutdown that runs."""
        return self._shut_down(0.0, requested=False, verdict=False)

    # -- time ----------------------------------------------------------------------------------------------------------

    def on_timer(self, message: TimerFired) -> None:
        """A timer of the shutdown is due."""
        if message.token is self.last_timer:
            self._give_up()
        elif message.token is self.flush_timer:
            self.on_flush_timer()
        else:
            self.on_caller_timer(message.token)

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
                self.not_taken(message, error)
            case Add():
                self.tell_not_taken(message, error)  # asked, it is answered with the error
            case Register(ticket=ticket):
                self.fail_registration(ticket, out)
            case Finished(ticket=ticket, outcome=outcome) | Rejection(ticket=ticket, outcome=outcome):
                self.finish(ticket, outcome, lingering=getattr(message, "lingering", False), out=out)
            case Released() | TimerFired():
                self.handlers[type(message)](self, message)
            case Withdrawn():
                self.answer_callers(message.id, out)
            case Flushed() | Shutdown() | RunOut():
                self._go_on_closing(message)
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
            self.not_taken(ticket, error)
            return ticket.handle
        self.tell_not_taken(message, error)
        return error

    def not_taken(self, ticket: Ticket, error: BaseException) -> None:
        """Settle a submission over which routing has failed, and leave no route behind."""
        ticket.decided()
        ticket.settle(Rejected(RejectionKind.ADMISSION_FAILED, f"not taken: {describe(error)}"))
        ticket.tell_end()
        if self.routes.pop(ticket.id, None) is not None:
            out: list[Any] = []
            self.closed(ticket.record, out)
            self.runtime.perform(self, out)

    def tell_not_taken(self, message: Submit[Any] | Add, error: BaseException) -> None:
        """Notify whoever told work that can not be taken."""
        if message.notify is not None:
            closed = isinstance(error, SupervisorClosedError)
            kind = RejectionKind.SHUTTING_DOWN if closed else RejectionKind.ADMISSION_FAILED
            outcome = Rejected(kind, f"not taken: {describe(error)}")
            forwarder = self.forwarders.towards(message.notify)
            for _ in range(message.number):
                forwarder.put(Ended(message.token, None, outcome))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _turn_away(self, ticket: Ticket, kind: RejectionKind, reason: str) -> None:
        ticket.decided()
        outcome = Rejected(kind, reason)
        told = Publish(self.publisher, EventKind.SUBMISSION_REJECTED, ticket, outcome.event_fields())
        self.runtime.perform(self, [told, Settle(ticket, outcome), TellEnd(ticket)])

    def _withdraw(self, target: TaskId | str, cause: Cause, *, waits: bool, timeout: float | None = None) -> Any:
        if self.deadline is not None:
            return closed_error()
        id_ = self.names.get(target) if isinstance(target, str) else target
        ticket = self.routes.get(id_) if id_ is not None else None
        if ticket is None or id_ is None:
            if cause is Cause.REMOVE and id_ is not None:
                self.runtime.perform(self, [Publish(self.publisher, EventKind.TASK_REMOVE_REQUESTED, about=id_)])
            return False
        caller = Caller(Deferred(), waits, timeout)
        self.callers.setdefault(id_, []).append(caller)
        self.runtime.perform(self, [self.to_slot(ticket.record, Withdraw(id_, caller, cause))])
        return caller.reply

    # -- shutdown ------------------------------------------------------------------------------------------------------

    def _shut_down(self, grace: float, *, requested: bool = True, verdict: bool = True) -> Any:
        if self.settlement.report is not None:
            return self.settlement.report
        reply = Deferred()
        out: list[Any] = []
        if self.deadline is None:
            deadline = self.runtime.clock.monotonic() + grace
            if requested:
                out.append(Publish(self.publisher, EventKind.SHUTDOWN_REQUESTED))
            self.drain_grace = grace
            self.gives_verdict = verdict
            self.deadline = deadline
        self.closing.append(reply)
        self._go_on_draining(out)
        return reply

    def _go_on_draining(self, out: list[Any]) -> None:
        """Do what a shutdown has to do that has not been done: all of it, or what a fault has left."""
        deadline = self.deadline
        if deadline is None or self.concluding:
            return
        if self.intake is not None and not self.intake.closed:
            self.intake.close()
        if self.last_timer is None:
            self.last_timer = self.runtime.schedule(deadline + _AFTER_DEADLINE, self.actor_ref)
        for id_ in list(self.callers):
            self.answer_callers(id_, out, closed_error())
        for record in (*self.slots_at_work(), *self.private):
            if not record.drained:
                out.append(self.to_slot(record, Drain(deadline)))
                record.drained = True
        self.look_for_the_end(out)
        self.runtime.perform(self, out)

    def _go_on_closing(self, message: Flushed | Shutdown | RunOut) -> None:
        """A step of the shutdown has failed: take it once more."""
        if not isinstance(message, Flushed):
            self._go_on_draining([])
        elif message.of_log:
            self.keep_report()

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
        """The drain is over: say how it went, retire the slots, and let the observers come to an end."""
        if self.concluding:
            return
        out: list[Any] = []
        if self.gives_verdict:
            kind = EventKind.GRACE_EXCEEDED if self.stuck else EventKind.ALL_STOPPED_WITHIN_GRACE
            out.append(Publish(self.publisher, kind, None, {"stuck": sorted(self.stuck)} if self.stuck else None))
        for record in self.all_slots():
            if not record.drained:
                self.retired(record, out)
            out.append(self.to_slot(record, Retire()))
        out += [self.to_slot(record, Retire()) for record in self.private]
        out.append(FlushSubscribers(self))
        if self.last_timer is not None:
            self.runtime.cancel(self.last_timer)
        self.runtime.perform(self, out)

    def retired(self, record: SlotRecord, out: list[Any]) -> None:
        """Log that an idle slot is gone."""
        fields = {"from_phase": "idle", "to_phase": "absent"}
        out.append(Publish(self.publisher, EventKind.SLOT_TRANSITION, None, fields, record.key, announced=False))
        out.append(Publish(self.publisher, EventKind.SLOT_RETIRED, None, None, record.key, announced=False))

    def keep_report(self) -> None:
        """Keep the report, send it to everybody who waits, and end."""
        if self.mailbox.closed:
            return
        self.settlement.report = report = self.settlement.report or ShutdownReport(
            clean=not self.stuck and not self.publisher.faults,
            stuck=tuple(sorted(self.stuck)),
            still_inside=self.still_inside(),
            grace=self.drain_grace,
            log_dropped=self.publisher.unwritten(),
            events_dropped=self.publisher.untaken,
        )
        try:
            if self.flush_timer is not None:
                self.runtime.cancel(self.flush_timer)
            self.forget_slots()
        finally:  # whatever fails before: who waits is answered, and this actor ends
            self._unregister()
            for reply in self.closing:
                reply.set(report)
            self.end()


def _on_timer(desk: Desk, message: TimerFired) -> None:
    """Leave it to whatever kind of desk this is."""
    desk.on_timer(message)


DESK_HANDLERS: dict[type, Any] = {
    Ticket: Desk.on_ticket,
    Submit: Desk.on_submit,
    Remove: Desk.on_remove,
    Cancel: Desk.on_cancel,
    Join: Desk.on_join,
    RunOut: Desk.on_run_out,
    Shutdown: Desk.on_shutdown,
    Register: Desk.on_register,
    Withdrawn: Desk.on_withdrawn,
    Rejection: Desk.on_rejection,
    Finished: Desk.on_finished,
    Released: Desk.on_released,
    TimerFired: _on_timer,
    Flushed: Desk.on_flushed,
    **VIEW_HANDLERS,
}

Desk.handlers = DESK_HANDLERS
