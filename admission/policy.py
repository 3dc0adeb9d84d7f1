"""What a submission asks for: how it enters a busy slot, and whether an ended attempt is followed by another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from admission.checks import check_duration
from admission.labels import Label

__all__ = ["AdmissionPolicy", "RestartPolicy"]


class AdmissionPolicy(Label):
    """What happens to a submission whose slot is busy. An idle slot takes any submission at once."""

    QUEUE = "queue"
    """Wait in line behind the owner; first in, first out."""
    REPLACE = "replace"
    """Take the head of the line and have the owner stopped; older waiting submissions stay behind it."""
    DROP_IF_RUNNING = "drop_if_running"
    """End at once as Rejected(SLOT_BUSY)."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Whether another attempt follows one that ended.

    NEVER: one attempt, whatever its result. ON_FAILURE: again after a retryable failure. `always()`: again after
    a success too, `interval` seconds after it ended (fixed delay, not fixed rate; None = at once, but never more
    often than once a millisecond). A fatal error or a cancellation ends every run.
    """

    after_failure: bool
    after_success: bool
    interval: float | None = None

    NEVER: ClassVar[RestartPolicy]
    ON_FAILURE: ClassVar[RestartPolicy]

    def __post_init__(self) -> None:
        if self.interval is not None:
            object.__setattr__(self, "interval", check_duration("interval", self.interval))

    @classmethod
    def always(cls, interval: object = None) -> RestartPolicy:
        """Run again after success and after retryable failure; `interval` seconds apply after a success only."""
        seconds = None if interval is None else check_duration("interval", interval)
        return cls(after_failure=True, after_success=True, interval=seconds)


RestartPolicy.NEVER = RestartPolicy(after_failure=False, after_success=False)
RestartPolicy.ON_FAILURE = RestartPolicy(after_failure=True, after_success=False)
