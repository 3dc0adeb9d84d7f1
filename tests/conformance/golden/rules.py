"""Where this project differs from the recordings on purpose. Each rule is stated once, by property, never by file.

Two rules make no difference at all, because they are applied while both sides are read: the *words*, and what only our
log tells. The others explain differences that are there, and only where bodies can not be ended (`threads`): the
recorded bodies are dropped where they stand; a thread stays until it returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.golden.compare import Difference
    from tests.conformance.golden.recording import Account, Mark, Recording

__all__ = ["RULES", "Case", "in_our_words", "is_ours_only", "rule_for"]

# -- rules that make no difference ---------------------------------------------------------------------------------

_WORDS = {
    "canceled": "cancelled",
    "attempt_canceled": "attempt_cancelled",
    "controller_submitted": "submission_accepted",
    "controller_rejected": "submission_rejected",
    "closed": "shutting_down",
    "drop": "drop_if_running",
}
_PREFIXES = ("controller_", "runtime_", "outcome_")
_NOT_ONLY_A_PREFIX = "runtime_failure"


def in_our_words(word: Any) -> Any:
    """Rule *words*: no `controller_` and `runtime_` before labels, *cancelled* with two l. Anything else stays."""
    if not isinstance(word, str) or word == _NOT_ONLY_A_PREFIX:
        return word
    if word not in _WORDS:
        for prefix in _PREFIXES:
            word = word.removeprefix(prefix)
    return _WORDS.get(word, word)


_LOG_ONLY = frozenset(
    {"slot_created", "slot_retired", "body_entered", "body_left", "attempt_released", "shutdown_finished"}
)


def is_ours_only(record: dict[str, Any]) -> bool:
    """Rule *log*: these records have no counterpart. Of phases, events tell of admission and replacement only."""
    if record["event"] == "slot_transition":
        admitted = (record["from_phase"], record["to_phase"]) == ("admitting", "running")
        return not admitted and record.get("reason") != "replace"
    return record["event"] in _LOG_ONLY


# -- rules that explain differences --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A recording and a replay of it, and what can be said of bodies that were dropped there."""

    recording: Recording
    replay: Account
    threads: bool

    @cached_property
    def dropped(self) -> dict[tuple[str, int], Mark]:
        """Attempts whose body was dropped."""
        return {(mark.label, mark.attempt): mark for mark in self.recording.marks if mark.what == "dropped"}

    def stays(self, label: str, attempt: int) -> bool:
        """Tell whether the body of a dropped attempt never returns by itself."""
        script = self.recording.attempt_of(label, attempt)
        return bool(script.get("ignore_cancel")) and script.get("sleep_ms", 0) < 0

    @cached_property
    def overdue(self) -> frozenset[str]:
        """Labels of which a timed-out attempt was dropped that does not return at once when it is asked to stop."""
        scripts = {key: self.recording.attempt_of(*key) for key in self.dropped}
        return frozenset(
            label
            for (label, attempt), script in scripts.items()
            if (script.get("ignore_cancel") or script.get("cleanup_ms"))
            and any(
                kind == "attempt_timed_out" and ("attempt", attempt) in fields
                for kind, *fields in self.recording.streams.get(f"task/{label}", ())
            )
        )

    @cached_property
    def waiting(self) -> frozenset[str]:
        """Labels that need what a dropped body holds while it stays (slot, name, permit) and had not ended by then."""
        found: set[str] = set()
        for (label, _), drop in self.dropped.items():
            over = {mark.label for mark in self.recording.marks if mark.group < drop.group and mark.what == "end"}
            for other, work in self.recording.works.items():
                shares = (
                    "max_concurrent" in self.recording.configuration
                    or (drop.slot is not None and self.recording.slot_of(other) == drop.slot)
                    or work.get("task_name") == self.recording.works[label].get("task_name")
                )
                if shares and other != label and other not in over:
                    found.add(other)
        return frozenset(found)


_GIVEN_UP = ("force_aborted", "cancelled")
"""How a run ends whose timed-out body does not return: of itself, or because somebody wants it stopped meanwhile."""
_TURNED_AWAY = frozenset({"shutting_down", "slot_busy", "queue_full", "superseded_by_replace", "already_exists"})
"""How work ends that waits for a body that does not return, however it ends."""


def _not_ended(difference: Difference, case: Case) -> bool:
    """No body is dropped: it has no such mark, and returns by itself or, if it never would, not at all."""
    if difference.part != "mark":
        return False
    label, attempt, what = difference.subject
    if (label, attempt) not in case.dropped:
        return False
    if what == "dropped":
        returned = any((mark.label, mark.attempt, mark.what) == (label, attempt, "end") for mark in case.replay.marks)
        return difference.observed is None and returned is not case.stays(label, attempt)
    return what in ("end", "cancel_seen") and difference.recorded is None


def _overdue(difference: Difference, case: Case) -> bool:
    """Retry, failure and outcome wait for the return of a timed-out body; after its grace it is given up."""
    observed, explained = difference.observed, False
    match difference.part, difference.subject:
        case "outcome", label:
            explained = label in case.overdue and observed is not None and observed.kind in _GIVEN_UP
        case "mark", (label, attempt, _):
            later = any(of == label and attempt > first for of, first in case.dropped)
            explained = label in case.overdue and later and observed is None
        case "event", str(chain):
            explained = _overdue_in_chain(chain.removeprefix("task/"), difference, case)
        case "time", (("outcome" | "mark"), label, *_):
            explained = label in case.overdue and observed > difference.recorded
        case "time", ("op", "shutdown", *_):
            explained = bool(case.overdue) and 0 < observed - difference.recorded <= case.recording.grace_ms
    return explained


def _overdue_in_chain(label: str, difference: Difference, case: Case) -> bool:
    same = _shared(difference)
    rest = [step for step in difference.observed[same:] if step[0] != "task_remove_requested"]
    timed_out = any(step[0] == "attempt_timed_out" for step in difference.observed[:same])
    given_up = any(rest == _end(label, kind) for kind in _GIVEN_UP)
    return label in case.overdue and timed_out and given_up


def _waits(difference: Difference, case: Case) -> bool:
    """A body that is inside keeps its slot, name and permit: who needs one waits, and is turned away by a shutdown."""
    observed, explained = difference.observed, False
    match difference.part, difference.subject:
        case "outcome", label:
            away = observed is not None and (observed.kind == "cancelled" or observed.rejection in _TURNED_AWAY)
            explained = label in case.waiting and away
        case "mark", (label, _, what):
            late = observed is None or (what == "end" and observed.result == "cancelled")
            explained = label in case.waiting and late
        case "event", str(chain):
            explained = _waits_in_chain(chain, difference, case)
        case "time", (("outcome" | "mark"), label, *_):
            explained = label in case.waiting and observed > difference.recorded
        case "order", (before, after):
            explained = bool({before.label, after.label} & (case.waiting | case.overdue))
        case "snapshot", _:
            explained = _taken(difference, case)
    return explained


def _waits_in_chain(chain: str, difference: Difference, case: Case) -> bool:
    """It did not come so far, or was cancelled while it was late."""
    kind, _, name = chain.partition("/")
    rest = difference.observed[_shared(difference) :]
    if kind == "task":
        return name in case.waiting and (not rest or difference.observed[-2:] == _end(name, "cancelled"))
    late = all(dict(fields).get("label") in case.waiting for of, *fields in rest if of != "slot_transition")
    return kind == "controller" and name in map(case.recording.slot_of, case.waiting) and late


def _end(label: str, kind: str) -> list[Any]:
    return [("task_finished", ("label", label), ("outcome", kind)), ("task_removed", ("label", label))]


def _taken(difference: Difference, case: Case) -> bool:
    """The slot of a body that stays is shown as taken by it; all others as recorded."""
    if difference.recorded is None or difference.observed is None:
        return False
    held = {mark.slot: mark.label for mark in case.dropped.values()}
    recorded, observed = (
        {of["slot"]: of for of in side["slots"]} for side in (difference.recorded, difference.observed)
    )
    return all(
        recorded.get(slot) == observed.get(slot)
        or (
            slot in held
            and slot in observed
            and observed[slot]["owner"] == held[slot]
            and observed[slot]["status"] == "terminating"
        )
        for slot in recorded.keys() | observed.keys()
    )


def _shared(difference: Difference) -> int:
    """Return how many events both begin with."""
    shared = 0
    for recorded, observed in zip(difference.recorded, difference.observed, strict=False):
        if recorded != observed:
            break
        shared += 1
    return shared


RULES: dict[str, tuple[str, Callable[[Difference, Case], bool]]] = {
    "not ended": ("a thread can not be ended: it has no `dropped` and stays until it returns", _not_ended),
    "overdue": ("what follows a timed-out body waits for its return; after its grace it is force-aborted", _overdue),
    "waits": (
        "a body that is inside keeps slot, name and permit: what follows waits, a shutdown turns it away",
        _waits,
    ),
}
"""The rules that explain differences of bodies that can not be ended; without such bodies nothing is explained."""


def rule_for(difference: Difference, case: Case) -> str | None:
    """Return the name of the rule that explains this, if one does."""
    if not case.threads or not case.dropped:
        return None
    return next((name for name, (_, explains) in RULES.items() if explains(difference, case)), None)
