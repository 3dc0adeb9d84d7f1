"""The messages of those who look and change nothing: from a caller to a registry, from there to slots and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from admission.identity import TaskId
    from admission.snapshot import Explanation, SlotView

__all__ = ["Alive", "Explain", "Snapshot", "Tasks", "View", "Viewed"]


@dataclass(slots=True, eq=False)
class Tasks:
    """Ask for (id, name) of every registered run, ascending by id."""


@dataclass(slots=True, eq=False)
class Alive:
    """Ask for the names of the runs whose body is inside an attempt, given up or not: sorted, each once."""


@dataclass(slots=True, eq=False)
class Snapshot:
    """Ask for an `admission.Snapshot` of every slot with work."""


@dataclass(slots=True, eq=False)
class Explain:
    """Ask for an `admission.Explanation` of this submission (by id) or slot (by key); None where there is no work."""

    target: TaskId | str


@dataclass(slots=True, eq=False)
class View:
    """Answer `Viewed` with what the slot looks like here; with `explain` in all detail, as the id `about` sees it."""

    op: object
    explain: bool = False
    about: TaskId | None = None


@dataclass(slots=True, eq=False)
class Viewed:
    """The answer to `View`; None where the slot is idle or could not say. `alive`: whose body is inside."""

    op: object
    view: SlotView | Explanation | None
    alive: str | None = None
