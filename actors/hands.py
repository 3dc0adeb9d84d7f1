"""What a slot does in the world: carrying out effects, one by one, and what it has to remember whatever happens.

No decision is made here. The worker of the attempt, its cancel flag, the timers and the units of the budget are the
shell's own memory: a machine that is reset does not lose them.
"""

from __future__ import annotations

from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.bodies import AsyncTaskContext, BodyJob, CancelScope, TaskContext
from actors.messages import (
    Acquire,
    AttemptEnded,
    Begin,
    Denied,
    Kill,
    Register,
    Rejection,
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from actors.bodies import BodyRunners
    from actors.budget import Budget
    from actors.publisher import Publisher
    from actors.runtime import Runtime
    from admission.effects import Rank, TimerKind
    from admission.spec import TaskDefaults

__all__ = ["ACTIONS", "Inform", "Inside", "SlotHands", "SlotServices"]


@dataclass(slots=True, eq=False)
class SlotServices:
    """What all slots of a registry share."""

    runtime: Runtime
    bodies: BodyRunners
    publisher: Publisher
    budget: Budget
    defaults: TaskDefaults
    grace: float
    max_queue: int | None
    limiter: ActorRef[Any] | None
    to_registry: Callable[[Any], None]


@dataclass(slots=True)
class Inform:
    """An effect of the shell: a message that leaves in its rank's place."""

    send: Callable[[Any], None]
    message: Any
    rank: Rank


@dataclass(slots=True, eq=False)
class Inside:
    """The attempt that has a worker: what the shell remembers of it, whatever happens to the machines."""

    ticket: Ticket
    attempt: int
    scope: CancelScope
    worker: ActorRef[Any] | None = None
    entered: bool = False


class SlotHands(RuntimeActor):
    """The part of a slot that acts and does not decide."""

    def set_up(self, key: str, services: SlotServices) -> None:
        """Make the slot's own state."""
        self.key = key
        self.services = services
        self.machine = SlotMachine(services.max_queue)
        self.run: RunMachine | None = None
        self.inside: Inside | None = None
        self.timers: dict[TimerKind, TimerToken] = {}
        self.units = 0  # units of the shared budget that the line holds
        self.since = services.runtime.clock.monotonic()
        self.draining = False
        self.retiring = False

    # -- carrying out --------------------------------------------------------------------------------------------------

    def on_effect_fault(self, effect: Any, error: BaseException) -> None:
        """Tell of it, and let whatever waits for the effect know that it failed."""
        self.services.publisher.failure("slot", effect, error)
        match effect:
            case ordered.BeginAttempt():
                raised = AttemptRaised(error, f"failed to start: {type(error).__name__}")
                owner = self.owner()
                if self.inside is None:
                    self.inside = Inside(owner, effect.attempt, CancelScope())
                deliver(self.actor_ref, AttemptEnded(owner.id, effect.attempt, raised, released=True))
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
        fields: dict[str, Any] = {"from_phase": effect.from_phase, "to_phase": effect.to_phase}
        if effect.reason is not None:
            fields["reason"] = effect.reason
        self.services.publisher.publish(
            EventKind.SLOT_TRANSITION, None, None, fields, slot=self.key, announced=effect.announced
        )

    def _register(self, effect: ordered.Register) -> None:
        assert isinstance(effect.entry, Ticket)
        self.services.to_registry(Register(effect.entry))

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
        ticket, services = self.owner(), self.services
        self.inside = inside = Inside(ticket, effect.attempt, CancelScope())
        spec = ticket.spec
        kind = AsyncTaskContext if spec.is_coroutine else TaskContext
        ctx = kind(inside.scope, ticket.id, ticket.name, self.key, effect.attempt)
        context = ticket.context.copy() if ticket.context is not None else Context()
        job = BodyJob(spec, ctx, context, services.runtime.clock.monotonic)
        inside.worker = worker = WorkerActor.spawn(services.runtime, self.actor_ref, services.bodies.of(spec), job)
        deliver(worker, Begin())

    def _stop_attempt(self, effect: ordered.StopAttempt) -> None:
        self.tell_worker(Stop(effect.cause))

    def _kill_attempt(self, _effect: ordered.KillAttempt) -> None:
        self.tell_worker(Kill())

    def _set_flag(self, effect: ordered.SetCancelFlag) -> None:
        if self.inside is not None:
            self.inside.scope.cancel(effect.cause)

    def _set_timer(self, effect: ordered.SetTimer) -> None:
        self.drop_timer(effect.kind)
        self.timers[effect.kind] = self.runtime.schedule(effect.due, self.actor_ref)

    def _cancel_timer(self, effect: ordered.CancelTimer) -> None:
        self.drop_timer(effect.kind)

    def _inform(self, effect: Inform) -> None:
        effect.send(effect.message)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def owner(self) -> Ticket:
        """Return the slot's owner, where there must be one."""
        owner = self.machine.owner
        assert isinstance(owner, Ticket)
        return owner

    def log_body(self, kind: EventKind, inside: Inside, fields: dict[str, Any]) -> None:
        """Log what the body's own side has told of it."""
        publisher = self.services.publisher
        if kind in publisher.silent:
            publisher.skip()
            return
        try:
            publisher.publish(kind, inside.ticket, inside.attempt, fields, announced=False)
        except BaseException as error:  # noqa: BLE001 - a record that is lost costs nothing else
            publisher.failure("slot", kind, error)

    def tell_worker(self, message: Any) -> None:
        """Tell the worker of the attempt, if there is one."""
        if self.inside is not None and self.inside.worker is not None:
            deliver(self.inside.worker, message)

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
    Inform: SlotHands._inform,  # noqa: SLF001
}

SlotHands.actions = ACTIONS
