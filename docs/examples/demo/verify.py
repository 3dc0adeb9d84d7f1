"""Judges a run by what it has left: the index files, the bodies' ledger, slotkeeper's log and the handles' outcomes.

Each is held against the others. What is missing is never taken for good: a log with a gap proves nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from admission import EventKind, OutcomeKind, RejectionKind
from docs.examples.demo import index, jsonlines, ledger
from docs.examples.demo.history import newest
from docs.examples.demo.ledger import Stay, overlaps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from docs.examples.demo.history import Change
    from docs.examples.demo.layout import Layout

__all__ = ["NO_LEAST", "Least", "Verdict", "verify"]

Record = dict[str, Any]
_ENDS: Final = {EventKind.TASK_FINISHED, EventKind.SUBMISSION_REJECTED, EventKind.TASK_ADD_FAILED}


@dataclass(frozen=True, slots=True)
class Least:
    """How often a waiting change must have been superseded, and a body cancelled midway, for the run to show anything."""

    superseded: int
    cancelled: int


NO_LEAST: Final = Least(0, 0)


@dataclass(slots=True)
class Verdict:
    """What a run came to. It has passed if there is no violation."""

    slots: int
    up_to_date: int = 0
    documents: int = 0
    submissions: int = 0
    completed: int = 0
    superseded: int = 0
    cancelled_midway: int = 0
    cancelled_before: int = 0
    otherwise: int = 0
    log_records: int = 0
    log_stays: int = 0
    ledger_stays: int = 0
    overlaps: int = 0
    violations: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return it as text, one line per violation."""
        return [
            f"indexes up to date   {self.up_to_date} of {self.slots} carry their slot's newest revision",
            f"completed            {self.completed} of {self.submissions}",
            f"superseded           {self.superseded} before they ran",
            f"cancelled midway     {self.cancelled_midway}, and {self.cancelled_before} before they ran",
            *([f"ended otherwise      {self.otherwise}"] if self.otherwise else []),
            f"log                  {self.log_records} records, {self.log_stays} stays inside a slot",
            f"ledger               {self.ledger_stays} stays inside a slot",
            f"overlaps: {self.overlaps}",
            *(f"violation: {violation}" for violation in self.violations),
            "everything holds" if not self.violations else f"{len(self.violations)} violations",
        ]


def verify(changes: tuple[Change, ...], layout: Layout, least: Least = NO_LEAST) -> Verdict:
    """Judge the run of this history that left its files here."""
    verdict = Verdict(slots=len(newest(changes)))
    said = verdict.violations
    records = _read(layout.log, lambda path: [fields for _, fields in jsonlines.read(path)], said)
    entries = _read(layout.ledger, ledger.read, said)
    outcomes = _read(layout.outcomes, lambda path: [fields for _, fields in jsonlines.read(path)], said)

    said += _incomplete_log(records)
    said += _faults(records)
    stays, unpaired = _stays(records)
    said += unpaired
    said += _wrong_submissions(changes, outcomes)
    said += _wrong_ends(records, outcomes, stays)
    said += _wrong_entries(entries, stays, outcomes)
    said += [f"{mark.name}: a body has not left the slot, by its own account" for mark in layout.marks()]

    for book, found in (("log", overlaps(stays.values())), ("ledger", overlaps(entries))):
        verdict.overlaps += len(found)
        said += [
            f"{book}: {one.slot}@{two.rev} entered {one.left - two.entered:.6f} s before {one.slot}@{one.rev} had left"
            for one, two in found
        ]
    _look_into_indexes(changes, layout, verdict)
    _count(verdict, outcomes, stays)
    verdict.log_records, verdict.log_stays, verdict.ledger_stays = len(records), len(stays), len(entries)
    for what, found_, wanted in (
        ("superseded", verdict.superseded, least.superseded),
        ("cancelled midway", verdict.cancelled_midway, least.cancelled),
    ):
        if found_ < wanted:
            said.append(f"only {found_} were {what}, at least {wanted} are needed to show anything")
    return verdict


def _read(path: Path, reader: Callable[[Path], list[Any]], said: list[str]) -> list[Any]:
    try:
        return reader(path)
    except jsonlines.BadLineError as error:
        said.append(str(error))
    except OSError as error:
        said.append(f"{path} can not be read: {error.strerror}")
    return []


# -- the log by itself ---------------------------------------------------------------------------------------------------


def _incomplete_log(records: Sequence[Record]) -> list[str]:
    """Every number from 1 on, in order, up to the record that says that nothing comes after it."""
    found: list[str] = []
    expected = 1
    for record in records:
        seq = record.get("seq")
        if not isinstance(seq, int):
            found.append(f"log: a record without a number after {expected - 1}: {record}")
            continue
        if seq > expected:
            missing = f"{expected}" if seq == expected + 1 else f"{expected} to {seq - 1}"
            found.append(f"log: gap, seq {missing} is missing")
        elif seq < expected:
            found.append(f"log: seq {seq} comes after {expected - 1}")
        expected = max(expected, seq + 1)
    last = records[-1] if records else {"event": "nothing"}
    if last.get("event") != EventKind.SHUTDOWN_FINISHED:
        found.append(f"log: it ends with {last.get('event')}, not with {EventKind.SHUTDOWN_FINISHED}")
    elif last.get("still_inside") != []:
        found.append(f"log: bodies still inside when it ended: {last.get('still_inside')}")
    if len({record.get("supervisor") for record in records}) > 1:
        found.append("log: there are records of more than one supervisor")
    return found


def _faults(records: Sequence[Record]) -> list[str]:
    bad = (EventKind.RUNTIME_FAILURE, EventKind.GRACE_EXCEEDED)
    return [f"log: {record['event']} at seq {record.get('seq')}" for record in records if record.get("event") in bad]


def _stays(records: Sequence[Record]) -> tuple[dict[int, Stay], list[str]]:
    """Return every stay of a body by its submission's id, and what does not pair up."""
    entered: dict[int, Record] = {}
    left: dict[int, Record] = {}
    found: list[str] = []
    for record in records:
        for kind, seen in ((EventKind.BODY_ENTERED, entered), (EventKind.BODY_LEFT, left)):
            if record.get("event") == kind:
                if record["id"] in seen:
                    found.append(f"log: {_who(record)} has {kind} twice")
                seen[record["id"]] = record
    found += [
        f"log: {_who(record)} has body_entered and no body_left" for id_, record in entered.items() if id_ not in left
    ]
    found += [
        f"log: {_who(record)} has body_left and no body_entered" for id_, record in left.items() if id_ not in entered
    ]
    stays: dict[int, Stay] = {}
    for id_ in entered.keys() & left.keys():
        one, two = entered[id_], left[id_]
        stays[id_] = Stay(one["slot"], _revision(one), one["entered_at"], two["left_at"])
        if two["left_at"] < one["entered_at"]:
            found.append(f"log: {_who(one)} left before it entered")
    return stays, found


# -- each against the others -----------------------------------------------------------------------------------------------


def _wrong_submissions(changes: tuple[Change, ...], outcomes: Sequence[Record]) -> list[str]:
    """Every change of the history was submitted once, and its handle has an outcome."""
    found: list[str] = []
    wanted = [(change.slot, change.rev) for change in changes]
    got = Counter((outcome["slot"], outcome["rev"]) for outcome in outcomes)
    found += [f"{slot}@{rev} was submitted {got[slot, rev]} times" for slot, rev in wanted if got[slot, rev] != 1]
    found += [f"{slot}@{rev} is not in the history" for slot, rev in got.keys() - set(wanted)]
    found += [f"{each['slot']}@{each['rev']} has no outcome" for each in outcomes if each["outcome"] is None]
    last = newest(changes)
    found += [
        f"{each['slot']}@{each['rev']} is its slot's newest and ended as {_label(each)}"
        for each in outcomes
        if last.get(each["slot"]) == each["rev"] and each["outcome"] != OutcomeKind.COMPLETED
    ]
    return found


def _wrong_ends(records: Sequence[Record], outcomes: Sequence[Record], stays: dict[int, Stay]) -> list[str]:
    """Every submission has exactly one end in the log, and its handle says the same."""
    found: list[str] = []
    ends: dict[int, list[Record]] = {}
    for record in records:
        if record.get("event") in _ENDS:
            ends.setdefault(record["id"], []).append(record)
    for outcome in outcomes:
        who = f"{outcome['slot']}@{outcome['rev']}"
        mine = ends.pop(outcome["id"], [])
        if len(mine) != 1:
            found.append(f"log: {who} has {len(mine)} ends, not one")
            continue
        (end,) = mine
        if _who(end) != who:
            found.append(f"log: submission {outcome['id']} is {_who(end)}, by its handle {who}")
        logged = end.get("outcome_kind", OutcomeKind.REJECTED), end.get("rejection_kind")
        if logged != (outcome["outcome"], outcome["rejection"]):
            found.append(f"log: {who} ended as {logged[1] or logged[0]}, by its handle as {_label(outcome)}")
        if outcome["outcome"] == OutcomeKind.COMPLETED and outcome["id"] not in stays:
            found.append(f"log: {who} completed and its body was never inside")
        if outcome["outcome"] == OutcomeKind.REJECTED and outcome["id"] in stays:
            found.append(f"log: {who} was rejected and its body was inside")
        if outcome["rejection"] not in (None, RejectionKind.SUPERSEDED_BY_REPLACE):
            found.append(f"{who} was rejected as {outcome['rejection']}")
    found += [f"log: submission {id_} ended and was never submitted" for id_ in ends]
    return found


def _wrong_entries(entries: Sequence[Stay], stays: dict[int, Stay], outcomes: Sequence[Record]) -> list[str]:
    """Every stay in the ledger lies within the stay that the log has for the same body, and the other way round."""
    found: list[str] = []
    logged = {(outcome["slot"], outcome["rev"]): stays[outcome["id"]] for outcome in outcomes if outcome["id"] in stays}
    written = Counter((entry.slot, entry.rev) for entry in entries)
    for entry in entries:
        stay = logged.get((entry.slot, entry.rev))
        if stay is None:
            found.append(f"ledger: {entry.slot}@{entry.rev} was inside, which the log does not say")
        elif not stay.entered <= entry.entered <= entry.left <= stay.left:
            found.append(f"ledger: {entry.slot}@{entry.rev} was inside at other times than the log says")
    found += [f"ledger: {slot}@{rev} was inside {times} times" for (slot, rev), times in written.items() if times > 1]
    found += [f"ledger: {slot}@{rev} was inside and is missing" for slot, rev in logged.keys() - written.keys()]
    return found


def _look_into_indexes(changes: tuple[Change, ...], layout: Layout, verdict: Verdict) -> None:
    for slot, rev in newest(changes).items():
        try:
            stamp = index.stamp(layout.index(slot))
        except ValueError as error:
            verdict.violations.append(f"{slot}: its index {error}")
            continue
        if stamp is None:
            verdict.violations.append(f"{slot}: there is no index")
        elif stamp.rev != rev:
            verdict.violations.append(f"{slot}: its index carries {stamp.rev}, not its newest revision {rev}")
        elif not stamp.found or stamp.found != stamp.stamped:
            verdict.violations.append(f"{slot}: its index has {stamp.found} documents, {stamp.stamped} by its stamp")
        else:
            verdict.up_to_date += 1
            verdict.documents += stamp.found


def _count(verdict: Verdict, outcomes: Sequence[Record], stays: dict[int, Stay]) -> None:
    verdict.submissions = len(outcomes)
    for outcome in outcomes:
        match outcome["outcome"]:
            case OutcomeKind.COMPLETED:
                verdict.completed += 1
            case OutcomeKind.REJECTED if outcome["rejection"] == RejectionKind.SUPERSEDED_BY_REPLACE:
                verdict.superseded += 1
            case OutcomeKind.CANCELLED if outcome["id"] in stays:
                verdict.cancelled_midway += 1
            case OutcomeKind.CANCELLED:
                verdict.cancelled_before += 1
            case _:
                verdict.otherwise += 1


def _who(record: Record) -> str:
    return str(record.get("task"))


def _revision(record: Record) -> str:
    return _who(record).rpartition("@")[2]


def _label(outcome: Record) -> str:
    return str(outcome["rejection"] or outcome["outcome"])
