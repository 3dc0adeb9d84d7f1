"""Coroutine bodies: all on one event loop, on one thread of the runtime, started on first use."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from actors.bodies.job import judge, returned
from actors.bodies.scope import is_heard
from actors.current import attempt_task
from admission.run import AttemptCancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from actors.bodies.job import BodyJob

__all__ = ["CoroutineRunner"]


class CoroutineRunner:
    """Runs each body as a task. A stop cancels the task; one that swallows that counts as ignoring it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references
        self._closed = False

    def start(self, job: BodyJob) -> None:
        """Have the body entered. Raises what starting the loop's thread raises."""
        self._running_loop().call_soon_threadsafe(self._enter, job, None, job.context)

    def adopt(self, job: BodyJob, awaitable: Awaitable[Any]) -> None:
        """Go on with a body that was called in a thread and returned this awaitable."""
        try:
            loop = self._running_loop()
        except BaseException:
            _never_await(awaitable)
            raise
        # In a copy of the context: the thread is still inside the job's own, and only one may be.
        loop.call_soon_threadsafe(self._enter, job, awaitable, copy_context())

    def stop(self, job: BodyJob) -> None:
        """Cancel the body's task; if it is not inside yet, it never will be."""
        if job.claim_entry():
            job.given_up()
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, job)

    def kill(self, job: BodyJob) -> None:
        """Like `stop`: a coroutine that swallows its cancellation can not be ended."""
        self.stop(job)

    def close(self) -> None:
        """Let the loop end once the last body has left."""
        with self._guard:
            self._closed = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._end_if_idle)

    # -- on the caller's thread ------------------------------------------------------------------------------------

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                if self._closed:
                    msg = "the runtime has been closed"
                    raise RuntimeError(msg)
                loop = asyncio.new_event_loop()
                try:
                    threading.Thread(target=self._run_loop, args=(loop,), name="slotkeeper-loop", daemon=True).start()
                except BaseException:
                    loop.close()
                    raise
                self._loop = loop
            return self._loop

    # -- on the loop's thread --------------------------------------------------------------------------------------

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not (self._closed and not self._tasks):
            with suppress(BaseException):  # a user's own task raised SystemExit; other bodies go on
                loop.run_forever()
        with self._guard:
            self._loop = None
            loop.close()

    def _end_if_idle(self) -> None:
        if self._closed and not self._tasks and self._loop is not None:
            self._loop.stop()

    def _enter(self, job: BodyJob, awaitable: Awaitable[Any] | None, context: Context) -> None:
        if awaitable is None and not job.claim_entry():
            return
        try:
            task = asyncio.get_running_loop().create_task(
                self._body(job, awaitable), name=job.ctx.task, context=context
            )
        except BaseException as error:  # noqa: BLE001 - a body that can not be entered has left
            job.left(judge(error))
            return
        job.task = task
        self._tasks.add(task)
        task.add_done_callback(partial(self._left, job, awaitable))
        if awaitable is not None and job.ctx.cancelled:
            task.cancel()

    def _cancel(self, job: BodyJob) -> None:
        if job.task is not None and not is_heard(job.ctx):
            job.task.cancel()

    def _left(self, job: BodyJob, awaitable: Awaitable[Any] | None, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # before its first step, so that `_body` could not report
            if awaitable is None:
                job.given_up()
            else:
                _never_await(awaitable)
                job.left(AttemptCancelled())
        self._end_if_idle()

    async def _body(self, job: BodyJob, awaitable: Awaitable[Any] | None) -> None:
        attempt_task.set(job.task)
        try:
            if awaitable is None:
                job.entered()
                job.left(returned(await job.call()))
            else:
                job.left(returned(await awaitable))
        except asyncio.CancelledError:
            job.left(AttemptCancelled())
        except BaseException as error:  # noqa: BLE001 - whatever a body raises is its result
            job.left(judge(error))


def _never_await(awaitable: Awaitable[Any]) -> None:
    """Say that this will not be awaited, and that its author is not to blame."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()
