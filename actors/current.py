"""Which submission's body the running code belongs to: what a body may not wait for is itself."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from admission.identity import TaskId

__all__ = ["attempt_task", "current_task"]

current_task: ContextVar[TaskId | None] = ContextVar("slotkeeper_current_task", default=None)
"""The submission whose body this code runs in; None outside of bodies."""

attempt_task: ContextVar[Any] = ContextVar("slotkeeper_attempt_task", default=None)
"""The asyncio task that is cancelled when the attempt is asked to stop, as its body and what that starts see it."""
