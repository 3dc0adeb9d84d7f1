"""Threads that run turns: a fixed few for our own actors, an elastic number where users' code may block."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from actors.runtime.clock import Clock
    from actors.runtime.timers import Timers

__all__ = ["Dispatcher", "ElasticDispatcher", "Runnable"]

PATIENCE = 0.005
"""Seconds for which messages may be ready and no thread takes one before an elastic dispatcher adds a thread."""
IDLE = 5.0
"""Seconds after which a surplus thread of an elastic dispatcher ends."""


class Runnable(Protocol):
    """Something with a turn to run."""

    def run(self, throughput: int, /) -> None:
        """Run one turn of at most `throughput` items."""
        ...


class Dispatcher:
    """A fixed number of daemon threads that run the turns of whatever is scheduled, first in, first out.

    For actors that never block. A turn that raises ends that turn, never the thread.
    """

    def __init__(self, name: str, *, threads: int = 1, throughput: int = 64) -> None:
        if threads < 1 or throughput < 1:
            msg = "a dispatcher needs at least one thread, and a turn at least one message"
            raise ValueError(msg)
        self.name = name
        self.forked = False
        self._size = threads
        self._throughput = throughput
        self._ready: SimpleQueue[Runnable | None] = SimpleQueue()
        self._numbers = count()
        self._threads: dict[threading.Thread, None] = {}
        # Reentrant: a finalizer of the application that the collector runs under it may send a message.
        self._guard = threading.RLock()
        self._closed = False

    def start(self) -> None:
        """Start the threads. If one can not be started, ends those that were and raises."""
        try:
            for _ in range(self._size):
                self._add_thread()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the threads end once nothing is ready any more."""
        with self._guard:
            if not self._closed:
                self._closed = True
                self._ready.put(None)  # one for all: each thread that finds it leaves it to the next

    def join(self, timeout: float) -> None:
        """Wait for the threads, each at most `timeout` seconds."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(timeout)

    def leave_behind(self, thread: threading.Thread) -> None:
        """Never wait for this thread: it is inside code that may not come back."""
        self._threads.pop(thread, None)

    def schedule(self, runnable: Runnable) -> None:
        """Have one turn run. Never blocks."""
        self._ready.put(runnable)

    def _add_thread(self) -> None:
        thread = threading.Thread(
            target=contextvars.Context().run, args=(self._loop,), name=f"{self.name}-{next(self._numbers)}", daemon=True
        )
        thread.start()
        self._threads[thread] = None

    def _loop(self) -> None:
        take, throughput = self._ready.get, self._throughput
        while True:
            runnable = take()
            if runnable is None:
                if self._leave():
                    return
                continue
            try:
                runnable.run(throughput)
            except BaseException:  # noqa: BLE001 - the actors' own barriers report; the thread must go on
                self._run_again(runnable)
            runnable = None  # an idle thread keeps nothing alive

    def _run_again(self, runnable: Runnable) -> None:
        """Run what failed once more: it may have failed before it saw its items, and nobody would tell it again."""
        with contextlib.suppress(BaseException):
            runnable.run(self._throughput)

    def is_own_thread(self) -> bool:
        """Tell whether the calling thread is one of these."""
        return threading.current_thread() in self._threads

    def _leave(self) -> bool:
        """Pass the end on, behind whatever else is ready; tell whether nothing was."""
        nothing_ready = self._ready.empty()
        self._ready.put(None)
        return nothing_ready


class ElasticDispatcher(Dispatcher):
    """As many threads as blocked turns make necessary: for actors, callbacks and observers that may block.

    While something is ready and no thread has taken anything for `patience` seconds, the timer thread adds a thread;
    that sees every way to block. A thread that finds nothing to do for `idle` seconds ends, down to one.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        timers: Timers,
        *,
        throughput: int = 16,
        patience: float = PATIENCE,
        idle: float = IDLE,
    ) -> None:
        super().__init__(name, throughput=throughput)
        self._clock = clock
        self._timers = timers
        self._patience = patience
        self._idle = idle
        self._taken = 0
        self._watched = False
        self._failure: BaseException | None = None

    def schedule(self, runnable: Runnable) -> None:
        """Have one turn run, on a new thread if the others stay blocked. Never blocks."""
        self._ready.put(runnable)
        if self.forked:
            return  # the locks below may have been held by a thread of the parent
        if self._closed:  # our threads may have ended; a callback that is added late is called all the same
            with contextlib.suppress(Exception):
                threading.Thread(target=contextvars.Context().run, args=(self._loop,), daemon=True).start()
            return
        if not self._threads:
            self._grow()
        if not self._watched:
            self._watch()

    @property
    def start_failure(self) -> BaseException | None:
        """Why the last thread could not be started; None when it could. It is tried again every 5 ms."""
        return self._failure

    def _watch(self) -> None:
        self._watched = True
        try:
            seen = self._taken
            self._timers.call_at(self._clock.monotonic() + self._patience, lambda: self._check(seen))
        except BaseException:  # interrupted, or out of memory: the next turn to be scheduled tries again
            self._watched = False
            raise

    def _check(self, seen: int) -> None:
        if self._closed:
            return
        if self._ready.empty():
            self._watched = False
            if self._ready.empty():  # once more: whoever schedules before the line above relies on this watch
                return
        elif self._taken == seen:
            self._grow()
        self._watch()

    def _grow(self) -> None:
        try:
            with self._guard:
                if not self._closed:
                    self._add_thread()
            self._failure = None
        except Exception as error:  # noqa: BLE001 - out of threads or memory: the watch tries again
            self._failure = error

    def _loop(self) -> None:
        throughput = self._throughput
        while True:
            try:
                runnable = self._ready.get(timeout=self._idle)
            except Empty:
                with self._guard:
                    thread = threading.current_thread()
                    if len(self._threads) > 1 or thread not in self._threads:
                        self._threads.pop(thread, None)
                        return
                continue
            self._taken += 1
            if runnable is None:
                if self._leave():
                    return
                continue
            try:
                runnable.run(throughput)
            except BaseException:  # noqa: BLE001 - as above
                self._run_again(runnable)
            runnable = None
