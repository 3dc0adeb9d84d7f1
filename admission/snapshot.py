"""What an observer sees of the slots: gauges of one moment each, not a transaction over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.labels import Label

if TYPE_CHECKING:
    from admission.identity import TaskId

__all__ = ["SlotStatus", "SlotView", "Snapshot"]


class SlotStatus(Label):
    """The public status of a slot. A slot without work is not listed."""

    IDLE = "idle"
    ADMITTING = "admitting"
    RUNNING = "running"
    TERMINATING = "terminating"


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot: who owns it, since when it has this status (seconds), and how many wait (the owner not counted)."""

    slot: str
    status: SlotStatus
    owner_id: TaskId | None
    queue_depth: int
    status_for: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every slot with work in it, sorted by key; each was looked at by itself."""

    slots: tuple[SlotView, ...] = ()

    @property
    def running_count(self) -> int:
        """Slots with status RUNNING."""
        return sum(view.status is SlotStatus.RUNNING for view in self.slots)

    @property
    def total_queued(self) -> int:
        """Submissions that wait, over all slots."""
        return sum(view.queue_depth for view in self.slots)

    def slot(self, key: str) -> SlotView | None:
        """Return the view of this slot, or None where it has no work."""
        return next((view for view in self.slots if view.slot == key), None)

    def __len__(self) -> int:
        return len(self.slots)
