"""Who owns a slot and who waits: every decision of admission, as a pure state machine.

A `decide`-like method (`submit`, `registered`, `refused`, `withdraw`, `finished`, `released`, `drain`) reads the state
and returns a :class:`SlotDecision`; nothing changes until :meth:`SlotMachine.commit`, which only assigns. What happens
to a submission that finds its slot busy is one small function per policy in `_WHEN_BUSY`: a new policy is added there
and nowhere else.

How the owner's attempts go is not decided here but in `admission.run`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from admission.effects import (
    NO_FIELDS,
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
from admission.outcome import RejectionKind
from admission.policy import AdmissionPolicy
from admission.snapshot import SlotStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from admission.identity import TaskId

__all__ = [
    "LEGAL_EDGES",
    "PUBLIC_STATUS",
    "Line",
    "LineChange",
    "SlotDecision",
    "SlotMachine",
    "Standing",
    "Withdrawal",
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

    # A change is one of these with its submission; none of them can fail.

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

    def swap_head(self, entry: Entry) -> None:
        """Put it in the place of the one that starts next."""
        assert self._entries is not None
        self._entries.popitem(last=False)
        self.push_head(entry)

    def take(self, entry: Entry) -> None:
        """Take it out, wherever it is."""
        assert self._entries is not None
        del self._entries[entry.id]
        if not self._entries:
            self._entries = None

    def clear(self, _last: Entry) -> None:
        """Take all out."""
        self._entries = None


class LineChange(NamedTuple):
    """One change of the line."""

    how: Callable[[Line, Entry], None]
    entry: Entry


class SlotDecision:
    """What is to be assigned, and what is to be done then."""

    __slots__ = ("draining", "effects", "kept", "line", "owner", "phase")

    def __init__(self, machine: SlotMachine, effects: list[Effect]) -> None:
        self.phase = machine.phase
        self.owner = machine.owner
        self.kept = machine.kept
        self.draining = machine.draining
        self.line: LineChange | None = None
        self.effects = effects


class SlotMachine:
    """The state of one slot: its phase, its owner, withdrawals kept for the decision, and the line behind the owner."""

    __slots__ = ("draining", "kept", "line", "max_queue", "owner", "phase")

    def __init__(self, max_queue: int | None = None) -> None:
        self.max_queue = max_queue
        self.phase: Phase = _ABSENT
        self.owner: Entry | None = None
        self.kept: tuple[Withdrawal, ...] = ()
        self.draining = False
        self.line = Line()

    def commit(self, decision: SlotDecision) -> None:
        """Assign what was decided."""
        self.phase = decision.phase
        self.owner = decision.owner
        self.kept = decision.kept
        self.draining = decision.draining
        if decision.line is not None:
            how, entry = decision.line
            how(self.line, entry)

    @property
    def queue_is_full(self) -> bool:
        """Whether `max_slot_queue` submissions wait."""
        return self.max_queue is not None and len(self.line) >= self.max_queue

    def needs_unit(self, policy: AdmissionPolicy) -> bool:
        """Tell whether this submission would add to the number of waiting ones, and so needs a unit of the budget."""
        if self.owner is None or self.draining:
            return False
        return _WHEN_BUSY[policy].needs_unit(self)

    # -- a submission arrives ------------------------------------------------------------------------------------

    def submit(self, entry: Entry, *, unit: bool = True) -> SlotDecision:
        """Decide about a submission; `unit` says whether the unit that it needs was to be had."""
        if self.draining:
            return self.turn_away(entry, RejectionKind.SHUTTING_DOWN, "shutdown has begun")
        if self.owner is None:
            decision = SlotDecision(self, [])
            self._admit(decision, entry, self.phase, {"policy": entry.policy, "status": "admitting"})
            return decision
        return _WHEN_BUSY[entry.policy].decide(self, entry, unit)

    # -- the registry has decided about the owner ----------------------------------------------------------------

    def registered(self, id_: TaskId, epoch: int) -> SlotDecision | None:
        """The registry has taken the owner in."""
        owner = self._expected_owner(id_)
        if owner is None:
            return None
        effects: list[Effect] = []
        decision = SlotDecision(self, effects)
        replaced = self.phase is _PENDING
        decision.phase = _TERMINATING if replaced else _RUNNING
        decision.kept = ()
        effects.append(_EDGES[self.phase, decision.phase] if replaced else _ADMITTED)
        for number, withdrawal in enumerate(self.kept):
            effects.append(_remove_requested(owner, withdrawal.cause))
            effects.append(AnswerWithdrawal(id_, withdrawal.op, claimed=number == 0))
        if replaced:
            effects.append(_remove_requested(owner, Cause.REPLACE))
        cancelled = replaced or bool(self.kept) or self.draining
        effects.append(StartRun(owner, epoch, cancelled=cancelled))
        return decision

    def refused(self, id_: TaskId) -> SlotDecision | None:
        """The registry has turned the owner away and told everybody; the next one is started."""
        owner = self._expected_owner(id_)
        if owner is None:
            return None
        effects: list[Effect] = []
        for withdrawal in self.kept:
            if withdrawal.cause is Cause.REMOVE:
                effects.append(_remove_requested(owner, withdrawal.cause))
            effects.append(AnswerWithdrawal(id_, withdrawal.op, claimed=False))
        return self._free(effects)

    # -- somebody wants a submission gone ------------------------------------------------------------------------

    def withdraw(self, id_: TaskId, op: object, cause: Cause, owner_stands: Standing) -> SlotDecision:
        """Decide about a removal or cancellation by id; `owner_stands` says how the owner's run is placed."""
        effects: list[Effect] = []
        decision = SlotDecision(self, effects)
        waiting = self.line.get(id_)
        if waiting is not None:
            decision.line = LineChange(Line.take, waiting)
            effects.append(_RETURN_UNIT)
            effects.append(_remove_requested(waiting, cause))
            _reject(effects, waiting, RejectionKind.REMOVED_FROM_QUEUE, "removed while it waited")
            effects.append(AnswerWithdrawal(id_, op, claimed=True))
        elif self.owner is None or self.owner.id != id_ or owner_stands is Standing.OVER:
            effects.append(AnswerWithdrawal(id_, op, claimed=False))
        elif self.phase is _ADMITTING or self.phase is _PENDING:
            decision.kept = (*self.kept, Withdrawal(op, cause))
        else:
            free = owner_stands is Standing.FREE
            effects.append(_remove_requested(self.owner, cause))
            if free:
                effects.append(ClaimRun(cause))
            effects.append(AnswerWithdrawal(id_, op, claimed=free))
        return decision

    # -- the owner ends ------------------------------------------------------------------------------------------

    def finished(self, *, lingering: bool) -> SlotDecision:
        """The owner has its outcome. While its body lingers the slot stays taken, and says so."""
        if self.phase is not _RUNNING and self.phase is not _TERMINATING:
            return SlotDecision(self, [])  # an owner that is not registered yet has nothing to end
        if not lingering:
            return self._free([])
        effects: list[Effect] = []
        decision = SlotDecision(self, effects)
        if self.phase is _RUNNING:
            decision.phase = _TERMINATING
            effects.append(Edge(_RUNNING, _TERMINATING, reason="body still inside"))
        return decision

    def released(self) -> SlotDecision:
        """The body of an owner that lingered has left."""
        return self._free([]) if self.phase is _TERMINATING else SlotDecision(self, [])

    # -- shutdown ------------------------------------------------------------------------------------------------

    def drain(self, deadline: float) -> SlotDecision:
        """Shutdown: turn away whoever waits, front to back, and have the owner stopped by `deadline`."""
        effects: list[Effect] = []
        decision = SlotDecision(self, effects)
        if self.draining:
            return decision
        decision.draining = True
        for entry in self.line:
            effects.append(_RETURN_UNIT)
            _reject(effects, entry, RejectionKind.SHUTTING_DOWN, "shutdown has begun")
        if (head := self.line.head) is not None:
            decision.line = LineChange(Line.clear, head)
        if self.phase is _IDLE:
            decision.phase = _CLOSED
            effects.append(Edge(_IDLE, _CLOSED))
        elif self.phase is _RUNNING or self.phase is _TERMINATING:
            effects.append(DrainRun(deadline))
        return decision

    # -- parts ---------------------------------------------------------------------------------------------------

    def _expected_owner(self, id_: TaskId) -> Entry | None:
        """Return the owner if the registry's decision about `id_` is the one that is waited for."""
        waited_for = self.phase is _ADMITTING or self.phase is _PENDING
        return self.owner if waited_for and self.owner is not None and self.owner.id == id_ else None

    def _admit(self, decision: SlotDecision, entry: Entry, phase: Phase, fields: dict[str, object]) -> None:
        decision.phase = _ADMITTING
        decision.owner = entry
        decision.effects += (
            _EDGES[phase, _ADMITTING],
            Emit(_ADD_REQUESTED, entry, None, NO_FIELDS),
            Emit(_ACCEPTED, entry, None, fields),
            Register(entry),
        )

    def _free(self, effects: list[Effect]) -> SlotDecision:
        """Nobody owns the slot any more: start whoever is next, or rest."""
        decision = SlotDecision(self, effects)
        decision.owner = None
        decision.kept = ()
        if self.draining:
            decision.phase = _CLOSED
            effects.append(_EDGES[self.phase, _CLOSED])
            return decision
        decision.phase = _IDLE
        effects.append(_EDGES[self.phase, _IDLE])
        head = self.line.head
        if head is not None:
            decision.line = LineChange(Line.take, head)
            effects.append(_RETURN_UNIT)
            fields: dict[str, object] = {"status": "started_from_queue", "depth": len(self.line) - 1}
            self._admit(decision, head, _IDLE, fields)
        return decision

    def turn_away(self, entry: Entry, kind: RejectionKind, reason: str) -> SlotDecision:
        """Reject a submission and change nothing."""
        effects: list[Effect] = []
        _reject(effects, entry, kind, reason)
        return SlotDecision(self, effects)


def _reject(
    effects: list[Effect], entry: Entry, kind: RejectionKind, reason: str, cause_id: TaskId | None = None
) -> None:
    fields: dict[str, object] = {"rejection_kind": kind, "reason": reason}
    if cause_id is not None:
        fields["cause_id"] = int(cause_id)
    effects.append(Emit(EventKind.SUBMISSION_REJECTED, entry, None, fields))
    effects.append(Reject(entry, kind, reason, cause_id))


def _remove_requested(entry: Entry, cause: Cause) -> Emit:
    fields = {"reason": cause} if cause is Cause.CANCEL else {}
    return Emit(EventKind.TASK_REMOVE_REQUESTED, entry, None, fields)


# -- one rule per policy: what a submission does that finds its slot busy ------------------------------------------


@dataclass(frozen=True, slots=True)
class _BusyRule:
    needs_unit: Callable[[SlotMachine], bool]
    decide: Callable[[SlotMachine, Entry, bool], SlotDecision]


def _queue(slot: SlotMachine, entry: Entry, unit: bool) -> SlotDecision:  # noqa: FBT001
    depth = len(slot.line)
    if slot.queue_is_full:
        return slot.turn_away(entry, RejectionKind.QUEUE_FULL, f"{depth} of {slot.max_queue} places taken")
    if not unit:
        return slot.turn_away(entry, RejectionKind.RESOURCE_LIMIT, "max_total_pending is reached")
    fields: dict[str, object] = {"policy": entry.policy, "depth": depth + 1}
    decision = SlotDecision(slot, [Emit(_ACCEPTED, entry, None, fields)])
    decision.line = LineChange(Line.append, entry)
    return decision


def _replace(slot: SlotMachine, entry: Entry, unit: bool) -> SlotDecision:  # noqa: FBT001
    displaced, owner = slot.line.head, slot.owner
    if displaced is None and not unit:
        return slot.turn_away(entry, RejectionKind.RESOURCE_LIMIT, "max_total_pending is reached")
    effects: list[Effect] = []
    decision = SlotDecision(slot, effects)
    if displaced is not None:
        reason = f"superseded by {entry.id}"
        _reject(effects, displaced, RejectionKind.SUPERSEDED_BY_REPLACE, reason, entry.id)
    decision.line = LineChange(Line.push_head if displaced is None else Line.swap_head, entry)
    fields: dict[str, object] = {"policy": entry.policy, "depth": len(slot.line) + (displaced is None)}
    if slot.phase is _ADMITTING:  # the registry has not decided yet: the removal waits for its answer
        decision.phase = _PENDING
    elif slot.phase is _RUNNING and owner is not None:
        decision.phase = _TERMINATING
    if decision.phase is not slot.phase:
        effects.append(Edge(slot.phase, decision.phase, announced=True, reason="replace"))
    if slot.phase is _RUNNING and owner is not None:
        effects.append(_remove_requested(owner, Cause.REPLACE))
        effects.append(ClaimRun(Cause.REPLACE))
    else:
        fields["status"] = PUBLIC_STATUS[slot.phase]
    effects.append(Emit(EventKind.SUBMISSION_ACCEPTED, entry, None, fields))
    return decision


def _drop_if_running(slot: SlotMachine, entry: Entry, unit: bool) -> SlotDecision:  # noqa: ARG001, FBT001
    return slot.turn_away(entry, RejectionKind.SLOT_BUSY, f"the slot is {PUBLIC_STATUS[slot.phase]}")


_WHEN_BUSY: Final[dict[AdmissionPolicy, _BusyRule]] = {
    AdmissionPolicy.QUEUE: _BusyRule(lambda slot: not slot.queue_is_full, _queue),
    AdmissionPolicy.REPLACE: _BusyRule(lambda slot: not slot.line, _replace),
    AdmissionPolicy.DROP_IF_RUNNING: _BusyRule(lambda _slot: False, _drop_if_running),
}
