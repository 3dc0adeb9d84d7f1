"""What the actors share and is not an actor: dispatchers, timers, clocks, chance, and where bodies run."""

from __future__ import annotations

import contextlib
import contextvars
import os
import random
import secrets
import threading
import weakref
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from pykka import Timeout

from actors.runtime.application import ApplicationDispatcher
from actors.runtime.clock import Clock
from actors.runtime.dispatcher import Dispatcher, ElasticDispatcher
from actors.runtime.mailbox import Mailbox
from actors.runtime.ref import ForkedError
from actors.runtime.timers import Timers, TimerToken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from queue import SimpleQueue

    from pykka import ActorRef, Future

    from actors.runtime.actor import RuntimeActor

__all__ = ["Bodies", "Calls", "Runtime", "Waitable"]

_LONGEST_WAIT = threading.TIMEOUT_MAX
"""Seconds after which a wait has no end."""

_next_number = count(1).__next__


class Bodies(Protocol):
    """Where bodies run. The runtime only keeps it, starts nothing of it, and closes it."""

    def close(self) -> None:
        """Start nothing more."""
        ...


class Waitable(Protocol):
    """Something set once that a thread may wait for."""

    def done(self) -> bool:
        """Whether it is set."""
        ...

    def wait(self, timeout: float | None) -> bool:
        """Wait until it is set or `timeout` seconds are over; tell whether it is set."""
        ...


class Calls:
    """Users' callbacks of one origin: called in order, one at a time, on threads that they may block."""

    __slots__ = ("_mailbox",)

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._mailbox = Mailbox()
        self._mailbox.attach(_caller, dispatcher)

    def put(self, call: Callable[[], object]) -> None:
        """Have this called after the ones put before it."""
        self._mailbox.put(call)


class _Caller:
    """Calls what it finds, each in an empty context: what one binds there must not reach the next."""

    def run_turn(self, items: SimpleQueue[Any], throughput: int) -> None:
        while throughput and not items.empty():
            throughput -= 1
            with contextlib.suppress(BaseException):  # a user's callback; its origin reports what it must
                contextvars.Context().run(items.get_nowait())


_caller = _Caller()


def _random_name() -> str:
    return secrets.token_hex(6)


class Runtime:
    """What actors run on. Nothing runs before `start`; after `close`, nothing does.

    Args:
        bodies: where bodies run.
        dispatchers: threads for our own actors. They never block, so one is enough; more only trade places.
        throughput: messages that one actor handles before the next gets its turn.
        clock: for simulations.
        chance: where jitter comes from.
        new_id: where the numbers of submissions come from; called on any thread.
        new_name: where the names of supervisors in log records come from.

    """

    def __init__(
        self,
        bodies: Bodies,
        *,
        dispatchers: int = 1,
        throughput: int = 64,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        new_id: Callable[[], Any] = _next_number,
        new_name: Callable[[], str] = _random_name,
    ) -> None:
        self.bodies = bodies
        self.new_id = new_id
        self.new_name = new_name
        self.clock = clock or Clock()
        self.random = chance or random.Random()  # noqa: S311 - jitter, not secrets
        self._dispatchers = dispatchers
        self._throughput = throughput
        self._state = threading.Lock()
        self._started = False
        self._closed = False
        self._make_threads()
        _live.add(self)

    def _make_threads(self) -> None:
        self.dispatcher = Dispatcher("slotkeeper-actors", threads=self._dispatchers, throughput=self._throughput)
        self.timers = Timers(self.clock)
        self.observers = ElasticDispatcher("slotkeeper-observers", self.clock, self.timers)

    @property
    def started(self) -> bool:
        """Whether it runs."""
        return self._started and not self._closed

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a forked child, with no thread behind it."""
        return self.dispatcher.forked

    def check_forked(self) -> None:
        """Raise `ForkedError` in a forked child."""
        if self.forked:
            msg = "this supervisor or runtime belongs to the parent process; make a new one after the fork"
            raise ForkedError(msg)

    def start(self) -> None:
        """Start the threads, once. If one can not be started, nothing is left behind and its error is raised.

        Raises:
            RuntimeError: it has been closed.

        """
        self.check_forked()
        with self._state:
            if self._closed:
                msg = "this runtime has been closed; make a new one"
                raise RuntimeError(msg)
            if self._started:
                return
            try:
                self.timers.start()
                self.dispatcher.start()
                self.observers.start()
            except BaseException:
                self._end_threads()
                self._make_threads()  # as if it had not been tried
                raise
            self._started = True

    def close(self) -> None:
        """Let every thread of ours end. A body that is still inside keeps its own thread until it leaves."""
        if self.forked:
            return
        with self._state:
            if self._closed:
                return
            self._closed = True
        try:
            self.bodies.close()
        finally:
            self._end_threads()

    def join(self, timeout: float) -> None:
        """Wait for our threads after `close`, each at most `timeout` seconds."""
        if self.forked:
            return
        for threads in (self.timers, self.dispatcher, self.observers):
            threads.join(timeout)

    def _end_threads(self) -> None:
        for threads in (self.timers, self.dispatcher, self.observers):
            threads.close()

    # -- what the simulation does differently ----------------------------------------------------------------------

    def perform(self, actor: RuntimeActor, effects: Sequence[Any]) -> None:
        """Carry out the effects of a handler, in order, each behind its own barrier."""
        actions = actor.actions
        for effect in effects:
            kind = type(effect)  # pyright: ignore[reportUnknownVariableType]
            try:
                if kind in actions:
                    actions[kind](actor, effect)
                else:
                    effect.perform()
            except BaseException as error:  # noqa: BLE001 - one effect must not cost the ones behind it
                with contextlib.suppress(BaseException):  # nor must what settles it
                    actor.on_effect_fault(effect, error)

    def schedule(self, due: float, ref: ActorRef[Any]) -> TimerToken:
        """Deliver `TimerFired(token)` at this monotonic instant."""
        return self.timers.schedule(due, ref)

    def cancel(self, token: TimerToken) -> None:
        """Forget a timer."""
        self.timers.cancel(token)

    def calls(self) -> Calls:
        """Make a place from which users' callbacks of one origin are called, in order."""
        return Calls(self.observers)

    def wait(self, waitable: Waitable, timeout: float | None = None) -> bool:
        """Wait until something is set, or `timeout` seconds; tell whether it is set.

        Raises:
            RuntimeError: called on a thread of our own, which would wait for itself.

        """
        self._refuse_own_thread()
        return waitable.wait(None if timeout is None or timeout > _LONGEST_WAIT else timeout)

    def reply(self, future: Future[Any], timeout: float | None = None) -> Any:
        """Wait for an actor's reply and return it, or raise it.

        Raises:
            TimeoutError: not there after `timeout` seconds.
            RuntimeError: called on a thread of our own, which would wait for itself.

        """
        self._refuse_own_thread()
        try:
            return future.get(timeout=None if timeout is None or timeout > _LONGEST_WAIT else timeout)
        except Timeout as error:
            msg = f"no reply within {timeout} s"
            raise TimeoutError(msg) from error

    def _refuse_own_thread(self) -> None:
        """A finalizer may run on any thread, and call what it likes."""
        if self.dispatcher.is_own_thread():
            msg = "this thread carries the actors and must not wait for them (called from a finalizer?)"
            raise RuntimeError(msg)


_live: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _mark_forked() -> None:
    """In the child of a fork: no thread came along, so say so everywhere, without taking any lock."""
    ApplicationDispatcher.mark_forked()
    for runtime in list(_live):
        runtime.dispatcher.forked = True
        runtime.observers.forked = True


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_mark_forked)
