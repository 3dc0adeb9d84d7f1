"""Timers: one heap, one thread. A timer that fires becomes a message, `TimerFired`, and nothing else."""

from __future__ import annotations

import contextvars
import heapq
import threading
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.runtime.clock import Clock

__all__ = ["TimerFired", "TimerToken", "Timers"]

TimerToken: TypeAlias = list[Any]
"""``[due, number, action]``; opaque to its holder, current by identity. A cancelled one has no action."""


@dataclass(slots=True, eq=False)
class TimerFired:
    """timers -> owner: the timer with this token is due. The owner drops a token that is not current any more."""

    token: TimerToken


class Timers:
    """Deliver messages at instants of the monotonic clock. Operations are heap operations under a lock, no more."""

    def __init__(self, clock: Clock, name: str = "slotkeeper-timers") -> None:
        self._clock = clock
        self._name = name
        self._numbers = count()
        self._condition = threading.Condition(threading.Lock())
        self._heap: list[TimerToken] = []
        self._cancelled = 0
        self._waits_until = float("-inf")
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self) -> None:
        """Start the thread. Raises what `Thread.start` raises; then nothing is left behind."""
        thread = threading.Thread(
            target=contextvars.Context().run, args=(self._loop,), name=self._name, daemon=True
        )
        thread.start()
        self._thread = thread

    def close(self) -> None:
        """Drop every timer and let the thread end."""
        with self._condition:
            self._closed = True
            self._heap.clear()
            self._condition.notify()

    def schedule(self, due: float, ref: Any) -> TimerToken:
        """Deliver `TimerFired(token)` to this actor at this monotonic instant (seconds) or shortly after."""
        token: TimerToken = [due, next(self._numbers), None]
        inbox = ref.actor_inbox
        token[2] = lambda: inbox.put(TimerFired(token))
        self._push(token)
        return token

    def call_at(self, due: float, action: Callable[[], object]) -> TimerToken:
        """Call our own non-blocking function on the timer thread at this instant. Never a user's."""
        token: TimerToken = [due, next(self._numbers), action]
        self._push(token)
        return token

    def cancel(self, token: TimerToken) -> None:
        """Forget this timer. One that is firing at this moment may still arrive; its receiver knows it is not current."""
        with self._condition:
            if token[2] is None:
                return
            token[2] = None
            self._cancelled += 1
            if self._cancelled * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2] is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def __len__(self) -> int:
        with self._condition:
            return len(self._heap) - self._cancelled

    def _push(self, token: TimerToken) -> None:
        with self._condition:
            if self._closed:
                return
            heapq.heappush(self._heap, token)
            if token[0] < self._waits_until:
                self._condition.notify()

    def _take_due(self) -> list[TimerToken]:
        """Wait until something is due and take all that is; nothing only when closed."""
        with self._condition:
            while not self._closed:
                heap = self._heap
                now = self._clock.monotonic()
                due: list[TimerToken] = []
                while heap and (heap[0][2] is None or heap[0][0] <= now):
                    token = heapq.heappop(heap)
                    if token[2] is None:
                        self._cancelled -= 1
                    else:
                        due.append(token)
                if due:
                    return due
                self._waits_until = heap[0][0] if heap else float("inf")
                self._condition.wait(min(self._waits_until - now, threading.TIMEOUT_MAX) if heap else None)
                self._waits_until = float("-inf")
        return []

    def _loop(self) -> None:
        while due := self._take_due():
            for token in due:
                action, token[2] = token[2], None
                try:
                    if action is not None:
                        action()
                except BaseException:  # noqa: BLE001, S110 - one timer must not end the thread that all others need
                    pass
