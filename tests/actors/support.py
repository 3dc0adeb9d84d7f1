"""What the tests of the actors share: bodies with gates, a log to read, and bounded waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

SOON = 2.0
"""Seconds after which something that has not happened never will."""


class Body:
    """A body that says when it is inside, and stays there until it is let go or, unless stubborn, asked to stop.

    Itself it runs in a thread; `coroutine` is the same on the event loop, and `awaitable` a call in a thread that
    returns an awaitable.
    """

    def __init__(self, value=None, *, stubborn=False, raises=None):
        self.value = value
        self.stubborn = stubborn
        self.raises = raises
        self.runs = 0
        self.entered = threading.Event()
        self.left = threading.Event()
        self.open = threading.Event()
        self.ctx = None

    def __call__(self, ctx, *args, **kwargs):
        self._enter(ctx)
        try:
            while not self.open.wait(30 if self.stubborn else 0.002):
                if not self.stubborn:
                    ctx.raise_if_cancelled()
            return self._end()
        finally:
            self.left.set()

    async def coroutine(self, ctx, *args, **kwargs):
        self._enter(ctx)
        try:
            while not self.open.is_set():
                try:
                    await asyncio.sleep(0.002)
                except asyncio.CancelledError:
                    if not self.stubborn:
                        raise
            return self._end()
        finally:
            self.left.set()

    def awaitable(self, ctx, *args, **kwargs):
        return self.coroutine(ctx, *args, **kwargs)

    def _enter(self, ctx):
        self.ctx = ctx
        self.runs += 1
        self.left.clear()
        self.entered.set()

    def _end(self):
        if self.raises is not None:
            raise self.raises
        return self.value

    def let_go(self):
        self.open.set()

    def is_inside(self):
        return self.entered.wait(SOON) and not self.left.is_set()


class Gauge:
    """How many bodies are inside one key at the same time, at most."""

    def __init__(self):
        self.most = Counter()
        self._inside = Counter()
        self._lock = threading.Lock()

    def __call__(self, body):
        def gauged(ctx, *args, **kwargs):
            with self._lock:
                self._inside[ctx.slot] += 1
                self.most[ctx.slot] = max(self.most[ctx.slot], self._inside[ctx.slot])
            try:
                return body(ctx, *args, **kwargs)
            finally:
                with self._lock:
                    self._inside[ctx.slot] -= 1

        return gauged


class Log:
    """A logger that keeps its records as (event, fields)."""

    def __init__(self):
        self.records = []

    def _write(self, event, **fields):
        self.records.append((event, fields))

    debug = info = warning = error = critical = _write

    def events(self, slot=None):
        return [event for event, fields in self.records if slot is None or fields.get("slot") == slot]

    def of(self, event):
        return [fields for name, fields in self.records if name == event]


def outcome_of(handle, timeout=SOON):
    return handle.outcome(timeout)


def noop(_ctx):
    return "done"


def eventually(condition, timeout=SOON):
    """Look until it is so. For what sends no signal, such as a thread that ends; never for order."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def our_threads():
    """Threads of supervisors and runtimes; the dispatcher of the application's own actors stays."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("slotkeeper-") and not thread.name.startswith("slotkeeper-application")
    ]


def call_in_thread(function, *args, **kwargs):
    """Call it on a thread of its own; returns a function that joins it and gives the result or raises the error."""
    result = []

    def call():
        try:
            result.append((True, function(*args, **kwargs)))
        except BaseException as error:  # noqa: BLE001 - handed to the joiner
            result.append((False, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()

    def join(timeout=SOON):
        thread.join(timeout)
        assert not thread.is_alive(), "still not back"
        ok, value = result[0]
        if ok:
            return value
        raise value

    return join
