"""Who owns a slot and who waits: every decision of admission, as a pure state machine.

Each method is one message (`submit`, `registered`, `refused`, `withdraw`, `finished`, `released`, `drain`): it decides,
then assigns what is new, and returns the effects in the order in which they were decided. What can fail comes first.
What happens to a submission that finds its slot busy is one small function per policy in `_WHEN_BUSY`: a new policy is
added there and nowhere else.

How the owner's attempts go is not decided here but in `admission.run`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.effects import (
    AnswerWithdrawal,
    Cause,
    ClaimRun,
    DrainRun,
    Edge,
    Effect,
    Emit,
    Entry,
    Phase,
    Register,
    Reject,
    ReturnUnit,
    StartRun,
)
from admission.events import EventKind
from admission.outcome import Rejected, RejectionKind
from admission.policy import AdmissionPolicy
from admission.snapshot import SlotStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.identity import TaskId
    from admission.rules import Rules

__all__ = [
    "LEGAL_EDGES",
    "PUBLIC_STATUS",
    "Line",
    "SlotMachine",
    "Standing",
    "Withdrawal",
    "rejection",
]

_ABSENT, _IDLE, _ADMITTING = Phase.ABSENT, Phase.IDLE, Phase.ADMITTING
_PENDING, _RUNNING, _TERMINATING, _CLOSED = Phase.CANCEL_PENDING, Phase.RUNNING, Phase.TERMINATING, Phase.CLOSED

LEGAL_EDGES: Final = frozenset(
    {
        (_ABSENT, _ADMITTING),
        (_IDLE, _ADMITTING),
        (_ADMITTING, _RUNNING),
        (_ADMITTING, _PENDING),
        (_ADMITTING, _IDLE),
        (_PENDING, _TERMINATING),
        (_PENDING, _IDLE),
        (_RUNNING, _TERMINATING),
        (_RUNNING, _IDLE),
        (_TERMINATING, _IDLE),
        (_IDLE, _ABSENT),
        (_IDLE, _CLOSED),
        (_ADMITTING, _CLOSED),
        (_PENDING, _CLOSED),
        (_RUNNING, _CLOSED),
        (_TERMINATING, _CLOSED),
    }
)
"""Every phase change that there is; the log has one record for each."""

# Effects that say nothing but themselves are made once.
_EDGES: Final = {edge: Edge(*edge) for edge in LEGAL_EDGES}
_ADMITTED: Final = Edge(_ADMITTING, _RUNNING, announced=True)
_RETURN_UNIT: Final = ReturnUnit()
_ADD_REQUESTED, _ACCEPTED = EventKind.TASK_ADD_REQUESTED, EventKind.SUBMISSION_ACCEPTED

PUBLIC_STATUS: Final = {
    _ABSENT: SlotStatus.IDLE,
    _IDLE: SlotStatus.IDLE,
    _ADMITTING: SlotStatus.ADMITTING,
    _PENDING: SlotStatus.TERMINATING,
    _RUNNING: SlotStatus.RUNNING,
    _TERMINATING: SlotStatus.TERMINATING,
    _CLOSED: SlotStatus.IDLE,
}


class Standing(Enum):
    """How the owner's run stands towards someone who wants it stopped."""

    FREE = "free"
    """Nobody has claimed it."""
    CLAIMED = "claimed"
    """It is already asked to stop."""
    OVER = "over"
    """It has its outcome; at most its body is still inside."""


class Withdrawal(NamedTuple):
    """A removal or cancellation that waits for the registry's decision about the owner."""

    op: object
    cause: Cause


class Line:
    """The submissions that wait, in the order in which they start. Every operation takes constant time."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: OrderedDict[TaskId, Entry] | None = None  # most slots never queue anything

    def __len__(self) -> int:
        return len(self._entries) if self._entries else 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values() if self._entries else ())

    def get(self, id_: TaskId) -> Entry | None:
        """Return the waiting submission with this id."""
        return self._entries.get(id_) if self._entries else None

    @property
    def head(self) -> Entry | None:
        """The submission that starts next."""
        return next(iter(self._entries.values())) if self._entries else None

    def append(self, entry: Entry) -> None:
        """Put it behind the others."""
        if self._entries is None:
            self._entries = OrderedDict()
        self._entries[entry.id] = entry

    def push_head(self, entry: Entry) -> None:
        """Put it before the others."""
        self.append(entry)
        assert self._entries is not None
        self._entries.move_to_end(entry.id, last=False)

    def swap_head(self, displaced: Entry, entry: Entry) -> None:
        """Put it in the place of the one that starts next."""
        self.push_head(entry)
        self.take(displaced)

    def take(self, entry: Entry) -> None:
        """Take it out, wherever it is."""
        assert self._entries is not None
        del self._entries[entry.id]
        if not self._entries:
            self._entries = None

    def clear(self) -> None:
        """Take all out."""
        self._entries = None


class SlotMachine:
    """The state of one slot: its phase, its owner, withdrawals kept for the decision, and the line behind the owner."""

    __slots__ = ("draining", "kept", "line", "owner", "phase", "rules")

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.phase: Phase = _ABSENT
        self.owner: Entry | None = None
        self.kept: tuple[Withdrawal, ...] = ()
        self.draining = False
        self.line = Line()

    @property
    def queue_is_full(self) -> bool:
        """Whether `max_slot_queue` submissions wait."""
        most = self.rules.max_queue
        return most is not None and len(self.line) >= most

    def needs_unit(self, policy: AdmissionPolicy) -> bool:
        """Tell whether this submission would add to the number of waiting ones, and so needs a unit of the budget."""
        if self.owner is None or self.draining or not self.rules.budgeted:
            return False
        return _WHEN_BUSY[policy].needs_unit(self)

    # -- a submission arrives ------------------------------------------------------------------------------------

    def submit(self, entry: Entry, *, unit: bool = True) -> list[Effect]:
        """Decide about a submission; `unit` says whether the unit that it needs was to be had."""
        if self.draining:
            return _turned_away(entry, RejectionKind.SHUTTING_DOWN, "shutdown has begun")
        if self.owner is not None:
            return _WHEN_BUSY[entry.policy].decide(self, entry, unit)
        effects: list[Effect] = []
        if not self.rules.audience.passes_over(entry, 3):
            _tell_of_admission(effects, self.phase, entry, {"policy": entry.policy, "status": "admitting"})
        effects.append(Register(entry))
        self.owner = entry
        self.phase = _ADMITTING
        return effects

    def adopt(self, entry: Entry, epoch: int) -> list[Effect]:
        """Take over a run that is registered already: the only one that a private slot ever has."""
        if self.phase is not _ABSENT:
            return []
        effects: list[Effect] = [StartRun(entry, epoch, self.draining)]
        self.owner = entry
        self.phase = _RUNNING
        return effects

    # -- the registry has decided about the owner ----------------------------------------------------------------

    def registered(self, id_: TaskId, epoch: int) -> list[Effect] | None:
        """The registry has taken the owner in."""
        owner = self._expected_owner(id_)
        if owner is None:
            return None
        effects: list[Effect] = []
        replaced = self.phase is _PENDING
        if replaced:
            effects.append(_EDGES[_PENDING, _TERMINATING])
        elif not self.rules.audience.passes_over(owner):
            effects.append(_ADMITTED)
        for number, withdrawal in enumerate(self.kept):
            effects.append(_remove_requested(owner, withdrawal.cause))
            effects.append(AnswerWithdrawal(id_, withdrawal.op, claimed=number == 0))
        if replaced:
            effects.append(_remove_requested(owner, Cause.REPLACE))
        effects.append(StartRun(owner, epoch, replaced or bool(self.kept) or self.draining))
        self.kept = ()
        self.phase = _TERMINATING if replaced else _RUNNING
        return effects

    def refused(self, id_: TaskId) -> list[Effect] | None:
        """The registry has turned the owner away and told everybody; the next one is started."""
        owner = self._expected_owner(id_)
        if owner is None:
            return None
        effects: list[Effect] = []
        for withdrawal in self.kept:
            if withdrawal.cause is Cause.REMOVE:
                effects.append(_remove_requested(owner, withdrawal.cause))
            effects.append(AnswerWithdrawal(id_, withdrawal.op, claimed=False))
        self._free(effects, owner)
        return effects

    # -- somebody wants a submission gone ------------------------------------------------------------------------

    def withdraw(self, id_: TaskId, op: object, cause: Cause, owner_stands: Standing) -> list[Effect]:
        """Decide about a removal or cancellation by id; `owner_stands` says how the owner's run is placed."""
        effects: list[Effect] = []
        waiting = self.line.get(id_)
        if waiting is not None:
            self._return_unit(effects)
            effects.append(_remove_requested(waiting, cause))
            effects += rejection(waiting, RejectionKind.REMOVED_FROM_QUEUE, "removed while it waited")
            effects.append(AnswerWithdrawal(id_, op, claimed=True))
            self.line.take(waiting)
        elif self.owner is None or self.owner.id != id_ or owner_stands is Standing.OVER:
            effects.append(AnswerWithdrawal(id_, op, claimed=False))
        elif self.phase is _ADMITTING or self.phase is _PENDING:
            self.kept = (*self.kept, Withdrawal(op, cause))
        else:
            free = owner_stands is Standing.FREE
            effects.append(_remove_requested(self.owner, cause))
            if free:
                effects.append(ClaimRun(cause))
            effects.append(AnswerWithdrawal(id_, op, claimed=free))
        return effects

    # -- the owner ends ------------------------------------------------------------------------------------------

    def finished(self, *, lingering: bool) -> list[Effect]:
        """The owner has its outcome. While its body lingers the slot stays taken, and says so."""
        effects: list[Effect] = []
        owner = self.owner
        if owner is None or (self.phase is not _RUNNING and self.phase is not _TERMINATING):
            return effects  # an owner that is not registered yet has nothing to end
        if not lingering:
            self._free(effects, owner)
        elif self.phase is _RUNNING:
            effects.append(Edge(_RUNNING, _TERMINATING, reason="body still inside"))
            self.phase = _TERMINATING
        return effects

    def released(self) -> list[Effect]:
        """The body of an owner that lingered has left."""
        effects: list[Effect] = []
        if self.owner is not None and self.phase is _TERMINATING:
            self._free(effects, self.owner)
        return effects

    # -- shutdown ------------------------------------------------------------------------------------------------

    def drain(self, deadline: float) -> list[Effect]:
        """Shutdown: turn away whoever waits, front to back, and have the owner stopped by `deadline`."""
        effects: list[Effect] = []
        if self.draining:
            return effects
        for entry in self.line:
            self._return_unit(effects)
            effects += rejection(entry, RejectionKind.SHUTTING_DOWN, "shutdown has begun")
        phase = self.phase
        if phase is _IDLE:
            phase = _CLOSED
            effects.append(_EDGES[_IDLE, _CLOSED])
        elif phase is _RUNNING or phase is _TERMINATING:
            effects.append(DrainRun(deadline))
        self.draining = True
        self.line.clear()
        self.phase = phase
        return effects

    # -- parts ---------------------------------------------------------------------------------------------------

    def _expected_owner(self, id_: TaskId) -> Entry | None:
        """Return the owner if the registry's decision about `id_` is the one that is waited for."""
        waited_for = self.phase is _ADMITTING or self.phase is _PENDING
        return self.owner if waited_for and self.owner is not None and self.owner.id == id_ else None

    def _return_unit(self, effects: list[Effect]) -> None:
        if self.rules.budgeted:
            effects.append(_RETURN_UNIT)

    def _free(self, effects: list[Effect], owner: Entry) -> None:
        """Nobody owns the slot any more: start whoever is next, or rest."""
        head = None if self.draining else self.line.head
        phase = _ADMITTING if head is not None else _CLOSED if self.draining else _IDLE
        if head is None:
            if not self.rules.audience.passes_over(owner):
                effects.append(_EDGES[self.phase, phase])
        else:
            self._return_unit(effects)
            if not self.rules.audience.passes_over(head, 4):
                effects.append(_EDGES[self.phase, _IDLE])
                fields: dict[str, object] = {"status": "started_from_queue", "depth": len(self.line) - 1}
                _tell_of_admission(effects, _IDLE, head, fields)
            effects.append(Register(head))
        self.owner = head
        self.kept = ()
        self.phase = phase
        if head is not None:
            self.line.take(head)


def _turned_away(entry: Entry, kind: RejectionKind, reason: str) -> list[Effect]:
    """Reject a submission and change nothing."""
    return list(rejection(entry, kind, reason))


def _tell_of_admission(effects: list[Effect], before: Phase, entry: Entry, fields: dict[str, object]) -> None:
    effects += (_EDGES[before, _ADMITTING], Emit(_ADD_REQUESTED, entry), Emit(_ACCEPTED, entry, None, fields))


def rejection(entry: Entry, kind: RejectionKind, reason: str, cause_id: TaskId | None = None) -> tuple[Effect, Effect]:
    """Return the effects by which a submission is turned away: telling of it, and doing it."""
    fields = Rejected(kind, reason, cause_id).event_fields()
    return Emit(EventKind.SUBMISSION_REJECTED, entry, None, fields), Reject(entry, kind, reason, cause_id)


def _remove_requested(entry: Entry, cause: Cause) -> Emit:
    fields = {"reason": cause} if cause is Cause.CANCEL else {}
    return Emit(EventKind.TASK_REMOVE_REQUESTED, entry, None, fields)


# -- one rule per policy: what a submission does that finds its slot busy ------------------------------------------


@dataclass(frozen=True, slots=True)
class _BusyRule:
    needs_unit: Callable[[SlotMachine], bool]
    decide: Callable[[SlotMachine, Entry, bool], list[Effect]]


def _queue(slot: SlotMachine, entry: Entry, unit: bool) -> list[Effect]:  # noqa: FBT001
    line = slot.line
    if slot.queue_is_full:
        kind, reason = RejectionKind.QUEUE_FULL, f"{len(line)} of {slot.rules.max_queue} places taken"
        return _turned_away(entry, kind, reason)
    if not unit:
        return _turned_away(entry, RejectionKind.RESOURCE_LIMIT, "max_total_pending is reached")
    effects: list[Effect] = []
    if not slot.rules.audience.passes_over(entry):
        effects.append(Emit(_ACCEPTED, entry, None, {"policy": entry.policy, "depth": len(line) + 1}))
    line.append(entry)
    return effects


def _replace(slot: SlotMachine, entry: Entry, unit: bool) -> list[Effect]:  # noqa: FBT001
    displaced, owner, phase = slot.line.head, slot.owner, slot.phase
    if displaced is None and not unit:
        return _turned_away(entry, RejectionKind.RESOURCE_LIMIT, "max_total_pending is reached")
    effects: list[Effect] = []
    if displaced is not None:
        reason = f"superseded by {entry.id}"
        effects += rejection(displaced, RejectionKind.SUPERSEDED_BY_REPLACE, reason, entry.id)
    fields: dict[str, object] = {"policy": entry.policy, "depth": len(slot.line) + (displaced is None)}
    if phase is _ADMITTING:  # the registry has not decided yet: the removal waits for its answer
        phase = _PENDING
    elif phase is _RUNNING and owner is not None:
        phase = _TERMINATING
    if phase is not slot.phase:
        effects.append(Edge(slot.phase, phase, announced=True, reason="replace"))
    if slot.phase is _RUNNING and owner is not None:
        effects.append(_remove_requested(owner, Cause.REPLACE))
        effects.append(ClaimRun(Cause.REPLACE))
    else:
        fields["status"] = PUBLIC_STATUS[slot.phase]
    effects.append(Emit(_ACCEPTED, entry, None, fields))
    if displaced is None:
        slot.line.push_head(entry)
    else:
        slot.line.swap_head(displaced, entry)
    slot.phase = phase
    return effects


def _drop_if_running(slot: SlotMachine, entry: Entry, unit: bool) -> list[Effect]:  # noqa: ARG001, FBT001
    return _turned_away(entry, RejectionKind.SLOT_BUSY, f"the slot is {PUBLIC_STATUS[slot.phase]}")


_WHEN_BUSY: Final[dict[AdmissionPolicy, _BusyRule]] = {
    AdmissionPolicy.QUEUE: _BusyRule(lambda slot: not slot.queue_is_full, _queue),
    AdmissionPolicy.REPLACE: _BusyRule(lambda slot: not slot.line, _replace),
    AdmissionPolicy.DROP_IF_RUNNING: _BusyRule(lambda _slot: False, _drop_if_running),
}
