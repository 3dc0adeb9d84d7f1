"""The numbers that are shared without an actor: waiting submissions over all slots, and the intake of the face.

Both are an integer behind a lock that is held for a handful of instructions.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from admission.errors import SupervisorClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Budget", "Intake", "closed_error"]


def closed_error() -> SupervisorClosedError:
    """Make the error for whoever comes after shutdown has begun."""
    return SupervisorClosedError("shutdown has begun; nothing more is accepted")


class Budget:
    """At most `limit` units are out at any moment (None = no limit)."""

    __slots__ = ("_limit", "_lock", "_out")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._out = 0
        self._lock = Lock()

    @property
    def out(self) -> int:
        """Units that are out; without a limit nobody counts."""
        return self._out

    def take(self) -> bool:
        """Take a unit; False where none is left."""
        if self._limit is None:
            return True
        with self._lock:
            if self._out >= self._limit:
                return False
            self._out += 1
            return True

    def give(self, units: int = 1) -> None:
        """Give units back."""
        if self._limit is not None:
            with self._lock:
                self._out -= units


class Intake:
    """The gate before a registry: at most `limit` submissions are inside and not yet decided (None = no limit).

    Waiters are let in first come, first served. They are woken when half of the places are free again, not one by one:
    a producer that outruns the registry then works in batches instead of trading a thread switch for each submission.
    """

    __slots__ = ("_closed", "_inside", "_limit", "_lock", "_waiters")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._inside = 0
        self._closed = False
        self._lock = Lock()
        self._waiters: deque[Callable[[bool], bool]] = deque()

    @property
    def inside(self) -> int:
        """Submissions that are handed in and not decided; without a limit nobody counts."""
        return self._inside

    @property
    def closed(self) -> bool:
        """Whether shutdown has begun."""
        return self._closed

    def take(self, waiter: Callable[[bool], bool] | None = None) -> bool:
        """Take a place. Where none is free: False, and `waiter` is called with True once a place is its own.

        A waiter is called with False when the gate closes. It is called on any thread, must not block or raise, and
        says whether somebody still waited: if not, the place goes to the next one.

        Raises:
            SupervisorClosedError: the gate is closed.

        """
        limit = self._limit
        if limit is None:
            if self._closed:
                raise closed_error()
            return True
        with self._lock:  # nothing is made under it: the collector could run a finalizer that comes back here
            closed = self._closed
            if not closed:
                if self._inside < limit:
                    self._inside += 1
                    return True
                if waiter is not None:
                    self._waiters.append(waiter)
        if closed:
            raise closed_error()
        return False

    def withdraw(self, waiter: Callable[[bool], bool]) -> bool:
        """Stop waiting; False where the waiter has been called already and holds a place or the refusal."""
        with self._lock, suppress(ValueError):
            self._waiters.remove(waiter)
            return True
        return False

    def give(self) -> None:
        """Give a place back: the submission is decided."""
        limit = self._limit
        if limit is None:
            return
        with self._lock:
            self._inside -= 1
            waking = self._inside <= limit // 2
        while waking:
            with self._lock:
                if not self._waiters or self._inside >= limit:
                    return
                waiter = self._waiters.popleft()
                self._inside += 1
            if not waiter(True):  # noqa: FBT003
                with self._lock:
                    self._inside -= 1

    def close(self) -> None:
        """Let nobody more in and turn the waiters away."""
        nobody: deque[Callable[[bool], bool]] = deque()
        with self._lock:
            self._closed = True
            waiters, self._waiters = self._waiters, nobody
        for waiter in waiters:
            waiter(False)  # noqa: FBT003
