"""Bodies in threads: as many daemon threads as bodies run at once, kept for reuse, at most `max_threads`.

A thread can not be stopped from outside. A body that does not look at its context stays until it returns by itself.
"""

from __future__ import annotations

import inspect
import threading
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from actors.bodies.job import judge, returned

if TYPE_CHECKING:
    from actors.bodies.coroutine import CoroutineRunner
    from actors.bodies.job import BodyJob

__all__ = ["ThreadRunner"]

IDLE = 10.0
"""Seconds after which a thread without a body ends."""


class ThreadRunner:
    """Runs each body on a cached thread. Past `max_threads` bodies wait, first in, first out."""

    def __init__(self, coroutines: CoroutineRunner, *, max_threads: int = 512, idle: float = IDLE) -> None:
        self._coroutines = coroutines
        self._max_threads = max_threads
        self._idle_seconds = idle
        self._jobs: SimpleQueue[BodyJob | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._threads: set[threading.Thread] = set()
        # Either every queued job has a thread that is free for it, or there are `max_threads` threads.
        self._queued = 0
        self._free = 0
        self._numbers = count()

    @property
    def threads(self) -> int:
        """Threads that there are at this moment."""
        return len(self._threads)

    def start(self, job: BodyJob) -> None:
        """Have the body entered by an idle thread, a new one, or the next that becomes free.

        Raises:
            RuntimeError: there is no thread and none can be started.

        """
        with self._guard:
            self._queued += 1
            if self._queued > self._free and len(self._threads) < self._max_threads:
                self._add_thread()
            self._jobs.put(job)

    def stop(self, job: BodyJob) -> None:
        """Take the body out if it is not inside yet; one that is inside is woken by its scope."""
        if job.claim_entry():
            job.given_up()
        elif job.task is not None:
            self._coroutines.stop(job)

    def kill(self, job: BodyJob) -> None:
        """Like `stop`: there is no way to end a thread."""
        self.stop(job)

    def close(self) -> None:
        """Let idle threads end now and busy ones after their body."""
        with self._guard:
            for _ in self._threads:
                self._jobs.put(None)

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._loop, name=f"slotkeeper-body-{next(self._numbers)}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException:
            self._threads.discard(thread)
            if not self._threads:
                self._queued -= 1
                raise
            # The others will get to it: a body waits for a thread as it waits for a permit.
        else:
            self._free += 1

    def _loop(self) -> None:
        thread = threading.current_thread()
        resting = thread.name
        while (job := self._take(thread)) is not None:
            if job.claim_entry():
                thread.name = job.ctx.task
                try:
                    job.context.run(self._run, job)
                except BaseException:  # noqa: BLE001, S110 - what it ran has reported; the thread goes on
                    pass
                thread.name = resting
            job = None
            with self._guard:
                self._free += 1

    def _take(self, thread: threading.Thread) -> BodyJob | None:
        """Wait for a job; None when this thread is to end."""
        while True:
            try:
                job = self._jobs.get(timeout=self._idle_seconds)
            except Empty:
                job = None
            with self._guard:
                if job is not None:
                    self._queued -= 1
                    self._free -= 1
                    return job
                if self._queued < self._free:  # one more than is needed
                    self._free -= 1
                    self._threads.discard(thread)
                    return None

    def _run(self, job: BodyJob) -> None:
        job.entered()
        try:
            value = job.call()
            if inspect.isawaitable(value):
                self._coroutines.adopt(job, value)
                return
            result: Any = returned(value)
        except BaseException as error:  # noqa: BLE001 - whatever a body raises is its result
            result = judge(error)
        job.left(result)
