"""Judges a run by what it has left: the index files, the bodies' ledger, slotkeeper's log and the handles' outcomes.

Each is held against the others. What is missing is never taken for good: a log with a gap proves nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from admission import OutcomeKind, RejectionKind
from docs.examples.demo import index, jsonlines, ledger, log, outcomes
from docs.examples.demo.history import newest
from docs.examples.demo.ledger import overlaps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from docs.examples.demo.history import Change
    from docs.examples.demo.layout import Layout
    from docs.examples.demo.ledger import Stay
    from docs.examples.demo.log import Log
    from docs.examples.demo.outcomes import Ending

__all__ = ["LEAST", "NO_LEAST", "Least", "Verdict", "verify"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Least:
    """How many changes must have been superseded and cancelled midway for a run to show anything."""

    superseded: int
    cancelled_midway: int


LEAST: Final = Least(superseded=50, cancelled_midway=10)
"""For the history that the demo comes with."""
NO_LEAST: Final = Least(superseded=0, cancelled_midway=0)
"""For any other."""


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
        """Return it as text, with a line per violation."""
        figures = {
            "newest revision in the index": f"{self.up_to_date} of {self.slots} slots, {self.documents} documents",
            "completed": f"{self.completed} of {self.submissions}",
            "superseded": f"{self.superseded}",
            "cancelled midway": f"{self.cancelled_midway}, and before they began {self.cancelled_before}",
            **({"ended otherwise": f"{self.otherwise}"} if self.otherwise else {}),
            "bodies inside": f"{self.log_stays} by the log, {self.ledger_stays} by the ledger",
            "log": f"{self.log_records} records",
            "overlaps": f"{self.overlaps}",
        }
        width = max(map(len, figures))
        count = len(self.violations)
        return [
            *(f"{name:>{width}}: {value}" for name, value in figures.items()),
            *(f"violation: {violation}" for violation in self.violations),
            "everything holds" if not count else "1 violation" if count == 1 else f"{count} violations",
        ]


def verify(changes: tuple[Change, ...], layout: Layout, least: Least = NO_LEAST) -> Verdict:
    """Judge the run of this history that left its files here."""
    verdict = Verdict(slots=len(newest(changes)))
    said = verdict.violations
    endings = _read(outcomes.read, layout.outcomes, said)
    entries = _read(ledger.read, layout.ledger, said)
    logged = log.read(layout.log)

    said += logged.faults
    if endings is not None:
        said += _wrong_endings(changes, endings)
        said += _wrong_log(logged, endings)
        _count(endings, logged, verdict)
    if entries is not None:
        said += _wrong_ledger(entries, logged.stays)
        verdict.ledger_stays = len(entries)
    said += [f"ledger: a body has not left slot {mark.name}" for mark in layout.marks()]
    for book, stays in (("log", logged.stays.values()), ("ledger", entries or [])):
        found = overlaps(stays)
        verdict.overlaps += len(found)
        said += [
            f"{book}: {two.slot}@{two.rev} entered {one.left - two.entered:.6f} s before {one.rev} had left"
            for one, two in found
        ]
    _look_into_indexes(changes, layout, verdict)
    verdict.log_records, verdict.log_stays = logged.records, len(logged.stays)
    if verdict.superseded < least.superseded:
        said.append(f"only {verdict.superseded} were superseded; below {least.superseded} this shows nothing")
    if verdict.cancelled_midway < least.cancelled_midway:
        said.append(
            f"only {verdict.cancelled_midway} cancelled midway; below {least.cancelled_midway} this shows nothing"
        )
    return verdict


def _read(reader: Callable[[Path], list[T]], path: Path, said: list[str]) -> list[T] | None:
    try:
        return reader(path)
    except jsonlines.BadLineError as error:
        said.append(str(error))
    except OSError as error:
        said.append(f"{path} can not be read: {error.strerror}")
    return None  # which is said, and no pass; nothing is held against it


def _wrong_endings(changes: tuple[Change, ...], endings: Sequence[Ending]) -> list[str]:
    """Every change was submitted once and has an outcome; the newest of a slot completed; nothing failed."""
    wanted = [change.task for change in changes]
    got = Counter(each.task for each in endings)
    last = {f"{slot}@{rev}" for slot, rev in newest(changes).items()}
    found = [f"{task} was submitted {got[task]} times, not once" for task in wanted if got[task] != 1]
    found += [f"{task} is not in the history" for task in got.keys() - set(wanted)]
    found += [
        f"{id_} is the id of {times} submissions" for id_, times in Counter(e.id for e in endings).items() if times > 1
    ]
    for each in endings:
        if each.outcome is None:
            found.append(f"{each.task} has no outcome")
        elif each.label not in (OutcomeKind.COMPLETED, OutcomeKind.CANCELLED, RejectionKind.SUPERSEDED_BY_REPLACE):
            found.append(f"{each.task} ended as {each.label}")
        elif each.task in last and each.outcome != OutcomeKind.COMPLETED:
            found.append(f"{each.task} is its slot's newest and ended as {each.label}")
    return found


def _wrong_log(logged: Log, endings: Sequence[Ending]) -> list[str]:
    """Every submission has one end in the log, the same as by its handle, and a body inside where that says so."""
    found: list[str] = []
    for each in endings:
        ends = logged.ends.get(each.id, [])
        if len(ends) != 1:
            found.append(f"log: {each.task} has {len(ends)} ends, not one")
        elif ends[0] != each:
            end = ends[0]
            found.append(
                f"log: {end.task} in {end.slot} ended as {end.label}, by its handle {each.task} as {each.label}"
            )
        stay = logged.stays.get(each.id)
        if stay is None and each.outcome == OutcomeKind.COMPLETED:
            found.append(f"log: {each.task} completed and its body was never inside")
        if stay is not None and each.outcome == OutcomeKind.REJECTED:
            found.append(f"log: {each.task} was rejected and its body was inside")
        if stay is not None and (stay.slot, f"{stay.slot}@{stay.rev}") != (each.slot, each.task):
            found.append(f"log: the body of {each.task} was inside as {stay.slot}@{stay.rev}")
        if stay is not None and stay.left < stay.entered:
            found.append(f"log: {each.task} left before it entered")
    submitted = {each.id for each in endings}
    found += [f"log: submission {id_} ended and was never made" for id_ in logged.ends.keys() - submitted]
    found += [f"log: submission {id_} was inside and was never made" for id_ in logged.stays.keys() - submitted]
    return found


def _wrong_ledger(entries: Sequence[Stay], stays: dict[int, Stay]) -> list[str]:
    """Every stay in the ledger lies within the one that the log has of the same body, and the other way round."""
    found: list[str] = []
    logged = {(stay.slot, stay.rev): stay for stay in stays.values()}
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


def _count(endings: Sequence[Ending], logged: Log, verdict: Verdict) -> None:
    verdict.submissions = len(endings)
    for each in endings:
        match each.label:
            case OutcomeKind.COMPLETED:
                verdict.completed += 1
            case RejectionKind.SUPERSEDED_BY_REPLACE:
                verdict.superseded += 1
            case OutcomeKind.CANCELLED if each.id in logged.stays:
                verdict.cancelled_midway += 1
            case OutcomeKind.CANCELLED:
                verdict.cancelled_before += 1
            case _:
                verdict.otherwise += 1
