"""How much may wait, run and stay: the bounds of one registry."""

from __future__ import annotations

from dataclasses import dataclass, fields

from admission.checks import check_count, check_duration

__all__ = ["AdmissionLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """Bounds of one registry; None = no limit.

    Limits bound counts, not CPU or memory. What breaks one ends as ``Rejected(RESOURCE_LIMIT)`` (``QUEUE_FULL`` for
    `max_slot_queue`), except `intake`, at which `submit` waits and `try_submit` raises.

    Raises:
        TypeError: a count that is neither int nor None.
        ValueError: a count below 0 (below 1 for `intake`, `max_concurrent`).

    """

    intake: int | None = 1024
    """Submissions handed in and not yet decided by their slot (at least 1)."""
    max_slot_queue: int | None = 100
    """Submissions that wait behind one owner by policy QUEUE; REPLACE ignores it. 0 = nothing waits."""
    max_slots: int | None = 100_000
    """Slots with work in them."""
    max_total_pending: int | None = 100_000
    """Submissions that wait in all slots together."""
    max_tasks: int | None = None
    """Registered runs, plus bodies that still run after their outcome."""
    max_concurrent: int | None = None
    """Attempts that execute at the same time; the rest wait, first in, first out (at least 1)."""
    slot_idle_timeout: float = 30.0
    """Seconds that an idle slot stays warm before it is retired."""
    max_warm_slots: int | None = 1000
    """Idle slots kept warm; past it the longest idle one is retired at once."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "slot_idle_timeout":
                object.__setattr__(self, field.name, check_duration(field.name, value))
            else:
                check_count(field.name, value, least=1 if field.name in ("intake", "max_concurrent") else 0)
