"""Actors of the application: everything that Pykka documents for `ThreadingActor`, on threads that they share."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

import pykka
from pykka import ActorRegistry, ThreadingFuture
from pykka._envelope import Envelope

from actors.runtime.clock import Clock
from actors.runtime.dispatcher import ElasticDispatcher
from actors.runtime.mailbox import Mailbox
from actors.runtime.ref import DispatchedRef, mailbox_of
from actors.runtime.registration import log, register, unregister
from actors.runtime.reply import set_once, set_once_exception
from actors.runtime.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue
    from types import TracebackType

    from pykka import ActorRef, Future

__all__ = ["ApplicationDispatcher", "DispatchedActor"]


class ApplicationDispatcher:
    """The dispatcher that application actors share, started on first use."""

    _lock = threading.RLock()
    _current: ElasticDispatcher | None = None

    @classmethod
    def get(cls) -> ElasticDispatcher:
        """Return it; a new one in a forked child. Raises if the thread of its timers can not be started."""
        with cls._lock:
            if cls._current is None or cls._current.forked:
                clock = Clock()
                timers = Timers(clock, name="slotkeeper-application-timers")
                timers.start()
                cls._current = ElasticDispatcher("slotkeeper-application", clock, timers)
            return cls._current

    @classmethod
    def mark_forked(cls) -> None:
        """Let go of the one that stayed in the parent, without taking a lock that a thread there may have held."""
        cls._lock = threading.RLock()
        if cls._current is not None:
            cls._current.forked = True


class DispatchedActor(pykka.Actor):
    """A drop-in for `pykka.ThreadingActor` that has a thread only while it handles messages.

    Hooks, proxies, replies, failures and `ActorRegistry` mean what Pykka's documentation says. Handlers may block: the
    dispatcher they share adds a thread when messages are ready and no thread takes one for 5 ms. Unlike a
    `ThreadingActor`, such an actor does not keep the interpreter alive.
    """

    throughput = 16
    """Messages handled in one turn, before other actors get theirs. Read when the actor starts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._actor_ref = DispatchedRef(self)

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> ActorRef[Self]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start an actor, see `pykka.Actor.start`. If that raises, nothing stays registered or waited for."""
        actor = cls(*args, **kwargs)
        ref = actor.actor_ref
        try:
            register(ref)
            log(logging.DEBUG, "Starting {}", actor)
            actor._start_actor_loop()
        except BaseException:
            _give_up(actor)
            raise
        return ref

    @staticmethod
    def _create_actor_inbox() -> Any:
        return Mailbox()

    @staticmethod
    def _create_future() -> Future[Any]:
        return ThreadingFuture()

    def _start_actor_loop(self) -> None:
        mailbox_of(self).attach(_Loop(self), ApplicationDispatcher.get())

    # Two of Pykka's own steps, so that each gets to its end: Pykka logs in the middle of them.

    def _stop(self) -> None:
        unregister(self.actor_ref)
        self.actor_stopped.set()
        log(logging.DEBUG, "Stopped {}", self)
        _guarded(self, self.on_stop)

    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        error = (exception_type, exception_value, traceback)
        log(logging.ERROR, "Unhandled exception in {}:", self, exc_info=error)
        unregister(self.actor_ref)
        self.actor_stopped.set()


class _Loop:
    """Pykka's actor loop, cut into turns. Not part of the actor, where every name but Pykka's is the application's."""

    __slots__ = ("_actor", "_context", "_set_up", "_throughput")

    def __init__(self, actor: DispatchedActor) -> None:
        self._actor = actor
        self._context = contextvars.Context()  # what one message sets the next one sees, and no other actor
        self._set_up = False
        self._throughput = max(1, actor.throughput)

    def run_turn(self, items: SimpleQueue[Any], throughput: int) -> None:
        self._context.run(self._run_turn, items, min(throughput, self._throughput))

    def _run_turn(self, items: SimpleQueue[Any], throughput: int) -> None:
        actor = self._actor
        stopped = actor.actor_stopped
        try:
            if not self._set_up:
                self._set_up = True
                _guarded(actor, actor.on_start)
            while throughput and not stopped.is_set() and not items.empty():
                throughput -= 1
                _receive(actor, items.get_nowait())
        except BaseException:
            # A hook raised what is no `Exception`. Pykka's thread would end here; ours goes on without this actor.
            _give_up(actor)
            raise
        if stopped.is_set():
            mailbox_of(actor).close()


class _StopAll:
    """Stops every actor, in a turn of its own: it waits for them, and they may wait for what is running now."""

    def run(self, _throughput: int, /) -> None:
        ActorRegistry.stop_all()


def _receive(actor: DispatchedActor, item: Any) -> None:
    envelope: Envelope[Any] = item if type(item) is Envelope else Envelope(item)  # pyright: ignore[reportUnknownVariableType]
    reply_to = envelope.reply_to
    try:
        response = actor._handle_receive(envelope.message)  # noqa: SLF001
        if reply_to is not None:
            set_once(reply_to, response)
    except Exception as error:  # noqa: BLE001 - the caller's, or the end of this actor
        if reply_to is not None:
            log(logging.INFO, "Exception returned from {} to caller:", actor, exc_info=sys.exc_info())
            set_once_exception(reply_to, error)
        else:
            actor._handle_failure(*sys.exc_info())  # noqa: SLF001
            _guarded(actor, actor.on_failure, *sys.exc_info())
    except BaseException as error:  # noqa: BLE001 - Pykka's rule: stop every actor
        if reply_to is not None:
            set_once_exception(reply_to, error)
        log(logging.DEBUG, "{!r} in {}. Stopping all actors.", error, actor)
        with contextlib.suppress(BaseException):
            actor._stop()  # noqa: SLF001
        ApplicationDispatcher.get().schedule(_StopAll())


def _guarded(actor: DispatchedActor, hook: Callable[..., Any], *args: Any) -> None:
    try:
        hook(*args)
    except Exception:  # noqa: BLE001 - Pykka's rule: logged, and the actor stops
        actor._handle_failure(*sys.exc_info())  # noqa: SLF001


def _give_up(actor: DispatchedActor) -> None:
    unregister(actor.actor_ref)
    actor.actor_stopped.set()
    mailbox_of(actor).close()
