"""Timers: one heap, one thread. A timer that fires becomes a message, `TimerFired`, and nothing else."""

from __future__ import annotations

import contextlib
import contextvars
import heapq
import threading
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.runtime.clock import Clock

__all__ = ["TimerFired", "TimerToken", "Timers"]

TimerToken: TypeAlias = list[Any]
"""``[due, number, action]``; opaque to its holder, current by identity.

One that is cancelled has no action, one that has left the heap no number.
"""

_DAY = 86_400.0
"""Seconds after which the thread looks at the clock again when nothing is due sooner: every wait primitive takes it."""
_RETRY = 0.005
"""Seconds after which the thread tries again what it could not do."""
_action = itemgetter(2)


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
        # Reentrant: a finalizer of the application that the collector runs under it may set a timer.
        self._condition = threading.Condition(threading.RLock())
        self._heap: list[TimerToken] = []
        self._cancelled = 0
        self._waits_until = float("-inf")
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self) -> None:
        """Start the thread. Raises what `Thread.start` raises; then nothing is left behind."""
        thread = threading.Thread(target=contextvars.Context().run, args=(self._loop,), name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def close(self) -> None:
        """Drop every timer and let the thread end."""
        with self._condition:
            self._closed = True
            self._heap.clear()
            self._cancelled = 0
            self._condition.notify()

    def join(self, timeout: float) -> None:
        """Wait for the thread after `close`, at most `timeout` seconds."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def schedule(self, due: float, ref: Any) -> TimerToken:
        """Deliver `TimerFired(token)` to this actor at this monotonic instant (seconds) or shortly after."""
        return self._push(due, ref.actor_inbox.put)

    def call_at(self, due: float, action: Callable[[], object]) -> TimerToken:
        """Call our own non-blocking function on the timer thread at this instant. Never a user's."""
        return self._push(due, lambda _fired: action())

    def cancel(self, token: TimerToken) -> None:
        """Forget this timer. One that is firing at this moment may still arrive; its receiver knows it is stale."""
        with self._condition:
            if token[2] is None:
                return
            token[2] = None
            if token[1] is None:
                return  # taken, and about to fire
            self._cancelled += 1
            if self._cancelled * 2 > len(self._heap):
                self._heap[:] = filter(_action, self._heap)
                heapq.heapify(self._heap)
                self._cancelled = 0

    def __len__(self) -> int:
        with self._condition:
            return len(self._heap) - self._cancelled

    def _push(self, due: float, action: Callable[[TimerFired], object]) -> TimerToken:
        if not due >= float("-inf"):
            msg = f"a timer is due at an instant, not at {due}"  # NaN: it has no place in a heap
            raise ValueError(msg)
        token: TimerToken = [due, next(self._numbers), action]
        with self._condition:
            if not self._closed:
                heapq.heappush(self._heap, token)
                if due < self._waits_until:
                    self._condition.notify()
        return token

    def _take_due(self) -> list[TimerToken]:
        """Wait until something is due and take all that is; nothing only when closed."""
        with self._condition:
            while not self._closed:
                heap = self._heap
                now = self._clock.monotonic()
                due: list[TimerToken] = []
                while heap and (heap[0][2] is None or heap[0][0] <= now):
                    token = heapq.heappop(heap)
                    token[1] = None
                    if token[2] is None:
                        self._cancelled -= 1
                    else:
                        due.append(token)
                if due:
                    return due
                self._waits_until = heap[0][0] if heap else float("inf")
                self._condition.wait(min(self._waits_until, now + _DAY) - now if heap else None)
                self._waits_until = float("-inf")
        return []

    def _loop(self) -> None:
        while True:
            try:
                if not self._fire(self._take_due()):
                    return
            except BaseException:  # noqa: BLE001 - out of memory: the thread that all timers need tries again
                with contextlib.suppress(BaseException), self._condition:
                    self._waits_until = float("-inf")
                    self._condition.wait(_RETRY)

    def _fire(self, due: list[TimerToken]) -> bool:
        """Fire these; tell whether there were any. An idle thread keeps nothing of them alive."""
        for token in due:
            action, token[2] = token[2], None
            try:
                if action is not None:  # not cancelled since it was taken
                    action(TimerFired(token))
            except BaseException:  # noqa: BLE001, S110 - one timer must not end the thread that all others need
                pass
        return bool(due)
