"""What a body is given: who it is, and whether it is asked to stop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from actors.runtime.guard import shared_lock
from admission.checks import check_duration, check_optional_duration
from admission.errors import TaskCancelledError

if TYPE_CHECKING:
    from datetime import timedelta

    from admission.effects import Cause
    from admission.identity import TaskId

__all__ = ["AsyncTaskContext", "TaskContext", "cancel"]


_creating = shared_lock()


class _Context:
    __slots__ = ("_cause", "_event", "attempt", "slot", "task", "task_id")

    def __init__(self, task_id: TaskId, task: str, slot: str | None, attempt: int) -> None:
        self._cause: Cause | None = None
        self._event: threading.Event | None = None  # most bodies never wait
        self.task_id = task_id
        """The number of the submission."""
        self.task = task
        """The name under which the run is registered."""
        self.slot = slot
        """The slot that this run owns."""
        self.attempt = attempt
        """Which attempt of the run this is, from 1."""

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled else "running"
        return f"<{type(self).__name__} {self.task_id} slot={self.slot!r} attempt={self.attempt} {state}>"

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is asked to stop (cancelled, replaced, timed out, shutdown). Costs next to nothing."""
        return self._cause is not None

    def raise_if_cancelled(self) -> None:
        """End the body here if it is asked to stop.

        Raises:
            TaskCancelledError: it is. Let it pass: the attempt then ends as cancelled.

        """
        if self._cause is not None:
            msg = f"{self.task_id} is asked to stop ({self._cause})"
            raise TaskCancelledError(msg)

    def _ask_to_stop(self, cause: Cause) -> None:
        if self._cause is None:
            self._cause = cause
        if self._event is not None:
            self._event.set()

    def _wait(self, timeout: float | None) -> bool:
        if self._event is None:
            event = threading.Event()  # made before the lock is taken: the collector may run a finalizer
            with _creating:
                if self._event is None:
                    self._event = event
        if self._cause is not None:  # looked at after the event is there: `_ask_to_stop` does it in the other order
            return True
        return self._event.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))


def cancel(ctx: _Context, cause: Cause) -> None:
    """Ask an attempt to stop, and wake whoever waits for that. Never blocks; the first cause stays.

    Done by the slot itself, before anybody is told that it is done.
    """
    ctx._ask_to_stop(cause)  # noqa: SLF001 - not for bodies


class TaskContext(_Context):
    """The first argument of a body that runs in a thread. Safe to hand to other threads."""

    __slots__ = ()

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Block until this attempt is asked to stop, or `timeout` seconds; tell whether it is asked to stop."""
        return self._wait(check_optional_duration("timeout", timeout))

    def sleep(self, seconds: float | timedelta) -> None:
        """Sleep, but no longer than until this attempt is asked to stop.

        Raises:
            TaskCancelledError: asked to stop, before or during the sleep.

        """
        self._wait(check_duration("seconds", seconds))
        self.raise_if_cancelled()


class AsyncTaskContext(_Context):
    """The first argument of a coroutine body. Its task is cancelled as well when the attempt is asked to stop."""

    __slots__ = ()

    async def wait(self, timeout: float | timedelta | None = None) -> bool:  # noqa: ASYNC109
        """Wait until this attempt is asked to stop, or `timeout` seconds; tell whether it is asked to stop.

        The one place where the cancellation of the task is absorbed: the body goes on and may clean up.
        """
        seconds = check_optional_duration("timeout", timeout)
        if not self.cancelled:
            task = asyncio.current_task()
            try:
                await (asyncio.sleep(seconds) if seconds is not None else asyncio.get_running_loop().create_future())
            except asyncio.CancelledError:
                if not self.cancelled:  # cancelled by somebody else: not ours to absorb
                    raise
                if task is not None:
                    task.uncancel()
        return self.cancelled

    async def sleep(self, seconds: float | timedelta) -> None:
        """Sleep, but no longer than until this attempt is asked to stop.

        Raises:
            TaskCancelledError: asked to stop before or during the sleep.

        """
        await self.wait(check_duration("seconds", seconds))
        self.raise_if_cancelled()
