"""What a slot says of itself when it is asked. Nothing here changes anything."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from admission.effects import Phase, TimerKind
from admission.run import RunPhase
from admission.slot import PUBLIC_STATUS
from admission.snapshot import Explanation, SlotView, WaitsFor

if TYPE_CHECKING:
    from actors.hands import SlotHands
    from admission.identity import TaskId
    from admission.run import RunMachine

__all__ = ["explain", "glance", "who_is_inside"]

_WAITS_FOR: Final = {
    RunPhase.NEW: WaitsFor.NOTHING,
    RunPhase.WAITING_PERMIT: WaitsFor.PERMIT,
    RunPhase.STARTING: WaitsFor.BODY_THREAD,
    RunPhase.INSIDE: WaitsFor.BODY,
    RunPhase.OVERDUE: WaitsFor.RELEASE,
    RunPhase.REPORTED: WaitsFor.RELEASE,
    RunPhase.PAUSING: WaitsFor.PAUSE,
    RunPhase.LINGERING: WaitsFor.RELEASE,
    RunPhase.OVER: WaitsFor.NOTHING,
}


def glance(slot: SlotHands) -> SlotView | None:
    """Return what a snapshot shows of the slot; None for one without work, or without a key."""
    machine = slot.machine
    if machine.owner is None or slot.key is None:
        return None
    return SlotView(slot.key, PUBLIC_STATUS[machine.phase], machine.owner.id, len(machine.line), _age(slot))


def explain(slot: SlotHands, about: TaskId | None) -> Explanation | None:
    """Return what the slot waits for and who waits in it; None without work, or where `about` is not in it."""
    machine, run = slot.machine, slot.run
    owner, line = machine.owner, machine.line
    if owner is None:
        return None
    position = None
    if about is not None and about != owner.id:
        if line.get(about) is None:
            return None
        position = next(place for place, entry in enumerate(line) if entry.id == about)
    pause = slot.timers.get(TimerKind.PAUSE)
    return Explanation(
        slot=slot.key,
        status=PUBLIC_STATUS[machine.phase],
        phase=machine.phase,
        status_for=_age(slot),
        owner_id=owner.id,
        owner=owner.name,
        attempt=run.attempt if run is not None else 0,
        waits_for=_waits_for(slot, run),
        due_in=max(0.0, pause[0] - slot.runtime.clock.monotonic()) if pause is not None else None,
        queue=tuple(entry.id for entry in islice(line, Explanation.QUEUE_SHOWN)),
        queue_depth=len(line),
        position=position,
    )


def who_is_inside(slot: SlotHands) -> str | None:
    """Return the name of the run whose body is inside an attempt, if there is one.

    The body may have entered and the message that says so not be here yet. Whoever has claimed the entry is inside, or
    has given the body up, which is done only to one that is asked to stop.
    """
    job = slot.inside
    if job is None:
        return None
    untold = job.claimed and not job.ctx.cancelled
    return job.ticket.name if job.known_inside or untold else None


def _age(slot: SlotHands) -> float:
    return slot.runtime.clock.monotonic() - slot.since


def _waits_for(slot: SlotHands, run: RunMachine | None) -> WaitsFor:
    if slot.machine.phase in (Phase.ADMITTING, Phase.CANCEL_PENDING):
        return WaitsFor.ADMISSION
    if run is None:
        return WaitsFor.NOTHING
    if run.phase is RunPhase.STARTING and who_is_inside(slot) is not None:
        return WaitsFor.BODY
    return _WAITS_FOR[run.phase]
