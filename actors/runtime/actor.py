"""Actors without a thread of their own, in two kinds.

`DispatchedActor` is for applications: everything that Pykka documents for `ThreadingActor`, on an elastic dispatcher.
`RuntimeActor` is for the actors of this library: it never blocks, a fault costs it one message and not its life, and it
is cheap enough to have a million of them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import uuid
import weakref
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pykka
from pykka import ActorDeadError, ActorRef, ActorRegistry, ThreadingFuture
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from actors.runtime.clock import Clock
from actors.runtime.dispatcher import Dispatcher, ElasticDispatcher
from actors.runtime.mailbox import Mailbox, set_once, set_once_exception
from actors.runtime.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from pykka import Future

    from actors.runtime.runtime import Runtime

__all__ = ["Deferred", "DispatchedActor", "DispatchedRef", "ForkedError", "RuntimeActor", "deliver"]

A = TypeVar("A", bound="pykka.Actor")


class ForkedError(RuntimeError):
    """Used in a forked child: the threads behind this object live in the parent only. Make a new one here."""


def deliver(ref: ActorRef[Any], message: Any) -> None:
    """Put a message into an actor's mailbox at once. Never raises, never blocks, in program order.

    To an actor that has stopped it becomes a dead letter.
    """
    ref.actor_inbox.put(message)


class Deferred:
    """A reply that a handler promises. Whoever holds it sets it once, later; setting it again does nothing."""

    __slots__ = ("_done", "_forget", "_future", "_outcome")

    def __init__(self) -> None:
        self._future: Future[Any] | None = None
        self._forget: Callable[[Deferred], object] | None = None
        self._outcome: tuple[bool, Any] | None = None
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the reply is there."""
        return self._outcome is not None

    def set(self, value: Any = None) -> None:
        """Reply with a value."""
        self._settle(ok=True, value=value)

    def fail(self, error: BaseException) -> None:
        """Reply with an error."""
        self._settle(ok=False, value=error)

    def bind(self, future: Future[Any], forget: Callable[[Deferred], object]) -> None:
        """Connect the waiting future; `forget` is called once the reply has left. For the runtime only."""
        self._future, self._forget = future, forget
        self._reply()

    def _settle(self, *, ok: bool, value: Any) -> None:
        if self._outcome is None:
            self._outcome = (ok, value)
            self._reply()

    def _reply(self) -> None:
        if self._outcome is None or self._future is None:
            return
        future, self._future = self._future, None
        ok, value = self._outcome
        if ok:
            set_once(future, value)
        else:
            set_once_exception(future, value)
        if self._forget is not None:
            self._forget(self)


# -- actors of the application -------------------------------------------------------------------------------------


class _ApplicationDispatcher:
    """The dispatcher that application actors share, started on first use."""

    _lock = threading.Lock()
    _current: ElasticDispatcher | None = None

    @classmethod
    def get(cls) -> ElasticDispatcher:
        with cls._lock:
            if cls._current is None or cls._current.forked:
                clock = Clock()
                timers = Timers(clock, name="slotkeeper-application-timers")
                timers.start()
                cls._current = ElasticDispatcher("slotkeeper-application", clock, timers)
            return cls._current

    @classmethod
    def mark_forked(cls) -> None:
        cls._lock = threading.Lock()  # the parent may have held it at the fork
        if cls._current is not None:
            cls._current.forked = True


class DispatchedActor(pykka.Actor):
    """A drop-in for `pykka.ThreadingActor` that has a thread only while it handles messages.

    Hooks, proxies, replies, failures and `ActorRegistry` mean what Pykka's documentation says. Handlers may block: the
    dispatcher they share adds a thread when messages are ready and no thread takes one for 5 ms. Unlike a
    `ThreadingActor`, such an actor does not keep the interpreter alive.
    """

    throughput = 16
    """Messages handled in one turn, before other actors get theirs."""

    _set_up = False

    @staticmethod
    def _create_actor_inbox() -> Any:
        return Mailbox()

    @staticmethod
    def _create_future() -> Future[Any]:
        return ThreadingFuture()

    def _start_actor_loop(self) -> None:
        self.actor_inbox.attach(self, _ApplicationDispatcher.get())  # type: ignore[attr-defined]

    def run_turn(self, items: SimpleQueue[Any], throughput: int) -> None:
        """Handle some messages, as Pykka's actor loop does. For the dispatcher only."""
        try:
            if not self._set_up:
                self._set_up = True
                self._guarded(self.on_start)
            left = min(throughput, self.throughput)
            while left and not self.actor_stopped.is_set() and not items.empty():
                left -= 1
                self._receive(items.get_nowait())
        except BaseException:
            # Whatever escapes here is a fault of the failure path itself: the actor ends, the thread goes on.
            self._end()
            raise
        if self.actor_stopped.is_set():
            self._end()

    def _end(self) -> None:
        self.actor_stopped.set()
        with contextlib.suppress(BaseException):
            ActorRegistry.unregister(self.actor_ref)
        self.actor_inbox.close()  # type: ignore[attr-defined]

    def _guarded(self, hook: Callable[..., Any], *args: Any) -> None:
        try:
            hook(*args)
        except Exception:  # noqa: BLE001 - Pykka's rule: logged, and the actor stops
            self._handle_failure(*sys.exc_info())

    def _receive(self, item: Any) -> None:
        envelope = item if type(item) is Envelope else Envelope(item)
        reply_to = envelope.reply_to
        try:
            response = self._handle_receive(envelope.message)
            if reply_to is not None:
                set_once(reply_to, response)
        except Exception as error:  # noqa: BLE001 - the caller's, or the end of this actor
            if reply_to is not None:
                set_once_exception(reply_to, error)
                with contextlib.suppress(Exception):
                    _log_returned(self)
            else:
                self._handle_failure(*sys.exc_info())
                self._guarded(self.on_failure, *sys.exc_info())
        except BaseException as error:  # noqa: BLE001 - Pykka's rule: stop every actor
            if reply_to is not None:
                set_once_exception(reply_to, error)
            with contextlib.suppress(BaseException):
                self._stop()
            self.actor_stopped.set()
            # On a thread of its own: stopping waits, and this thread may be the one that others need to stop.
            threading.Thread(target=ActorRegistry.stop_all, name="slotkeeper-stop-all", daemon=True).start()


def _log_returned(actor: pykka.Actor) -> None:
    from pykka._actor import logger  # noqa: PLC0415 - Pykka's own logger, under its own name

    logger.info(f"Exception returned from {actor} to caller:", exc_info=sys.exc_info())


# -- actors of this library ----------------------------------------------------------------------------------------


class _Stopped:
    """What `actor_stopped` is for an actor whose mailbox says whether it lives."""

    __slots__ = ("_mailbox",)

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def is_set(self) -> bool:
        return self._mailbox.closed


class DispatchedRef(ActorRef[A], Generic[A]):
    """An `ActorRef` that costs one small object: the rest is made when somebody asks for it."""

    __slots__ = ("_urn", "actor_class", "actor_inbox")

    def __init__(self, actor: A) -> None:
        self.actor_class = actor.__class__
        self.actor_inbox = actor.actor_inbox

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """See `pykka.Actor.actor_urn`."""
        try:
            return self._urn
        except AttributeError:
            self._urn: str = uuid.uuid4().urn
            return self._urn

    @property
    def actor_stopped(self) -> Any:  # type: ignore[override]
        """See `pykka.Actor.actor_stopped`."""
        return _Stopped(self.actor_inbox)  # type: ignore[arg-type]

    @property
    def _actor_weakref(self) -> Any:
        actor = self.actor_inbox.owner  # type: ignore[attr-defined]
        return (lambda: None) if actor is None else weakref.ref(actor)

    def is_alive(self) -> bool:
        """See `pykka.ActorRef.is_alive`."""
        return not self.actor_inbox.closed  # type: ignore[attr-defined]

    def tell(self, message: Any) -> None:
        """See `pykka.ActorRef.tell`. Raises `ForkedError` in a forked child."""
        self._check_forked()
        super().tell(message)

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """See `pykka.ActorRef.ask`. Raises `ForkedError` in a forked child."""
        self._check_forked()
        return super().ask(message, block=block, timeout=timeout)

    def _check_forked(self) -> None:
        dispatcher: Dispatcher | None = self.actor_inbox.dispatcher  # type: ignore[attr-defined]
        if dispatcher is not None and dispatcher.forked:
            msg = f"{self.actor_class.__name__} belongs to the parent process; make a new one after the fork"
            raise ForkedError(msg)


class RuntimeActor(pykka.Actor):
    """An actor of this library, on the runtime's own dispatcher. Handlers never block and never wait.

    A handler decides, assigns, and hands its effects to `runtime.perform`. If it raises, `on_fault` settles what the
    message stood for and the actor lives on: nobody watches for its death because it does not die.
    """

    def __init__(self, runtime: Runtime) -> None:
        # Not Pykka's constructor: its uuid, event and four references are most of what an idle actor would weigh.
        self.runtime = runtime
        self.actor_inbox = Mailbox()
        self._actor_ref = DispatchedRef(self)
        self._promised: dict[Deferred, None] | None = None

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> ActorRef[Self]:
        """Start the actor and register it in Pykka's `ActorRegistry`."""
        actor = cls(*args, **kwargs)
        try:
            ActorRegistry.register(actor.actor_ref)
        except BaseException:  # a log filter of the application raised; what was registered is not kept
            actor._unregister()  # noqa: SLF001
            raise
        actor._start_actor_loop()  # noqa: SLF001
        return actor.actor_ref

    @classmethod
    def spawn(cls, *args: Any, **kwargs: Any) -> ActorRef[Self]:
        """Start the actor as a child: known to whoever holds the ref, and to no registry or log."""
        actor = cls(*args, **kwargs)
        actor._start_actor_loop()  # noqa: SLF001
        return actor.actor_ref

    @staticmethod
    def _create_actor_inbox() -> Any:
        return Mailbox()

    @staticmethod
    def _create_future() -> Future[Any]:
        return ThreadingFuture()

    def _start_actor_loop(self) -> None:
        self.mailbox.attach(self, self._choose_dispatcher())

    def _choose_dispatcher(self) -> Dispatcher:
        return self.runtime.dispatcher

    @property
    def mailbox(self) -> Mailbox:
        """The inbox, by its true type."""
        return self.actor_inbox  # type: ignore[return-value]

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """See `pykka.Actor.actor_urn`."""
        return self._actor_ref.actor_urn

    @property
    def actor_stopped(self) -> Any:  # type: ignore[override]
        """See `pykka.Actor.actor_stopped`."""
        return self._actor_ref.actor_stopped

    def run_turn(self, items: SimpleQueue[Any], throughput: int) -> None:
        """Handle up to `throughput` messages, each behind its own fault barrier. For the dispatcher only."""
        mailbox = self.mailbox
        while throughput and not mailbox.closed and not items.empty():
            throughput -= 1
            message = items.get_nowait()
            if type(message) is Envelope:
                self._answer(message)
                continue
            try:
                self.on_receive(message)
            except BaseException as error:  # noqa: BLE001 - the barrier: nothing ends this actor but itself
                self._faulted(message, error)

    def _answer(self, envelope: Envelope[Any]) -> None:
        message, reply_to = envelope.message, envelope.reply_to
        try:
            stop = isinstance(message, _ActorStop)
            response = self.on_stop_requested() if stop else self._handle_receive(message)
        except BaseException as error:  # noqa: BLE001 - the barrier, as above
            response = self._faulted(message, error)
        if reply_to is None:
            return
        if isinstance(response, Deferred):
            if self._promised is None:
                self._promised = {}
            self._promised[response] = None
            response.bind(reply_to, self._forget)
        elif isinstance(response, BaseException):
            set_once_exception(reply_to, response)
        else:
            set_once(reply_to, response)

    def _forget(self, deferred: Deferred) -> None:
        if self._promised is not None:
            self._promised.pop(deferred, None)

    def _faulted(self, message: Any, error: BaseException) -> Any:
        try:
            return self.on_fault(message, error)
        except BaseException as second:  # noqa: BLE001 - a fault of the fault handler; still not the actor's end
            return second

    # -- for subclasses ------------------------------------------------------------------------------------------

    def on_fault(self, message: Any, error: BaseException) -> Any:  # noqa: ARG002
        """Settle what a message stood for whose handler raised `error`. What it returns answers an asker."""
        return error

    def on_stop_requested(self) -> Any:
        """Answer `ref.stop()`. What it returns, maybe a Deferred, is the reply."""
        self.end()

    def carry_out(self, effect: Any) -> None:
        """Carry out one effect of a handler."""
        effect.perform()

    def on_effect_fault(self, effect: Any, error: BaseException) -> None:
        """Settle an effect that raised `error`."""

    def end(self) -> None:
        """Stop, at once: what is in the mailbox becomes dead letters, promised replies become errors."""
        self._unregister()
        promised, self._promised = self._promised, None
        for deferred in promised or ():
            deferred.fail(ActorDeadError(f"{type(self).__name__} stopped before it replied"))
        self.mailbox.close()

    def _unregister(self) -> None:
        with contextlib.suppress(BaseException):  # Pykka logs here, and an application's log filter may raise
            if self.actor_ref in ActorRegistry.get_all():
                ActorRegistry.unregister(self.actor_ref)
