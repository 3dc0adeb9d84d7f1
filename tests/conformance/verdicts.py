"""How this project stands to each scenario of the system that it matches.

Every scenario has a number. It has one test, named after it (``test_s163_...``), whose docstring states it in a
sentence, or it is excluded here because what it is about does not exist. A test without a mark shows the scenario *as
written*; one that is marked with `adapted` shows the rule of this project instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EXCLUDED", "RULES", "SCENARIOS", "Adapted", "adapted"]

F = TypeVar("F", bound="Callable[..., Any]")

SCENARIOS = tuple(
    chain(
        range(1, 37),
        range(40, 71),
        range(80, 129),
        range(130, 141),
        range(150, 175),
        range(180, 196),
        range(200, 212),
        range(220, 237),
        range(240, 247),
        range(250, 289),
        range(290, 293),
        range(300, 318),
    )
)
"""Every number that there is."""

RULES: dict[str, str] = {
    "keys": "Slot keys and task names are non-empty `str`; a name defaults to the slot's key or the callable's name.",
    "durations": "Durations are seconds or `timedelta`; 0 is refused for an attempt timeout, else it is *at once*.",
    "max_retries": "`max_retries` 0 is one attempt; None is unlimited.",
    "body": "A body is a callable with a context and arguments; what it returns is the outcome's value.",
    "failing": "Any exception is a retryable failure; `FatalError` and what is no `Exception` is permanent.",
    "overdue": "A body that does not stop keeps its slot, name and permit until it returns; what follows waits for it.",
    "threads": "Bodies run in threads, at most 512; past it they wait like for a permit.",
    "watched": "Every submission has a handle; `try_submit` raises where there is no place.",
    "told": "A told or asked submission never waits; without a place in the intake it is rejected.",
    "words": "Labels without `controller_`, *cancelled* with two l; a supervisor always has slots.",
    "dropped": "No builders, ownership budgets, destructor rules, foreign runtimes or bounded command queues.",
    "defaults": "The limits have other defaults, and `max_tasks` is the limit of registered and lingering runs.",
    "leaving": "Leaving the `with` block shuts down; a finalizer does not.",
    "report": "Shutdown returns a `ShutdownReport`, the same for every caller, and does not raise.",
    "events": "Every subscriber has its own bounded queue; there is no bus before it.",
    "signals": "Signal handlers are as before after a run; if they can not be set up, nothing is started.",
    "idle": "A slot without work stays warm for a while, and is publicly absent: no view shows it.",
    "outcome": "Whoever has seen an outcome finds the slot free or with its next owner.",
}
"""Where this project differs on purpose; a line each."""

EXCLUDED: dict[int, str] = {
    69: "destructors: Python reports what one raises and goes on",
    70: "destructors: Python reports what one raises and goes on",
    101: "a bounded command queue of the registry",
    121: "a bounded command queue of the registry, and forms of a call that fail where it is full",
    128: "operations that are built first and executed later",
    150: "a supervisor without slots",
    186: "a removal ordered from the registry that could fail: the slot stops its owner itself",
    187: "a removal ordered from the registry that could fail: the slot stops its owner itself",
    203: "a bounded command channel",
    204: "a bounded command channel",
    207: "a capacity of fallbacks for operations by id",
    208: "a capacity of fallbacks for operations by id",
    220: "a bounded command queue of the registry",
    222: "owners that wait for a place in the registry's queue",
    223: "owners that wait for a place in the registry's queue",
    231: "an ownership budget and its deadline",
    232: "an ownership budget and its deadline",
    234: "an ownership budget that a failing destructor shrinks",
    235: "destructors: they run wherever Python drops the last reference",
    267: "listeners that can be killed: a fault of the registry costs it one message",
    281: "a foreign runtime that has to be there first",
}
"""Scenarios about what does not exist here, and what that is."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """What is different in this scenario, and by which of the `RULES`."""

    difference: str
    rule: str


def adapted(difference: str, *, rule: str) -> Callable[[F], F]:
    """Mark the test of a scenario that has another end here."""
    if rule not in RULES:
        msg = f"there is no rule {rule!r}; there are {', '.join(RULES)}"
        raise ValueError(msg)

    def mark(test: F) -> F:
        test.verdict = Adapted(difference, rule)  # type: ignore[attr-defined]
        return test

    return mark
