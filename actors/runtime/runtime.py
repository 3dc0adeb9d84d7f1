"""Everything that the actors share and that is not an actor: dispatchers, timers, clocks, chance, and where bodies run."""

from __future__ import annotations

import os
import random
import threading
import weakref
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from pykka import Timeout

from actors.runtime.actor import ForkedError, _ApplicationDispatcher
from actors.runtime.clock import Clock
from actors.runtime.dispatcher import Dispatcher, ElasticDispatcher
from actors.runtime.mailbox import Mailbox
from actors.runtime.timers import Timers, TimerToken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykka import ActorRef, Future

    from actors.runtime.actor import RuntimeActor

__all__ = ["Bodies", "Calls", "Runtime", "Waitable"]

_LONGEST_WAIT = threading.TIMEOUT_MAX


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
        self._mailbox.attach(self, dispatcher)

    def put(self, call: Callable[[], object]) -> None:
        """Have this called after the ones put before it."""
        self._mailbox.put(call)

    def run_turn(self, items: SimpleQueue[Any], throughput: int) -> None:
        """Call some. For the dispatcher only."""
        while throughput and not items.empty():
            throughput -= 1
            try:
                items.get_nowait()()
            except BaseException:  # noqa: BLE001, S110 - a user's callback; its origin reports what it must
                pass


class Runtime:
    """What actors run on. Nothing runs before `start`; after `close`, nothing does.

    Args:
        bodies: where bodies run.
        dispatchers: threads for our own actors. They never block, so one is enough; more only trade places.
        throughput: messages that one actor handles before the next gets its turn.
        clock: for simulations.
        chance: where jitter comes from.
        new_id: where the numbers of submissions come from; called on any thread.

    """

    def __init__(
        self,
        bodies: Bodies,
        *,
        dispatchers: int = 1,
        throughput: int = 64,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        new_id: Callable[[], Any] = count(1).__next__,
    ) -> None:
        self.bodies = bodies
        self.new_id = new_id
        self.clock = clock or Clock()
        self.random = chance or random.Random()  # noqa: S311 - jitter, not secrets
        self.dispatcher = Dispatcher("slotkeeper-actors", threads=dispatchers, throughput=throughput)
        self.timers = Timers(self.clock)
        self.observers = ElasticDispatcher("slotkeeper-observers", self.clock, self.timers)
        self._state = threading.Lock()
        self._started = False
        self._closed = False
        _live.add(self)

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
        """Start the threads, once. If one can not be started, nothing is left behind and its error is raised."""
        with self._state:
            if self._started:
                return
            self.timers.start()
            try:
                self.dispatcher.start()
            except BaseException:
                self.timers.close()
                raise
            self._started = True

    def close(self) -> None:
        """Let every thread of ours end. A body that is still inside keeps its own thread until it leaves."""
        with self._state:
            if self._closed:
                return
            self._closed = True
        self.bodies.close()
        self.timers.close()
        self.dispatcher.close()
        self.observers.close()

    def join(self, timeout: float) -> None:
        """Wait for our threads after `close`, each at most `timeout` seconds."""
        self.dispatcher.join(timeout)
        self.observers.join(timeout)

    # -- what the simulation does differently ----------------------------------------------------------------------

    def perform(self, actor: RuntimeActor, effects: Sequence[Any]) -> None:
        """Carry out the effects of a handler, in order, each behind its own barrier."""
        for effect in effects:
            try:
                actor.carry_out(effect)
            except BaseException as error:  # noqa: BLE001 - one effect must not cost the ones behind it
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
        """Wait until something is set, or `timeout` seconds; tell whether it is set."""
        return waitable.wait(None if timeout is None or timeout > _LONGEST_WAIT else timeout)

    def reply(self, future: Future[Any], timeout: float | None = None) -> Any:
        """Wait for an actor's reply and return it, or raise it.

        Raises:
            TimeoutError: not there after `timeout` seconds.

        """
        try:
            return future.get(timeout=None if timeout is None or timeout > _LONGEST_WAIT else timeout)
        except Timeout as error:
            msg = f"no reply within {timeout} s"
            raise TimeoutError(msg) from error


_live: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _mark_forked() -> None:
    """In the child of a fork: no thread came along, so say so everywhere, without taking any lock."""
    _ApplicationDispatcher.mark_forked()
    for runtime in list(_live):
        runtime.dispatcher.forked = True
        runtime.observers.forked = True


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_mark_forked)
