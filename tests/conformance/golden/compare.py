"""Compares a recording with a replay: every difference, each by itself.

Compared are outcomes, what every command returned, snapshots, what bodies did, and the events of each causal chain.
What the recording says to be unstable is not; of one whose timing is unstable only the outcomes are. The order of what
bodies did is strict within a slot, and between slots as far as the recording's groups say.

Times are compared wherever there is one: of outcomes, of commands that were waited for, and of what bodies did. The
recorded ones are medians of true milliseconds, rounded to ten, in which every pause is a little too long, so a replay
may be earlier or later by `near`. Where the recording has a range, because a pause is random, it is that of ten runs:
the replay has to be inside a range three times as wide, and what that run's body did is not timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.golden.recording import Account, Ended, Mark, Recording

__all__ = ["Difference", "differences", "near"]

_MILLISECONDS = 10.0
_SHARE = 0.02


@dataclass(frozen=True)
class Difference:
    """What the recording says and the replay does not, or the other way round.

    `part` is outcome, op, snapshot, mark, order, event or time; `subject` what it is about.
    """

    part: str
    subject: Any
    recorded: Any
    observed: Any

    def __str__(self) -> str:
        return f"{self.part} {_text(self.subject)}: recorded {_text(self.recorded)}; here {_text(self.observed)}"


def near(recorded: float, observed: float) -> bool:
    """Tell whether two instants (milliseconds since the start) may be the same."""
    return abs(recorded - observed) <= _MILLISECONDS + _SHARE * recorded


def differences(recording: Recording, replay: Account) -> list[Difference]:
    """Return every difference."""
    found = list(_of_outcomes(recording, replay))
    if recording.timed:
        found += _of_ops(recording, replay)
        found += _of_snapshots(recording, replay)
        found += _of_marks(recording, replay)
        found += _of_streams(recording, replay)
    return found


def _of_outcomes(recording: Recording, replay: Account) -> Iterator[Difference]:
    for label in _both(recording.outcomes, replay.outcomes):
        recorded, observed = recording.outcomes.get(label), replay.outcomes.get(label)
        if recorded != observed:
            yield Difference("outcome", label, recorded, observed)
        elif recorded is not None and observed is not None and recording.timed and not _in_time(recorded, observed):
            yield Difference("time", ("outcome", label), recorded.within or recorded.ms, observed.ms)


def _in_time(recorded: Ended, observed: Ended) -> bool:
    if observed.ms is None:
        return recorded.ms is None and recorded.within is None
    if recorded.within is not None:
        first, last = recorded.within
        return first - (last - first) <= observed.ms <= last + (last - first)
    return recorded.ms is None or near(recorded.ms, observed.ms)


def _of_ops(recording: Recording, replay: Account) -> Iterator[Difference]:
    first, second = recording.numbered_ops(), replay.numbered_ops()
    for key in _both(first, second):
        recorded, observed = first.get(key), second.get(key)
        if recorded != observed:
            yield Difference("op", key, recorded, observed)
        elif recorded is not None and observed is not None and not _same_instant(recorded.ms, observed.ms):
            yield Difference("time", ("op", *key), recorded.ms, observed.ms)


def _of_snapshots(recording: Recording, replay: Account) -> Iterator[Difference]:
    for number, (recorded, observed) in enumerate(zip_longest(recording.snapshots, replay.snapshots), start=1):
        if recorded != observed:
            yield Difference("snapshot", number, recorded, observed)


def _of_marks(recording: Recording, replay: Account) -> Iterator[Difference]:
    recorded, observed = (
        [mark for mark in account.marks if mark.label not in recording.unstable_marks]
        for account in (recording, replay)
    )
    known, seen = ({mark.key: mark for mark in marks} for marks in (recorded, observed))
    for key in _both(known, seen):
        if known.get(key) != seen.get(key):
            yield Difference("mark", key, known.get(key), seen.get(key))
    for slot in dict.fromkeys(mark.slot for mark in recorded if mark.slot is not None):
        first, second = (
            [mark for mark in marks if mark.slot == slot and mark.key in known.keys() & seen.keys()]
            for marks in (recorded, observed)
        )
        if [mark.key for mark in first] != [mark.key for mark in second]:
            yield Difference("order", slot, first, second)
    yield from _of_groups([(known[mark.key], mark) for mark in observed if mark.key in known])
    for key in known.keys() & seen.keys():
        ended = recording.outcomes.get(key[0])
        if (ended is None or ended.within is None) and not _same_instant(known[key].ms, seen[key].ms):
            yield Difference("time", ("mark", *key), known[key].ms, seen[key].ms)


def _of_groups(pairs: list[tuple[Mark, Mark]]) -> Iterator[Difference]:
    """Compare the order between slots: pairs of a recorded mark and ours, as they came here."""
    reached: Mark | None = None
    for recorded, observed in pairs:
        if reached is not None and recorded.group < reached.group:
            yield Difference("order", (reached, observed), "the other way round", "in this order")
        if reached is None or recorded.group > reached.group:
            reached = recorded


def _same_instant(recorded: float | None, observed: float | None) -> bool:
    return recorded is None or observed is None or near(recorded, observed)


def _of_streams(recording: Recording, replay: Account) -> Iterator[Difference]:
    for chain in _both(recording.streams, replay.streams):
        recorded, observed = recording.streams.get(chain, []), replay.streams.get(chain, [])
        if recorded != observed and chain not in recording.unstable_streams:
            yield Difference("event", chain, recorded, observed)


def _both(first: dict[Any, Any], second: dict[Any, Any]) -> list[Any]:
    return list(dict.fromkeys((*first, *second)))


def _text(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case float() | int() if not isinstance(value, bool):
            return f"{value:g}"
        case [[*_], *_] | [tuple(), *_]:
            return "[" + ", ".join(_event(event) for event in value) + "]"
        case list():
            return "[" + ", ".join(map(str, value)) + "]"
        case tuple():
            return " ".join(str(part) for part in value if part is not None)
        case _:
            return str(value)


def _event(event: Any) -> str:
    kind, *fields = event
    return kind + "".join(f" {value[1] if isinstance(value, tuple) else value}" for value in fields)
