"""What happened in a scenario, as one kind of account: read from a recording, or told of a replay.

The words are ours; the recordings' own are translated while they are read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.conformance.golden.rules import in_our_words

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Account", "Ended", "Mark", "Op", "Recording", "Step", "made_of", "name_of", "read", "step"]

_OF_THE_STAGE = ("configure", "sleep", "wait_all")
"""Commands that ask the supervisor for nothing, and so return nothing."""
_FIELDS_OF_STEP = ("label", "attempt", "outcome", "rejection", "backoff")


@dataclass(frozen=True)
class Ended:
    """How a submission ended, and when: at `ms`, or somewhere `within`."""

    kind: str
    rejection: str | None = None
    exit_code: int | None = None
    ms: float | None = field(default=None, compare=False)
    within: tuple[float, float] | None = field(default=None, compare=False)

    def __str__(self) -> str:
        more = [str(part) for part in (self.rejection, self.exit_code) if part is not None]
        return f"{self.kind} ({', '.join(more)})" if more else self.kind


@dataclass(frozen=True)
class Op:
    """What a command returned."""

    op: str
    label: str | None
    result: Any
    stuck: tuple[str, ...] = ()
    ms: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.result}{f' stuck: {list(self.stuck)}' if self.stuck else ''}"


@dataclass(frozen=True)
class Mark:
    """Something that a body did. In a recording, marks of one group may come in any order."""

    label: str
    attempt: int
    what: str
    result: str | None = None
    slot: str | None = field(default=None, compare=False)
    group: int = field(default=0, compare=False)
    ms: float | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[str, int, str]:
        """What names it: a body does each thing once."""
        return self.label, self.attempt, self.what

    def __str__(self) -> str:
        return f"{self.label}#{self.attempt} {self.what}{f' {self.result}' if self.result else ''}"


Step = tuple[Any, ...]
"""One event: its kind, and (field, value) for what is compared of it."""


@dataclass
class Account:
    """What happened."""

    outcomes: dict[str, Ended] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    streams: dict[str, list[Step]] = field(default_factory=dict)

    def numbered_ops(self) -> dict[tuple[str, str | None, int], Op]:
        """Return the ops by command, label and how often this one had been there before."""
        numbered: dict[tuple[str, str | None, int], Op] = {}
        for op in self.ops:
            number = 1
            while (op.op, op.label, number) in numbered:
                number += 1
            numbered[op.op, op.label, number] = op
        return numbered


@dataclass
class Recording(Account):
    """A scenario and what happened in it, with what the recording does not promise."""

    id: str = ""
    name: str = ""
    scenario: list[dict[str, Any]] = field(default_factory=list)
    spaced: bool = True
    timed: bool = True
    unstable_marks: frozenset[str] = frozenset()
    unstable_streams: frozenset[str] = frozenset()

    @property
    def configuration(self) -> dict[str, Any]:
        """The settings of all `configure` commands."""
        return {key: value for at in self.scenario if at["cmd"] == "configure" for key, value in at.items()}

    @property
    def grace_ms(self) -> float:
        """The grace in milliseconds."""
        return float(self.configuration.get("grace_ms", 60_000))

    @property
    def works(self) -> dict[str, dict[str, Any]]:
        """The commands that hand in work, by label."""
        return {at["label"]: at for at in self.scenario if at["cmd"] in ("submit", "add")}

    def slot_of(self, label: str) -> str | None:
        """Return the slot for which a label competes; None for a direct add."""
        work = self.works[label]
        return None if work["cmd"] == "add" else work.get("slot") or name_of(work)

    def attempt_of(self, label: str, attempt: int) -> dict[str, Any]:
        """Return what the body of a label does in this attempt; the last one repeats."""
        body = self.works[label]["body"]
        return body[min(attempt, len(body)) - 1]


def name_of(work: dict[str, Any]) -> str:
    """Return the task name of a command that hands in work."""
    return work.get("task_name") or work["label"]


def step(kind: str, **fields: Any) -> Step:
    """Make one event, in our words."""
    kept = ((name, in_our_words(fields[name])) for name in _FIELDS_OF_STEP if fields.get(name) is not None)
    return (in_our_words(kind), *kept)


def _listed(rows: Any, names: dict[str, str]) -> Any:
    """Return a listing of registered runs as sorted names, however its rows look; `names` are those of the labels."""
    if not isinstance(rows, list):
        return in_our_words(rows)
    found = []
    for row in rows:
        if isinstance(row, dict):
            name = row.get("task_name") or row.get("name") or row.get("label")
        else:
            name = row if isinstance(row, str) else row[-1]
        found.append(names.get(name, name))
    return sorted(found)


def read(path: Path) -> Recording:
    """Read one file."""
    return made_of(json.loads(path.read_text(encoding="utf-8")))


def made_of(data: dict[str, Any]) -> Recording:
    """Make a recording of what is in a file."""
    names = {at["label"]: name_of(at) for at in data["scenario"] if at["cmd"] in ("submit", "add")}
    return Recording(
        id=data["id"],
        name=data["name"],
        scenario=data["scenario"],
        spaced=data.get("spaced", True),
        timed=not data.get("timing_unstable", False),
        unstable_marks=frozenset(data.get("body_marks_unstable_labels", ())),
        unstable_streams=frozenset(data.get("event_streams_unstable", ())),
        outcomes={label: _ended(ended) for label, ended in data["outcomes"].items()},
        ops=[_op(op, names) for op in data["ops"] if op["op"] not in _OF_THE_STAGE],
        snapshots=data["snapshots"],
        marks=[_mark(mark) for mark in data["body_marks"]],
        streams={
            chain: [step(**event) for event in events] for chain, events in data["event_streams"].items() if events
        },
    )


def _ended(data: dict[str, Any]) -> Ended:
    within = data.get("t_ms_range")
    return Ended(
        in_our_words(data["kind"]),
        in_our_words(data.get("rejection")),
        data.get("exit_code"),
        data.get("t_ms"),
        tuple(within) if within else None,
    )


def _op(data: dict[str, Any], names: dict[str, str]) -> Op:
    result = _listed(data["result"], names) if data["op"] == "list" else in_our_words(data["result"])
    name = data.get("label", data.get("task_name"))
    return Op(data["op"], name, result, tuple(data.get("stuck", ())), data.get("t_ms"))


def _mark(data: dict[str, Any]) -> Mark:
    return Mark(
        data["label"],
        data["attempt"],
        data["mark"],
        in_our_words(data.get("result")),
        data.get("slot"),
        data["group"],
        data.get("t_ms"),
    )
