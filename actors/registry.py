"""The registry: which slot a submission belongs to, who is a member, which slots stay warm, and the end of everything.

The desk that it is built on answers callers and settles what slots decided; here is what only a registry has: many
slots, unique names, limits, retirement.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from actors.adding import Adding
from actors.budget import Budget
from actors.desk import DESK_HANDLERS, Settlement
from actors.ending import SlotRecord
from actors.hands import SlotServices
from actors.limiter import LimiterActor
from actors.messages import Add, Retire
from actors.observers.log import open_publisher
from actors.observers.subscribers import check_subscribers
from actors.orders import Publish
from actors.runtime import TimerFired, TimerToken, deliver
from actors.slot import SlotActor
from admission.checks import check_duration
from admission.events import EventKind
from admission.limits import AdmissionLimits
from admission.outcome import RejectionKind
from admission.rules import Rules
from admission.spec import TaskDefaults

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from actors.budget import Intake
    from actors.messages import Ticket
    from actors.observers.subscribers import Subscriber
    from actors.publisher import Publisher
    from actors.runtime import Runtime

__all__ = ["RegistryActor"]


@dataclass(slots=True)
class _WatchIdle:
    """Set the timer that retires idle slots; an effect of its own, so that counting itself can not fail."""

    registry: RegistryActor

    def perform(self) -> None:
        """Do it."""
        self.registry.watch_idle()


class RegistryActor(Adding):
    """One registry of slots.

    ``registry.ask(Submit(submission))`` returns a `TaskHandle`; ``registry.tell(Submit(submission, notify=ref,
    token=any))`` returns nothing, and `ref` receives `Lifecycle` messages and, as the last, exactly one `Ended`.
    ``registry.stop()`` and `ActorRegistry.stop_all()` abandon: a shutdown with no grace.

    Args:
        runtime: a started runtime; see `actors.assembly.open_runtime`.
        grace: seconds that a body has to stop before it is given up.
        limits: bounds on what may wait, run and stay.
        defaults: settings for specs that inherit them.
        subscribers: whoever is told of events from the start; see `Supervisor.subscribe`.
        logger: where log records go; see `actors.observers.log`.
        observer_timeout: seconds that log and subscribers have at shutdown to take what waits for them.
        name: what log records call this registry; random by default.
        intake: the gate of the face, where there is one.
        settlement: where the shutdown's report is kept.
        publisher: from where events go, where it is there already; by default made of the above.

    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        grace: float | timedelta = 60.0,
        limits: AdmissionLimits | None = None,
        defaults: TaskDefaults | None = None,
        subscribers: Iterable[Subscriber] = (),
        logger: Any = None,
        observer_timeout: float | timedelta = 5.0,
        name: str | None = None,
        intake: Intake | None = None,
        settlement: Settlement | None = None,
        publisher: Publisher | None = None,
    ) -> None:
        publisher = publisher or open_publisher(runtime, logger, name, check_subscribers(subscribers))
        super().__init__(
            runtime,
            publisher,
            grace=check_duration("grace", grace),
            observer_timeout=check_duration("observer_timeout", observer_timeout),
            intake=intake,
            settlement=settlement,
        )
        self.limits = limits or AdmissionLimits()
        self.slots: dict[str, SlotRecord] = {}
        self.at_work = 0  # slots with something open
        self.idle: OrderedDict[str, SlotRecord] = OrderedDict()  # the longest idle one first
        self.retire_timer: TimerToken | None = None
        limit = self.limits.max_concurrent
        self.limiter = LimiterActor.spawn(runtime, limit) if limit is not None else None
        self.services = SlotServices(
            runtime=runtime,
            bodies=runtime.bodies,  # type: ignore[arg-type]
            publisher=publisher,
            budget=Budget(self.limits.max_total_pending),
            defaults=defaults or TaskDefaults(),
            rules=Rules(
                grace=self.grace,
                max_queue=self.limits.max_slot_queue,
                limited=self.limiter is not None,
                budgeted=self.limits.max_total_pending is not None,
                random=runtime.random,
                audience=publisher,
            ),
            limiter=self.limiter,
            to_registry=self.actor_inbox.put,
        )

    # -- slots -------------------------------------------------------------------------------------------------------

    def find_slot(self, key: str, out: list[Any]) -> SlotRecord | None:
        """Return the slot of this key, made if need be; None where `max_slots` slots are at work."""
        record = self.slots.get(key)
        if record is not None and record.open:
            return record
        if self.limits.max_slots is not None and self.at_work >= self.limits.max_slots:
            return None
        if record is None:
            record = self.slots[key] = SlotRecord(key, SlotActor.spawn(key, self.services))
            out.append(Publish(self.publisher, EventKind.SLOT_CREATED, slot=key, announced=False))
        return record

    def slots_at_work(self) -> list[SlotRecord]:
        """Return the slots with something open."""
        return [record for record in self.slots.values() if record.open] if self.at_work else []

    def all_slots(self) -> list[SlotRecord]:
        """Return every slot that there is."""
        return list(self.slots.values())

    def opened(self, record: SlotRecord) -> None:
        """Count one more thing that is open in this slot; it is not idle any more."""
        record.open += 1
        if record.key is None:
            self.private[record] = None
        elif record.open == 1:
            self.at_work += 1
            self.idle.pop(record.key, None)

    def closed(self, record: SlotRecord, out: list[Any]) -> None:
        """Count one thing less that is open in this slot; with none, it is idle and may be retired."""
        record.open -= 1
        if record.open:
            return
        if record.key is None:
            self._end_private(record, out)
            return
        self.at_work -= 1
        if self.deadline is not None:
            return
        record.idle_since = self.runtime.clock.monotonic()
        self.idle[record.key] = record
        most = self.limits.max_warm_slots
        if most is not None and len(self.idle) > most:
            self._retire(self.idle.popitem(last=False)[1], out)
        if self.retire_timer is None and self.idle:
            out.append(_WatchIdle(self))

    def most_tasks(self) -> int | None:
        """Return how many runs may be registered or lingering."""
        return self.limits.max_tasks

    def new_private_slot(self) -> SlotRecord:
        """Make a slot for one run that competes with nobody."""
        return SlotRecord(None, SlotActor.spawn(None, self.services))

    def _end_private(self, record: SlotRecord, out: list[Any]) -> None:
        self.private.pop(record, None)
        out.append(self.to_slot(record, Retire()))

    def refusal(self, ticket: Ticket) -> tuple[RejectionKind, str] | None:
        """Say why this run may not be registered: its name is taken, or there are too many runs."""
        if ticket.name in self.names or ticket.name in self.lingering_names:
            return RejectionKind.ALREADY_EXISTS, f"a run named {ticket.name!r} is registered or still inside its body"
        most = self.limits.max_tasks
        if most is not None and len(self.members) + len(self.lingering) >= most:
            return RejectionKind.RESOURCE_LIMIT, f"max_tasks ({most}) is reached"
        return None

    # -- retirement --------------------------------------------------------------------------------------------------

    def on_timer(self, message: TimerFired) -> None:
        """Retire what has been idle for long enough; the rest is for the desk."""
        if message.token is not self.retire_timer:
            super().on_timer(message)
            return
        self.retire_timer = None
        out: list[Any] = []
        now, patience = self.runtime.clock.monotonic(), self.limits.slot_idle_timeout
        while self.idle and next(iter(self.idle.values())).idle_since + patience <= now:  # as the timer was set
            self._retire(self.idle.popitem(last=False)[1], out)
        self.watch_idle()
        self.runtime.perform(self, out)

    def watch_idle(self) -> None:
        """One timer for all: it is due when the longest idle slot is."""
        if self.retire_timer is not None or not self.idle:
            return
        oldest = next(iter(self.idle.values()))
        self.retire_timer = self.runtime.schedule(oldest.idle_since + self.limits.slot_idle_timeout, self.actor_ref)

    def _retire(self, record: SlotRecord, out: list[Any]) -> None:
        """Drop an idle slot. Nothing is open in it, so nothing can be on its way to it."""
        del self.slots[cast("str", record.key)]
        self.retired(record, out)
        out.append(self.to_slot(record, Retire()))

    def forget_slots(self) -> None:
        """Let go of everything: the shutdown is concluded."""
        if self.retire_timer is not None:
            self.runtime.cancel(self.retire_timer)
        if self.limiter is not None:
            deliver(self.limiter, Retire())
        super().forget_slots()
        self.slots.clear()
        self.idle.clear()


RegistryActor.handlers = {**DESK_HANDLERS, Add: RegistryActor.on_add}
