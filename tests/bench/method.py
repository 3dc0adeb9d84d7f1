"""How a comparison is measured and judged: what a row of the benchmark says, and what becomes of it.

Two sides are measured as a pair, in a process that is started for them (`tests/bench/measure.py`): two warm-up rounds
thrown away, then rounds of one and the other in turn. The figure is the ratio of the two medians; its quartiles are
those of the ratios round by round. What the sides are is the business of the rows, one file each in `rows/`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

__all__ = [
    "LEAST_ROUNDS",
    "QUIET",
    "ROOT",
    "WARM_UPS",
    "Figure",
    "Goal",
    "Measured",
    "Row",
    "Sense",
    "Side",
    "Verdict",
    "judge",
    "measure",
    "rates",
    "ratio",
    "summary",
]

ROOT = Path(__file__).parents[2]
WARM_UPS = 2
"""Rounds of each side that are thrown away: the first of a fresh process is another thing than the later ones."""
LEAST_ROUNDS = 9
"""With fewer rounds than that there is a figure, and no judgement."""
QUIET = 1.7
"""From here on the machine counts as quiet; 2.0 = two busy processes disturb each other in nothing."""
HANGS = 600.0
"""Seconds after which the process of a pair is given up; it should have ended itself long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: `opened(jobs)` sets it up and gives what runs one round and returns its seconds.

    `opened` is a context manager's function at the top of a module, so that the measuring process finds it by name. A
    round vouches for itself: it raises if one of its jobs did not come to what it should.
    """

    name: str
    jobs: int
    opened: Callable[[int], AbstractContextManager[Callable[[], float]]]


class Sense(Enum):
    """What the figure compares, ours to the other's, and on which side of the goal it is good."""

    RATE = ">="
    COST = "<="


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a comparison has to reach: `now` is judged, `later` shown."""

    ours: Side
    other: Side
    now: float
    later: float
    sense: Sense = Sense.RATE

    def __str__(self) -> str:
        what = "times" if self.sense is Sense.RATE else "times the cost of"
        return f"{self.sense.value} {self.now:g} {what} {self.other.name}"

    def reached(self, value: float) -> bool:
        return value >= self.now if self.sense is Sense.RATE else value <= self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the benchmark: a situation, and the goals in it."""

    name: str
    title: str
    goals: tuple[Goal, ...]


class Measured(NamedTuple):
    """The seconds of every round that counts."""

    ours: list[float]
    other: list[float]


class Figure(NamedTuple):
    """A number out of several rounds, with its quartiles."""

    value: float
    low: float
    high: float


class Verdict(NamedTuple):
    """What a figure means for its goal: None = not judged, for the reason given."""

    met: bool | None
    reason: str = ""

    def __str__(self) -> str:
        if self.met is None:
            return f"not judged: {self.reason}"
        return "met" if self.met else "not met"


def measure(goal: Goal, rounds: int) -> Measured:
    """Measures the two sides of a goal in a fresh process.

    Raises:
        subprocess.CalledProcessError: a round failed; why is on stderr.
        subprocess.TimeoutExpired: a round hangs.

    """
    sides = [
        {"opened": f"{side.opened.__module__}:{side.opened.__qualname__}", "jobs": side.jobs}
        for side in (goal.ours, goal.other)
    ]
    order = json.dumps({"warm_ups": WARM_UPS, "rounds": rounds, "sides": sides})
    command = [sys.executable, "-m", "tests.bench.measure"]
    done = subprocess.run(command, cwd=ROOT, input=order, stdout=subprocess.PIPE, text=True, check=True, timeout=HANGS)
    return Measured(*json.loads(done.stdout))


def rates(side: Side, seconds: Sequence[float]) -> list[float]:
    """Returns the jobs per second of every round."""
    return [side.jobs / took for took in seconds]


def summary(numbers: Sequence[float]) -> Figure:
    """Returns the median with the quartiles."""
    low, value, high = quantiles(numbers, n=4, method="inclusive")
    return Figure(value, low, high)


def ratio(goal: Goal, measured: Measured) -> Figure:
    """Returns the ratio of the medians of the rates (or the costs per job), with the quartiles of the rounds' own."""
    ours, other = rates(goal.ours, measured.ours), rates(goal.other, measured.other)
    if goal.sense is Sense.COST:
        ours, other = other, ours
    _, low, high = summary([one / another for one, another in zip(ours, other, strict=True)])
    return Figure(median(ours) / median(other), low, high)


def judge(goal: Goal, figure: Figure, *, rounds: int, parallel: Sequence[float]) -> Verdict:
    """Judges a figure, if the method was kept and the machine was quiet before and after."""
    if rounds < LEAST_ROUNDS:
        return Verdict(None, f"fewer than {LEAST_ROUNDS} rounds")
    if min(parallel) < QUIET:
        return Verdict(None, "not quiet")
    return Verdict(goal.reached(figure.value))
