"""What the tests of the runtime share: dispatchers and timers worked by hand, a fake clock, and bounded waits."""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pykka

from actors.runtime import RuntimeActor, Timers, Undeliverable

if TYPE_CHECKING:
    import queue

WAIT = 5.0
"""Seconds after which something that has not happened never will."""

ESCAPING = [ValueError("x"), MemoryError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError()]
"""What an item may raise; a loop of ours survives each."""


class NoBodies:
    """Bodies for a runtime that runs none."""

    closed = 0

    def close(self):
        self.closed += 1


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now=1000.0):
        self.now = now

    def monotonic(self):
        return self.now

    def wall(self):
        return self.now


class HandDispatcher:
    """Keeps what is scheduled until `run_all` runs it, in this thread."""

    forked = False

    def __init__(self):
        self.ready = []

    def schedule(self, runnable):
        self.ready.append(runnable)

    def run_next(self, throughput=64):
        self.ready.pop(0).run(throughput)

    def run_all(self, throughput=64):
        while self.ready:
            self.run_next(throughput)


class HandTimers:
    """Keeps what is to be called, until `fire` calls it, in this thread."""

    def __init__(self):
        self.armed = []

    def call_at(self, due, action):
        self.armed.append((due, action))

    def fire(self):
        armed, self.armed = self.armed, []
        for _, action in armed:
            action()


class HandRuntime:
    """A runtime whose actors take their turns when `dispatcher.run_all` says so."""

    def __init__(self):
        self.dispatcher = HandDispatcher()


def fire_due(timers: Timers) -> None:
    """Fire what is due by the timers' clock, in this thread; something must be."""
    timers._fire(timers._take_due())


class Turn:
    """Something to schedule: runs a function."""

    def __init__(self, function):
        self.function = function

    def run(self, throughput):
        self.function()


class Letter(Undeliverable):
    """A message that counts how often it was given back."""

    def __init__(self):
        self.returned = 0

    def undelivered(self):
        self.returned += 1


class Collector(RuntimeActor):
    """Keeps what it is told, in order, and says when it has `enough`."""

    def __init__(self, runtime, enough=1):
        super().__init__(runtime)
        self.got = []
        self.left = enough
        self.done = threading.Event()

    def on_receive(self, message):
        self.got.append(message)
        self.left -= 1
        if not self.left:
            self.done.set()


class Pause:
    """A place where a thread waits until the test lets it go on."""

    def __init__(self):
        self.reached = threading.Event()
        self._go = threading.Event()

    def __call__(self):
        self.reached.set()
        assert self._go.wait(4 * WAIT)  # longer than whoever waits for what is behind it

    def let_go(self):
        self._go.set()


class Bystander(pykka.ThreadingActor):
    """An actor of somebody else's."""

    use_daemon_thread = True


class Unprintable(BaseException):
    def __repr__(self):
        raise RuntimeError("no text")

    __str__ = __repr__


class Hostile:
    """A message that does not even say what it is."""

    def _refuse(self):
        raise RuntimeError("no class")

    __class__ = property(_refuse)


@contextmanager
def without_collector():
    """Only reference counting frees anything inside."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def failing_thread_starts(monkeypatch, prefix, fails):
    """Starting a thread with such a name fails, the n-th time, where `fails(n)`; yields the names tried."""
    start = threading.Thread.start
    tried = []

    def start_or_fail(thread):
        if thread.name.startswith(prefix):
            tried.append(thread.name)
            if fails(len(tried)):
                raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_or_fail)
        yield tried


def in_turn(*functions):
    """Return a function that calls these, one after the other."""

    def call():
        for function in functions:
            function()

    return call


def drained(items: queue.SimpleQueue[Any]) -> list[Any]:
    taken = []
    while not items.empty():
        taken.append(items.get_nowait())
    return taken


def threads_named(prefix):
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]
