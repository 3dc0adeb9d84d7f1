"""Actors of this library: they never block, a fault costs them one message and not their life.

They are cheap enough to have a million of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import pykka
from pykka import ActorDeadError, ThreadingFuture
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from actors.runtime.mailbox import Mailbox
from actors.runtime.ref import RuntimeRef
from actors.runtime.registration import register, unregister
from actors.runtime.reply import Deferred, set_once, set_once_exception

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from queue import SimpleQueue

    from pykka import ActorRef, Future

    from actors.runtime.dispatcher import Dispatcher
    from actors.runtime.runtime import Runtime

__all__ = ["RuntimeActor"]


class RuntimeActor(pykka.Actor):
    """An actor of this library, on the runtime's own dispatcher. Handlers never block and never wait.

    A handler decides, assigns, and hands its effects to `runtime.perform`. If it raises, `on_fault` settles what the
    message stood for and the actor lives on: nobody watches for its death because it does not die.
    """

    handlers: ClassVar[Mapping[type, Callable[[Any, Any], Any]]] = {}
    """How each type of message is handled; `on_receive` gets the others."""
    actions: ClassVar[Mapping[type, Callable[[Any, Any], Any]]] = {}
    """How each type of effect is carried out; the others carry themselves out by `perform`."""
    _registered = False
    _ref: RuntimeRef[Self] | None = None
    _promised: dict[Deferred, None] | None = None

    def __init__(self, runtime: Runtime) -> None:
        # Not Pykka's constructor: its uuid, event and four references are most of what an idle actor would weigh.
        self.runtime = runtime
        self.actor_inbox = Mailbox()

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> ActorRef[Self]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start the actor and register it in Pykka's `ActorRegistry`."""
        actor = cls(*args, **kwargs)
        actor._registered = True
        try:
            register(actor.actor_ref)
            actor._start_actor_loop()
        except BaseException:
            actor.end()
            raise
        return actor.actor_ref

    @classmethod
    def spawn(cls, *args: Any, **kwargs: Any) -> ActorRef[Self]:
        """Start the actor as a child: known to whoever holds the ref, and to no registry or log."""
        actor = cls(*args, **kwargs)
        actor.attach()
        return actor.actor_ref

    def attach(self) -> None:
        """Connect the mailbox to its dispatcher: from here on messages are handled."""
        self.actor_inbox.attach(self, self._choose_dispatcher())  # type: ignore[attr-defined]

    @staticmethod
    def _create_actor_inbox() -> Any:
        return Mailbox()

    @staticmethod
    def _create_future() -> Future[Any]:
        return ThreadingFuture()

    def _start_actor_loop(self) -> None:
        self.attach()

    def _choose_dispatcher(self) -> Dispatcher:
        return self.runtime.dispatcher

    @property
    def mailbox(self) -> Mailbox:
        """The inbox, by its true type."""
        return self.actor_inbox  # type: ignore[return-value]

    @property
    def actor_ref(self) -> ActorRef[Self]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """See `pykka.Actor.actor_ref`. Made on first use: most workers are only known by their mailbox."""
        ref = self._ref
        if ref is None:
            ref = self._ref = RuntimeRef(self)
        return ref

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """See `pykka.Actor.actor_urn`."""
        return self.actor_ref.actor_urn

    @property
    def actor_stopped(self) -> Any:  # type: ignore[override]
        """See `pykka.Actor.actor_stopped`."""
        return self.actor_ref.actor_stopped

    def run_turn(self, items: SimpleQueue[Any], throughput: int) -> None:
        """Handle up to `throughput` messages, each behind its own fault barrier. For the dispatcher only."""
        mailbox: Any = self.actor_inbox
        handlers, take = self.handlers, items.get_nowait
        left = items.qsize()
        if left > throughput:  # noqa: PLR1730 - a call of `min` for every turn
            left = throughput
        while left and not mailbox.closed:
            left -= 1
            message = take()  # there is one: an open mailbox has no other reader
            kind = type(message)  # pyright: ignore[reportUnknownVariableType]
            try:
                if kind in handlers:
                    handlers[kind](self, message)
                elif kind is Envelope:
                    self._answer(message)  # pyright: ignore[reportUnknownArgumentType]
                else:
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
        try:
            self._reply(reply_to, response)
        except BaseException as error:  # noqa: BLE001 - the message has been handled: only its reply has failed
            set_once_exception(reply_to, error)

    def _reply(self, reply_to: Future[Any], response: Any) -> None:
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
        promised = self._promised
        if promised is not None:
            promised.pop(deferred, None)

    def _faulted(self, message: Any, error: BaseException) -> Any:
        try:
            return self.on_fault(message, error)
        except BaseException as second:  # noqa: BLE001 - a fault of the fault handler; still not the actor's end
            return second

    # -- for subclasses ------------------------------------------------------------------------------------------

    def on_receive(self, message: Any) -> Any:
        """Handle one message; what it returns, maybe a Deferred, answers an asker."""
        return self.handlers[type(message)](self, message)

    def on_fault(self, message: Any, error: BaseException) -> Any:  # noqa: ARG002
        """Settle what a message stood for whose handler raised `error`. What it returns answers an asker."""
        return error

    def on_stop_requested(self) -> Any:
        """Answer `ref.stop()`. What it returns, maybe a Deferred, is the reply."""
        self.end()

    def on_effect_fault(self, effect: Any, error: BaseException) -> None:
        """Settle an effect that raised `error`."""

    def end(self) -> None:
        """Stop, at once: what is in the mailbox becomes dead letters, promised replies become errors."""
        if self._registered:
            self._unregister()
        promised = self._promised
        while promised:
            deferred, _ = promised.popitem()  # one by one: whoever holds one may set it meanwhile
            deferred.fail(ActorDeadError(f"{type(self).__name__} stopped before it replied"))
        self.actor_inbox.close()  # type: ignore[attr-defined]

    def _unregister(self) -> None:
        if self._registered:  # to look for a child there would cost a scan of all that are
            self._registered = False
            unregister(self.actor_ref)
