"""A slot alone: the slot and its desk in one actor, for applications that embed single slots in their own system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.budget import Budget
from actors.desk import DESK_HANDLERS, Desk
from actors.ending import SlotRecord
from actors.hands import ACTIONS, SlotServices
from actors.messages import Retire, Submit, Ticket
from actors.observers.log import open_publisher
from actors.observers.subscribers import check_subscribers
from actors.runtime import TimerFired
from actors.slot import SLOT_HANDLERS, SlotActor
from admission.checks import check_duration, check_text
from admission.effects import Phase
from admission.events import EventKind
from admission.limits import AdmissionLimits
from admission.rules import Rules
from admission.spec import Submission, TaskDefaults

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from actors.observers.subscribers import Subscriber
    from actors.runtime import Runtime
    from admission.outcome import RejectionKind

__all__ = ["LONE_HANDLERS", "LoneSlotActor"]


@dataclass(slots=True)
class _Inner:
    """A message between the two halves, handled within the turn."""

    actor: LoneSlotActor
    message: Any

    def perform(self) -> None:
        """Do it."""
        self.actor.handle_inner(self.message)


class LoneSlotActor(Desk, SlotActor):
    """One slot without a registry: its own registrar, with the messages and outcomes of a registry.

    It answers `Submit`, `Remove`, `Cancel`, `Tasks`, `Alive`, `Snapshot`, `Explain`, `Join` and `Shutdown` itself.
    Every registration is accepted: no names are compared, and of the limits `max_slot_queue` and `max_total_pending`
    apply.

    Args:
        key: the slot's key; a submission that names another slot is refused with ValueError.
        runtime: a started runtime; see `actors.assembly.open_runtime`.
        grace: seconds that a body has to stop before it is given up.
        limits: bounds on what may wait.
        defaults: settings for specs that inherit them.
        subscribers: whoever is told of events; see `Supervisor.subscribe`.
        logger: where log records go; see `actors.observers.log`.
        observer_timeout: seconds that log and subscribers have at shutdown to take what waits for them.

    """

    component = "slot"

    def __init__(
        self,
        key: str,
        *,
        runtime: Runtime,
        grace: float | timedelta = 60.0,
        limits: AdmissionLimits | None = None,
        defaults: TaskDefaults | None = None,
        subscribers: Iterable[Subscriber] = (),
        logger: Any = None,
        observer_timeout: float | timedelta = 5.0,
    ) -> None:
        limits = limits or AdmissionLimits()
        publisher = open_publisher(runtime, logger, subscribers=check_subscribers(subscribers))
        seconds = check_duration("grace", grace)
        services = SlotServices(
            runtime=runtime,
            bodies=runtime.bodies,  # type: ignore[arg-type]
            publisher=publisher,
            budget=Budget(limits.max_total_pending),
            defaults=defaults or TaskDefaults(),
            rules=Rules(
                grace=seconds,
                max_queue=limits.max_slot_queue,
                budgeted=limits.max_total_pending is not None,
                random=runtime.random,
                audience=publisher,
            ),
            limiter=None,
            to_registry=self.handle_inner,
        )
        Desk.__init__(
            self,
            runtime,
            publisher,
            grace=seconds,
            observer_timeout=check_duration("observer_timeout", observer_timeout),
        )
        self.set_up(check_text("key", key), services)
        self.record = SlotRecord(self.key, self.actor_ref)
        self.slots = {key: self.record}
        publisher.publish(EventKind.SLOT_CREATED, slot=self.key, announced=False)

    # -- which half --------------------------------------------------------------------------------------------------

    def handle_inner(self, message: Any) -> None:
        """Handle a message from the other half at once, behind the same barrier as any other."""
        try:
            self.on_receive(message)
        except BaseException as error:  # noqa: BLE001 - the barrier
            self.on_fault(message, error)

    def on_fault(self, message: Any, error: BaseException) -> Any:
        """Settle what the message stood for, in the half that it was for."""
        of_slot = type(message) in SLOT_HANDLERS and type(message) not in DESK_HANDLERS
        if type(message) is TimerFired:
            token = message.token
            of_slot = not (token is self.last_timer or token is self.flush_timer or id(token) in self.timed)
        half = SlotActor if of_slot else Desk  # a message that nobody knows costs the slot nothing
        return half.on_fault(self, message, error)

    def on_effect_fault(self, effect: Any, error: BaseException) -> None:
        """Settle an effect that failed, in the half that ordered it."""
        half = SlotActor if type(effect) in ACTIONS else Desk
        half.on_effect_fault(self, effect, error)

    def on_stop_requested(self) -> Any:
        """Abandon: shut down with no grace, or join the shutdown that runs."""
        return Desk.on_stop_requested(self)

    # -- the desk of one slot ----------------------------------------------------------------------------------------

    def on_submit(self, message: Submit[Any]) -> Any:
        """Take a submission that names this slot or none."""
        slot = message.submission.slot
        if slot is not None and slot != self.key:
            msg = f"this slot is {self.key!r}; leave the submission's slot out, or send it to a registry"
            return self.fail_submit(message, ValueError(msg))
        return Desk.on_submit(self, message)

    def named(self, submission: Submission[Any]) -> Submission[Any]:
        """Return a submission as one to this slot."""
        return Submission(submission.spec, slot=self.key, policy=submission.policy)

    def find_slot(self, key: str, out: list[Any]) -> SlotRecord:  # noqa: ARG002
        """Return the only slot."""
        return self.record

    def slots_at_work(self) -> list[SlotRecord]:
        """Return the only slot, if something is open in it."""
        return self.all_slots() if self.record.open else []

    def all_slots(self) -> list[SlotRecord]:
        """Return the only slot."""
        return [self.record]

    def to_slot(self, record: SlotRecord, message: Any) -> Any:  # noqa: ARG002
        """Return the effect that brings a message to the other half, within the turn."""
        return _Inner(self, message)

    def refusal(self, ticket: Ticket) -> tuple[RejectionKind, str] | None:  # noqa: ARG002
        """Accept every registration."""
        return None

    def retired(self, record: SlotRecord, out: list[Any]) -> None:
        """Log that the slot is gone, if it ever was there."""
        if self.machine.phase is Phase.IDLE:
            Desk.retired(self, record, out)

    def on_retire(self, _message: Retire) -> None:
        """Nothing: this actor ends with its report."""

    def on_timer(self, message: TimerFired) -> None:
        """A timer of the run or of the shutdown is due."""
        if not self.on_run_timer(message):
            super().on_timer(message)


LONE_HANDLERS: dict[type, Any] = {
    **SLOT_HANDLERS,
    **DESK_HANDLERS,
    Submit: LoneSlotActor.on_submit,
    Retire: LoneSlotActor.on_retire,
}

LoneSlotActor.handlers = LONE_HANDLERS
