"""Whether a log shows that what must always hold did hold.

The log proves what happened: the proof of "one body per slot" compares the instants that the bodies' own side took on
entering and leaving, not the order of lines. A log that is not whole proves nothing, and is never a pass.

| Invariant | Checked from |
| --- | --- |
| I1: at most one body per slot executes at any moment | `body_entered.entered_at`, `body_left.left_at` per slot |
| I2: every accepted submission ends exactly once | `task_finished`, `submission_rejected`, `task_add_failed` per id |
| I3: phases change only along the legal edges, each once | `slot_transition` per slot |
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from admission.effects import Phase
from admission.slot import LEGAL_EDGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Finding", "Verdict", "check"]

_ENDS = ("task_finished", "submission_rejected", "task_add_failed")


class Verdict(StrEnum):
    """What a log shows."""

    HOLDS = "holds"
    VIOLATED = "violated"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and its explanation, one line per reason; empty where everything holds."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join((self.verdict.value, *self.reasons))


def check(records: Iterable[Mapping[str, Any]]) -> Finding:
    """Check the whole log of one supervisor, from its first record to `shutdown_finished`.

    A record is a mapping with `event` and the fields of the structured log; anything of another origin is passed over.
    """
    own = sorted((record for record in records if "seq" in record and "supervisor" in record), key=_seq)
    missing = _missing(own)
    if missing:
        return Finding(Verdict.INCOMPLETE, tuple(missing))
    broken = [*_overlaps(own), *_ends(own), *_edges(own)]
    return Finding(Verdict.VIOLATED, tuple(broken)) if broken else Finding(Verdict.HOLDS)


def _seq(record: Mapping[str, Any]) -> int:
    return int(record["seq"])


def _missing(records: list[Mapping[str, Any]]) -> list[str]:
    if not records:
        return ["the log has no records of a supervisor"]
    reasons: list[str] = []
    names = {record["supervisor"] for record in records}
    if len(names) > 1:
        reasons.append(f"records of {len(names)} supervisors are mixed: check each by itself")
        return reasons
    expected = 1
    for record in records:
        seq = _seq(record)
        if seq < expected:
            reasons.append(f"record {seq} is there twice")
        elif seq > expected:
            reasons.append(f"records {expected} to {seq - 1} are missing (lost, or filtered out by a level)")
        expected = seq + 1
    if records[-1]["event"] != "shutdown_finished":
        reasons.append("the log does not end with shutdown_finished: it is cut off, or the supervisor still runs")
    return reasons


def _overlaps(records: list[Mapping[str, Any]]) -> list[str]:
    entered: dict[tuple[int, int], Mapping[str, Any]] = {}
    left: dict[tuple[int, int], float] = {}
    reasons: list[str] = []
    for record in records:
        if record["event"] == "body_entered":
            entered[record["id"], record["attempt"]] = record
        elif record["event"] == "body_left":
            left[record["id"], record["attempt"]] = record["left_at"]
    still_inside = set(records[-1].get("still_inside", ()))
    by_slot: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for key, record in entered.items():
        leaving = left.get(key, float("inf"))
        if key not in left and record["task"] not in still_inside:
            reasons.append(f"I1: the body of #{key[0]} attempt {key[1]} was entered and never left")
        if leaving < record["entered_at"]:
            reasons.append(f"I1: the body of #{key[0]} attempt {key[1]} left before it was entered")
        slot = record["slot"] if record["slot"] is not None else f"of #{key[0]} alone"  # added directly
        by_slot[slot].append((record["entered_at"], leaving, key[0]))
    for slot, spans in by_slot.items():
        spans.sort()
        for (_, leaving, first), (entering, _, second) in pairwise(spans):
            if entering < leaving:
                reasons.append(f"I1: slot {slot!r}: #{second} was entered at {entering} while #{first} was inside")
    reasons += [f"I1: the body of #{key[0]} left and was never entered" for key in left.keys() - entered.keys()]
    return reasons


def _ends(records: list[Mapping[str, Any]]) -> list[str]:
    asked = "task_remove_requested"  # may be about a number that nothing has
    seen = {record["id"] for record in records if record.get("id") is not None and record["event"] != asked}
    ends = Counter(record["id"] for record in records if record["event"] in _ENDS)
    return [f"I2: #{id_} ended {ends[id_]} times" for id_ in sorted(seen) if ends[id_] != 1]


def _edges(records: list[Mapping[str, Any]]) -> list[str]:
    phases: dict[str, Phase] = defaultdict(lambda: Phase.ABSENT)
    reasons: list[str] = []
    for record in records:
        if record["event"] != "slot_transition":
            continue
        slot, edge = record["slot"], (Phase(record["from_phase"]), Phase(record["to_phase"]))
        if edge not in LEGAL_EDGES:
            reasons.append(f"I3: slot {slot!r}: {edge[0]} > {edge[1]} is no legal edge (record {record['seq']})")
        if edge[0] is not phases[slot]:
            reasons.append(
                f"I3: slot {slot!r} was {phases[slot]}; record {record['seq']} leaves {edge[0]} (a record is missing)"
            )
        phases[slot] = edge[1]
    return reasons


def main(arguments: list[str]) -> int:
    """Check log files of JSON lines; 0 only if every one holds."""
    worst = 0
    for name in arguments:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
        finding = check(json.loads(line) for line in lines)
        sys.stdout.write(f"{name}: {finding}\n")
        worst = max(worst, finding.verdict is not Verdict.HOLDS)
    return worst


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
