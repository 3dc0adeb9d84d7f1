"""What a body is given: who it is, and whether it is asked to stop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from actors.bodies.scope import Cancellable, Context, apart, attempt_above, below, cancel, hear, settle, wake
from actors.current import attempt_task
from admission.checks import check_duration, check_optional_duration
from admission.identity import TaskId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

__all__ = ["AsyncTaskContext", "CancellableAsyncTaskContext", "CancellableTaskContext", "TaskContext", "cancel"]

T = TypeVar("T")
P = ParamSpec("P")


class TaskContext(Context):
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

    def child(self) -> CancellableTaskContext:
        """Make a context for a part of the work: cancelled with this one, or alone, which does not reach this one.

        It says of itself what this one says, and is forgotten as soon as nobody holds it. Catch what its
        `raise_if_cancelled` raises: it would end the attempt as cancelled.
        """
        return below(self, CancellableTaskContext(self.task_id, self.task, self.slot, self.attempt))

    def run_until_cancelled(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that knows no context, on a thread of its own, and wait for it until asked to stop.

        Asked to stop, this call ends at once and **the function goes on**, unobserved: nobody waits for it, the slot
        neither, and what it returns or raises is dropped. So leave nothing to it that must not overlap with the next
        job. It sees the context variables of the caller. Cancellation wins where both have happened.

        Returns what the function returns, and raises what it raises.

        Raises:
            TaskCancelledError: asked to stop; if that was so before the call, the function is never started.
            RuntimeError: no thread can be started.

        """
        if not callable(function):
            msg = f"function must be callable, not {type(function).__name__}"
            raise TypeError(msg)
        self.raise_if_cancelled()
        over = self.child()
        ended: list[tuple[T | None, BaseException | None]] = []

        def call() -> None:
            try:
                ended.append((function(*args, **kwargs), None))
            except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
                ended.append((None, error))
            if over.cancelled:
                ended.clear()  # nobody looks at it: what it raised must not keep its frames
            wake(over)

        name = f"slotkeeper-call-of-{self.task_id}"
        threading.Thread(target=copy_context().run, args=(call,), name=name, daemon=True).start()
        over.wait()
        self.raise_if_cancelled()
        value, error = ended.pop()
        try:
            if error is not None:
                raise error
            return value  # type: ignore[return-value]
        finally:
            del error

    @staticmethod
    def detached(*, cancelled: bool = False) -> CancellableTaskContext:
        """Make a context without a supervisor, to call a body in a test; its `cancel()` asks the body to stop."""
        return apart(CancellableTaskContext(TaskId.allocate(), "detached", None, 1), cancelled=cancelled)


class CancellableTaskContext(Cancellable, TaskContext):
    """A `TaskContext` with a `cancel()`: a child, or one without a supervisor."""

    __slots__ = ("__weakref__", "_parent")


class AsyncTaskContext(Context):
    """The first argument of a coroutine body. Its task is cancelled as well when the attempt is asked to stop."""

    __slots__ = ()

    async def wait(self, timeout: float | timedelta | None = None) -> bool:  # noqa: ASYNC109
        """Wait until this attempt is asked to stop, or `timeout` seconds; tell whether it is asked to stop.

        The one place where the cancellation of the task is absorbed: the body goes on and may clean up.
        """
        seconds = check_optional_duration("timeout", timeout)
        if not self.cancelled:
            loop = asyncio.get_running_loop()
            sleeper: asyncio.Future[None] = loop.create_future()
            alarm = loop.call_later(seconds, settle, sleeper) if seconds is not None else None
            try:
                await self._until(sleeper)
            finally:
                if alarm is not None:
                    alarm.cancel()
        return self.cancelled

    async def sleep(self, seconds: float | timedelta) -> None:
        """Sleep, but no longer than until this attempt is asked to stop.

        Raises:
            TaskCancelledError: asked to stop before or during the sleep.

        """
        await self.wait(check_duration("seconds", seconds))
        self.raise_if_cancelled()

    def child(self) -> CancellableAsyncTaskContext:
        """Make a context for a part of the work: cancelled with this one, or alone, which does not reach this one.

        As `TaskContext.child`. Cancelled alone, it cancels no task: it wakes whoever waits for it, and ends its
        `run_until_cancelled`.
        """
        return below(self, CancellableAsyncTaskContext(self.task_id, self.task, self.slot, self.attempt))

    async def run_until_cancelled(self, awaitable: Awaitable[T]) -> T:
        """Await this until asked to stop; then cancel it, wait for its end, and raise.

        Cancellation wins where both have happened.

        Returns what it returns, and raises what it raises.

        Raises:
            TaskCancelledError: asked to stop; if that was so before the call, a coroutine is closed and never started.

        """
        if not inspect.isawaitable(awaitable):
            msg = f"awaitable must be a coroutine or another awaitable, not {type(awaitable).__name__}"
            raise TypeError(msg)
        if self.cancelled and inspect.iscoroutine(awaitable):
            awaitable.close()
        self.raise_if_cancelled()
        work = asyncio.ensure_future(awaitable)
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work.add_done_callback(lambda _: settle(sleeper))
        try:
            await self._until(sleeper)
        finally:
            interrupted = await _end_of(work) if self.cancelled or not work.done() else None
        if self.cancelled and not work.cancelled():
            work.exception()  # looked at: nobody else will
        self.raise_if_cancelled()
        if interrupted is not None:
            raise interrupted
        return work.result()

    @staticmethod
    def detached(*, cancelled: bool = False) -> CancellableAsyncTaskContext:
        """Make a context without a supervisor, to await a body in a test; its `cancel()` asks the body to stop."""
        return apart(CancellableAsyncTaskContext(TaskId.allocate(), "detached", None, 1), cancelled=cancelled)

    async def _until(self, sleeper: asyncio.Future[None]) -> None:
        """Await this future, which is settled when asked to stop at the latest; absorb the attempt's cancellation."""
        attempt = attempt_above(self)
        sleepers = self._get_bell().sleepers
        sleepers[sleeper] = None
        try:
            if not self.cancelled:
                await sleeper
            if attempt is not None and attempt.cancelled and attempt_task.get() is asyncio.current_task():
                hear(attempt)  # the cancellation of this task is on its way
        except asyncio.CancelledError:
            if attempt is None or not attempt.cancelled:  # cancelled by somebody else: not ours to absorb
                raise
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
        finally:
            del sleepers[sleeper]


async def _end_of(work: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Cancel this and wait for its end, however often we are cancelled meanwhile: it must not outlive its body."""
    interrupted: asyncio.CancelledError | None = None
    while not work.done():
        work.cancel()
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            interrupted = error
    return interrupted


class CancellableAsyncTaskContext(Cancellable, AsyncTaskContext):
    """An `AsyncTaskContext` with a `cancel()`: a child, or one without a supervisor."""

    __slots__ = ("__weakref__", "_parent")
