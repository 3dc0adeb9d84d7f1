"""Bodies in threads: as many daemon threads as bodies run at once, kept for reuse, at most `max_threads`.

A thread can not be stopped from outside. A body that does not look at its context stays until it returns by itself.
"""

from __future__ import annotations

import inspect
import threading
from _thread import allocate_lock
from collections import OrderedDict
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from actors.bodies.job import judge, returned

if TYPE_CHECKING:
    from actors.bodies.coroutine import CoroutineRunner
    from actors.bodies.job import BodyJob

__all__ = ["ThreadRunner"]

IDLE = 10.0
"""Seconds after which a thread without a body ends."""


class _BodyThread(threading.Thread):
    """A cached thread with a bell of its own, so that the last one to rest is the first to be woken."""

    def __init__(self, runner: ThreadRunner, number: int) -> None:
        super().__init__(name=f"slotkeeper-body-{number}", daemon=True)
        self.resting_name = self.name
        self._runner = runner
        self.called = True  # on its way to a job
        self.bell = allocate_lock()  # rung by releasing it
        self.bell.acquire()

    def run(self) -> None:
        """Run bodies until there is nothing to do for a while."""
        job: BodyJob | None = None
        while True:
            try:
                job = self._runner.take(self)
                if job is None:
                    return
                if job.claim_entry():
                    self.name = job.ctx.task
                    job.context.run(self._runner.enter, job)
            except BaseException as error:  # noqa: BLE001 - the thread goes on, and the body has left in any case
                if job is not None:
                    with suppress(BaseException):
                        job.left(judge(error))
            job = None


class ThreadRunner:
    """Runs each body on a cached thread. Past `max_threads` bodies wait, first in, first out.

    At most one thread is on its way to a job at any time; when it takes one and more wait, it wakes the next before it
    enters its body. So no body waits for another one's end while there is a thread to be had, and a burst of short
    bodies is not handed to a hundred threads that only trade places.
    """

    def __init__(self, coroutines: CoroutineRunner, *, max_threads: int = 512, idle: float = IDLE) -> None:
        self._coroutines = coroutines
        self._max_threads = max_threads
        self._idle_seconds = idle
        self._guard = threading.Lock()
        self._waiting: OrderedDict[BodyJob, None] = OrderedDict()
        self._resting: list[_BodyThread] = []
        self._coming = False  # a thread is on its way to a job
        self._count = 0
        self._numbers = count()
        self._closed = False

    @property
    def threads(self) -> int:
        """Threads that there are at this moment."""
        return self._count

    def start(self, job: BodyJob) -> None:
        """Have the body entered by a resting thread, a new one, or the next that becomes free.

        Raises:
            RuntimeError: there is no thread and none can be started.

        """
        with self._guard:
            self._waiting[job] = None
            missing = not self._coming and self._call_one()
        if missing:
            try:
                self._add_thread()
            except BaseException:
                with self._guard:
                    alone = self._count == 0 and self._waiting.pop(job, self) is not self
                if alone:
                    raise

    def stop(self, job: BodyJob) -> None:
        """Take the body out if it is not inside yet; one that is inside is woken by its scope."""
        if job.claim_entry():
            with self._guard:
                self._waiting.pop(job, None)
            job.given_up()
        elif job.task is not None:
            self._coroutines.stop(job)

    def kill(self, job: BodyJob) -> None:
        """Like `stop`: there is no way to end a thread."""
        self.stop(job)

    def close(self) -> None:
        """Let resting threads end now and busy ones after their body."""
        with self._guard:
            self._closed = True
            for thread in self._resting:
                thread.bell.release()

    # -- on the body threads -----------------------------------------------------------------------------------------

    def take(self, thread: _BodyThread) -> BodyJob | None:
        """Wait for a job; None when this thread is to end."""
        while True:
            job: BodyJob | None = None
            missing = False
            with self._guard:
                if thread.called:
                    thread.called = self._coming = False
                if self._waiting:
                    job, _ = self._waiting.popitem(last=False)
                    missing = bool(self._waiting) and not self._coming and self._call_one()
            if missing:
                with suppress(BaseException):  # no thread to be had: who waits gets the next one that becomes free
                    self._add_thread()
            if job is not None:
                return job
            with self._guard:
                if self._waiting:
                    continue
                if self._closed:
                    self._count -= 1
                    return None
                self._resting.append(thread)
                thread.name = thread.resting_name
            if not thread.bell.acquire(timeout=self._idle_seconds):
                with self._guard:
                    if thread in self._resting:
                        self._resting.remove(thread)
                        self._count -= 1
                        return None
                thread.bell.acquire()  # called at the very moment at which it gave up

    def _call_one(self) -> bool:
        """Have one more thread come, if there is one to be had; tell whether it has to be made. With the guard held.

        Nothing is made under the guard: the collector could run a finalizer there that waits for the actors, which may
        wait for the guard.
        """
        if self._resting:
            thread = self._resting.pop()
            thread.called = self._coming = True
            thread.bell.release()
        elif self._count < self._max_threads:
            self._count += 1
            self._coming = True
            return True
        return False

    def _add_thread(self) -> None:
        """Make the thread that was promised."""
        try:
            _BodyThread(self, next(self._numbers)).start()
        except BaseException:
            with self._guard:
                self._count -= 1
                self._coming = False
            raise

    def enter(self, job: BodyJob) -> None:
        """Run the body and report. Inside the job's context."""
        try:
            job.entered()
            value = job.call()
            if value is not None and inspect.isawaitable(value):
                self._coroutines.adopt(job, value)
            else:
                job.left(returned(value))
        except BaseException as error:  # noqa: BLE001 - whatever a body raises is its result
            job.left(judge(error))
