"""slotkeeper's log, written as lines of JSON and read back: is it complete, who was inside when, how did each end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TextIO

import structlog

from admission import EventKind, OutcomeKind
from docs.examples.demo import jsonlines
from docs.examples.demo.ledger import Stay
from docs.examples.demo.outcomes import Ending

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Log", "json_logger", "read"]

_ENDS: Final = {EventKind.TASK_FINISHED, EventKind.SUBMISSION_REJECTED, EventKind.TASK_ADD_FAILED}
_FAULTS: Final = {EventKind.RUNTIME_FAILURE, EventKind.GRACE_EXCEEDED}


def json_logger(file: TextIO) -> Any:
    """Return a logger of its own that writes every record, from debug on, as a line of JSON."""
    return structlog.wrap_logger(
        structlog.WriteLogger(file),
        processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger("debug"),
    ).bind()


@dataclass(slots=True)
class Log:
    """What a log says. `stays` and `ends` are by the id of the submission."""

    records: int = 0
    stays: dict[int, Stay] = field(default_factory=dict)
    ends: dict[int, list[Ending]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def read(path: Path) -> Log:
    """Read a log; whatever is wrong with it is among its faults."""
    log = Log()
    numbers = _Numbers()
    bodies = _Bodies()
    try:
        for line, record in jsonlines.read(path):
            log.records += 1
            try:
                event = record["event"]
                log.faults += numbers.see(record)
                if event in (EventKind.BODY_ENTERED, EventKind.BODY_LEFT):
                    log.faults += bodies.see(record)
                elif event in _ENDS:
                    end = _end(record)
                    log.ends.setdefault(end.id, []).append(end)
                elif event in _FAULTS:
                    log.faults.append(f"log: {event} at seq {record['seq']}")
            except (KeyError, TypeError, ValueError) as error:
                log.faults.append(f"{path}, line {line}: a record without what it needs: {error!r}")
    except jsonlines.BadLineError as error:
        log.faults.append(str(error))
    except OSError as error:
        log.faults.append(f"{path} can not be read: {error.strerror}")
    log.stays = bodies.stays()
    log.faults += [*numbers.end(), *bodies.end()]
    return log


class _Numbers:
    """Every number from 1 on, in order, up to the record that says that nothing comes after it."""

    def __init__(self) -> None:
        self._supervisor: str | None = None
        self._seq = 0
        self._last: dict[str, Any] = {"event": "nothing"}

    def see(self, record: dict[str, Any]) -> list[str]:
        seq, supervisor = record["seq"], record["supervisor"]
        faults: list[str] = []
        if seq <= self._seq:
            faults.append(f"log: seq {seq} comes after {self._seq}")
        elif seq > self._seq + 1:
            last = f" to {seq - 1}" if seq > self._seq + 2 else ""
            faults.append(f"log: a gap, seq {self._seq + 1}{last} is missing")
        if self._supervisor not in (None, supervisor):
            faults.append(f"log: seq {seq} is of another supervisor, {supervisor}")
        self._seq = max(self._seq, seq)
        self._supervisor = supervisor
        self._last = record
        return faults

    def end(self) -> list[str]:
        event = self._last["event"]
        if event != EventKind.SHUTDOWN_FINISHED:
            return [f"log: it ends with {event}, not with {EventKind.SHUTDOWN_FINISHED}"]
        if (inside := self._last.get("still_inside")) != []:
            return [f"log: bodies were still inside when it ended: {inside}"]
        return []


class _Bodies:
    """Who entered and who left; the instants are those that the bodies' own threads took."""

    def __init__(self) -> None:
        self._entered: dict[int, tuple[dict[str, Any], float]] = {}
        self._left: dict[int, tuple[dict[str, Any], float]] = {}

    def see(self, record: dict[str, Any]) -> list[str]:
        enters = record["event"] == EventKind.BODY_ENTERED
        seen, name = (self._entered, "entered_at") if enters else (self._left, "left_at")
        faults = [f"log: {record['task']} has {record['event']} twice"] if record["id"] in seen else []
        seen[record["id"]] = record, float(record[name])
        return faults

    def stays(self) -> dict[int, Stay]:
        stays: dict[int, Stay] = {}
        for id_, (record, instant) in self._entered.items():
            if id_ in self._left:
                rev = str(record["task"]).rpartition("@")[2]
                stays[id_] = Stay(record["slot"], rev, instant, self._left[id_][1])
        return stays

    def end(self) -> list[str]:
        faults: list[str] = []
        for one, other, seen, missing in (
            (self._entered, self._left, EventKind.BODY_ENTERED, EventKind.BODY_LEFT),
            (self._left, self._entered, EventKind.BODY_LEFT, EventKind.BODY_ENTERED),
        ):
            faults += [f"log: {one[id_][0]['task']} has {seen} and no {missing}" for id_ in one.keys() - other.keys()]
        return faults


def _end(record: dict[str, Any]) -> Ending:
    rejection = record.get("rejection_kind")
    outcome = OutcomeKind.REJECTED.value if rejection is not None else str(record["outcome_kind"])
    return Ending(record["id"], record["task"], record["slot"], outcome, rejection)
