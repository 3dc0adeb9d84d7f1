"""What an observer sees of the slots: gauges of one moment each, not a transaction over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from admission.labels import Label

if TYPE_CHECKING:
    from admission.effects import Phase
    from admission.identity import TaskId

__all__ = ["Explanation", "SlotStatus", "SlotView", "Snapshot", "WaitsFor"]


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


class WaitsFor(Label):
    """What has to happen before a slot goes on."""

    ADMISSION = "admission"
    """The registry's decision about the owner."""
    PERMIT = "permit"
    """One of the `max_concurrent` permits."""
    BODY_THREAD = "body_thread"
    """The attempt has started, and no thread (or turn of the event loop) has entered its body yet."""
    BODY = "body"
    """The body, which is inside."""
    PAUSE = "pause"
    """The end of the backoff or the interval before the next attempt."""
    RELEASE = "release"
    """A body that is past its attempt's end, timed out or given up, and has not left."""
    NOTHING = "nothing"
    """The run is over; the slot goes on at once."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a slot, or one submission in it, is where it is: one look at one slot."""

    slot: str | None
    """The slot's key; None for a run that was added directly."""
    status: SlotStatus
    phase: Phase
    """Where the slot's state machine stands: finer than `status`."""
    status_for: float
    """Seconds since the slot came to this status."""
    owner_id: TaskId
    owner: str
    """The task name of the owner."""
    attempt: int
    """Which attempt of the owner's run, from 1; 0 before the first."""
    waits_for: WaitsFor
    """What the owner waits for, and everybody behind it."""
    due_in: float | None
    """Seconds until a PAUSE ends; None for what has no time."""
    queue: tuple[TaskId, ...]
    """Who waits behind the owner, the next one first: at most the first `QUEUE_SHOWN`."""
    queue_depth: int
    """How many wait behind the owner."""
    position: int | None
    """Where in the queue the submission waits that was asked about, from 0; None if it is the owner, or for a slot."""

    QUEUE_SHOWN: ClassVar[int] = 100

    @property
    def displaced_by_next_replace(self) -> bool:
        """Whether a submission with policy REPLACE, coming now, would take the place of the one asked about.

        It takes the place of the head of the queue, and of nobody else; the owner is asked to stop.
        """
        return self.position == 0
