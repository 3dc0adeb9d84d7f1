"""What a slot does in the world: carrying out effects, one by one, and what it has to remember whatever happens.

No decision is made here. The worker of the attempt, its cancel flag, the timers and the units of the budget are the
shell's own memory: a machine that is reset does not lose them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from actors.bodies import BodyJob, cancel
from actors.messages import (
    Acquire,
    AttemptEnded,
    Denied,
    Finished,
    Kill,
    Register,
    Rejection,
    Released,
    Return,
    Stop,
    Ticket,
    Withdrawn,
)
from actors.runtime import RuntimeActor, TimerToken, deliver
from actors.worker import WorkerActor
from admission import effects as ordered
from admission.events import EventKind
from admission.outcome import Rejected
from admission.run import AttemptRaised, RunMachine
from admission.slot import SlotMachine
from admission.snapshot import SlotStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from actors.bodies import BodyRunners
    from actors.budget import Budget
    from actors.publisher import Publisher
    from actors.runtime import Runtime
    from admission.effects import TimerKind
    from admission.rules import Rules
    from admission.spec import TaskDefaults

__all__ = ["ACTIONS", "SlotHands", "SlotServices"]


@dataclass(slots=True, eq=False)
class SlotServices:
    """What all slots of a registry share."""

    runtime: Runtime
    bodies: BodyRunners
    publisher: Publisher
    budget: Budget
    defaults: TaskDefaults
    rules: Rules
    limiter: ActorRef[Any] | None
    to_registry: Callable[[Any], object]


class SlotHands(RuntimeActor):
    """The part of a slot that acts and does not decide."""

    def set_up(self, key: str | None, services: SlotServices) -> None:
        """Make the slot's own state."""
        self.key = key  # None for a private slot
        self.put = self.actor_inbox.put
        self.services = services
        self.machine = SlotMachine(services.rules)
        self.run: RunMachine | None = None
        self.inside: BodyJob | None = None  # the attempt that has a worker, whatever happens to the machines
        self.timers: dict[TimerKind, TimerToken] = {}
        self.units = 0  # units of the shared budget that the line holds
        self.status = SlotStatus.IDLE
        self.since = services.runtime.clock.monotonic()  # when it came to this status
        self.draining = False
        self.retiring = False

    # -- carrying out --------------------------------------------------------------------------------------------------

    def on_effect_fault(self, effect: Any, error: BaseException) -> None:
        """Tell of it, and let whatever waits for the effect know that it failed."""
        self.services.publisher.failure("slot", effect, error)
        match effect:
            case ordered.BeginAttempt():
                raised = AttemptRaised(error, f"failed to start: {type(error).__name__}")
                ticket = self.owner()
                if self.inside is None:
                    self.inside = BodyJob(ticket, effect.attempt, self.runtime.clock.monotonic)
                deliver(self.actor_ref, AttemptEnded(ticket.id, effect.attempt, raised, released=True))
            case ordered.AcquirePermit():
                deliver(self.actor_ref, Denied(self.owner().id, effect.attempt, error))
            case ordered.Emit() | ordered.Edge():
                pass
            case _:
                ACTIONS[type(effect)](self, effect)

    def _emit(self, effect: ordered.Emit) -> None:
        entry = effect.entry
        assert isinstance(entry, Ticket)
        self.services.publisher.publish(effect.kind, entry, effect.attempt, effect.fields)

    def _edge(self, effect: ordered.Edge) -> None:
        if self.key is None:
            return  # a private slot is nobody's business
        fields: dict[str, Any] = {"from_phase": effect.from_phase, "to_phase": effect.to_phase}
        if effect.reason is not None:
            fields["reason"] = effect.reason
        self.services.publisher.publish(
            EventKind.SLOT_TRANSITION, None, None, fields, slot=self.key, announced=effect.announced
        )

    def _register(self, effect: ordered.Register) -> None:
        self.services.to_registry(Register(cast("Ticket", effect.entry)))

    def _reject(self, effect: ordered.Reject) -> None:
        assert isinstance(effect.entry, Ticket)
        outcome = Rejected(effect.kind, effect.reason, effect.cause_id)
        self.services.to_registry(Rejection(effect.entry, outcome))

    def _answer_withdrawal(self, effect: ordered.AnswerWithdrawal) -> None:
        self.services.to_registry(Withdrawn(effect.id, effect.op, effect.claimed))

    def _return_unit(self, _effect: ordered.ReturnUnit) -> None:
        if self.units:
            self.units -= 1
            self.services.budget.give()

    def _acquire(self, effect: ordered.AcquirePermit) -> None:
        assert self.services.limiter is not None
        deliver(self.services.limiter, Acquire(self.owner().id, effect.attempt, self.actor_ref))

    def _begin(self, effect: ordered.BeginAttempt) -> None:
        runtime = self.runtime
        self.inside = job = BodyJob(self.owner(), effect.attempt, runtime.clock.monotonic)
        runner = self.services.bodies.of(job.spec)
        WorkerActor.begin(runtime, self.put, runner, job)

    def _stop_attempt(self, effect: ordered.StopAttempt) -> None:
        self.tell_worker(Stop(effect.cause))

    def _kill_attempt(self, _effect: ordered.KillAttempt) -> None:
        self.tell_worker(Kill())

    def _set_flag(self, effect: ordered.SetCancelFlag) -> None:
        if self.inside is not None:
            cancel(self.inside.ctx, effect.cause)

    def _set_timer(self, effect: ordered.SetTimer) -> None:
        self.drop_timer(effect.kind)
        self.timers[effect.kind] = self.runtime.schedule(effect.due, self.actor_ref)

    def _cancel_timer(self, effect: ordered.CancelTimer) -> None:
        self.drop_timer(effect.kind)

    def _return_permit(self, effect: ordered.ReturnPermit) -> None:
        if self.services.limiter is not None:
            deliver(self.services.limiter, Return(effect.id, effect.attempt))

    def _finish(self, effect: ordered.Finish) -> None:
        ticket = cast("Ticket", effect.entry)
        self.services.to_registry(Finished(ticket, effect.outcome, effect.lingering, effect.forced_by))

    def _vacate(self, effect: ordered.Vacate) -> None:
        self.services.to_registry(Released(effect.id))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def owner(self) -> Ticket:
        """Return the slot's owner, where there must be one."""
        owner = self.machine.owner
        assert isinstance(owner, Ticket)
        return owner

    def log_body(self, kind: EventKind, job: BodyJob, fields: dict[str, Any]) -> None:
        """Log what the body's own side has told of it."""
        publisher = self.services.publisher
        try:
            publisher.publish(kind, job.ticket, job.attempt, fields, announced=False)
        except BaseException as error:  # noqa: BLE001 - a record that is lost costs nothing else
            publisher.failure("slot", kind, error)

    def tell_worker(self, message: Any) -> None:
        """Tell the worker of the attempt, if there is one."""
        if self.inside is not None:
            self.inside.inbox.put(message)

    def drop_timer(self, kind: TimerKind) -> None:
        """Forget this timer, if it is pending."""
        token = self.timers.pop(kind, None)
        if token is not None:
            self.runtime.cancel(token)


ACTIONS: dict[type, Any] = {
    ordered.SetCancelFlag: SlotHands._set_flag,  # noqa: SLF001
    ordered.ReturnUnit: SlotHands._return_unit,  # noqa: SLF001
    ordered.Emit: SlotHands._emit,  # noqa: SLF001
    ordered.Edge: SlotHands._edge,  # noqa: SLF001
    ordered.SetTimer: SlotHands._set_timer,  # noqa: SLF001
    ordered.CancelTimer: SlotHands._cancel_timer,  # noqa: SLF001
    ordered.AcquirePermit: SlotHands._acquire,  # noqa: SLF001
    ordered.BeginAttempt: SlotHands._begin,  # noqa: SLF001
    ordered.StopAttempt: SlotHands._stop_attempt,  # noqa: SLF001
    ordered.KillAttempt: SlotHands._kill_attempt,  # noqa: SLF001
    ordered.AnswerWithdrawal: SlotHands._answer_withdrawal,  # noqa: SLF001
    ordered.Reject: SlotHands._reject,  # noqa: SLF001
    ordered.Register: SlotHands._register,  # noqa: SLF001
    ordered.ReturnPermit: SlotHands._return_permit,  # noqa: SLF001
    ordered.Finish: SlotHands._finish,  # noqa: SLF001
    ordered.Vacate: SlotHands._vacate,  # noqa: SLF001
}

SlotHands.actions = ACTIONS
