"""Refs to our actors: Pykka's, but cheaper where there are many, and aware of a fork."""

from __future__ import annotations

import uuid
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pykka
from pykka import ActorRef
from pykka.messages import _ActorStop

if TYPE_CHECKING:
    from actors.runtime.mailbox import Mailbox

__all__ = ["DispatchedRef", "ForkedError", "RuntimeRef", "deliver", "mailbox_of"]

A = TypeVar("A", bound="pykka.Actor")


class ForkedError(RuntimeError):
    """Used in a forked child: the threads behind this object live in the parent only. Make a new one here."""


def deliver(ref: ActorRef[Any], message: Any) -> None:
    """Put a message into an actor's mailbox at once. Never raises, never blocks, in program order.

    To an actor that has stopped it becomes a dead letter.
    """
    ref.actor_inbox.put(message)


def mailbox_of(it: pykka.Actor | ActorRef[Any]) -> Mailbox:
    """Return the inbox of an actor of ours, by its true type."""
    return it.actor_inbox  # type: ignore[return-value]


class DispatchedRef(ActorRef[A], Generic[A]):
    """An `ActorRef` that knows when it is a copy in a forked child: there its actor is dead, and to use it an error."""

    __slots__ = ()

    def is_alive(self) -> bool:
        """See `pykka.ActorRef.is_alive`."""
        return not (self.actor_stopped.is_set() or mailbox_of(self).forked)

    def tell(self, message: Any) -> None:
        """See `pykka.ActorRef.tell`. Raises `ForkedError` in a forked child."""
        self._check_forked()
        super().tell(message)

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """See `pykka.ActorRef.ask`. Raises `ForkedError` in a forked child."""
        if type(message) is not _ActorStop:  # a child's `stop_all()` finds the parent's refs, too: dead ones
            self._check_forked()
        return super().ask(message, block=block, timeout=timeout)

    def _check_forked(self) -> None:
        if mailbox_of(self).forked:
            msg = f"{self.actor_class.__name__} belongs to the parent process; make a new one after the fork"
            raise ForkedError(msg)


class RuntimeRef(DispatchedRef[A], Generic[A]):
    """A ref that costs one small object: the rest is made when somebody asks for it."""

    __slots__ = ("_urn", "actor_class", "actor_inbox")

    def __init__(self, actor: A) -> None:
        self.actor_class = actor.__class__
        self.actor_inbox = actor.actor_inbox

    def is_alive(self) -> bool:
        """See `pykka.ActorRef.is_alive`."""
        mailbox = mailbox_of(self)
        return not (mailbox.closed or mailbox.forked)

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
        return _Stopped(mailbox_of(self))

    @property
    def _actor_weakref(self) -> Any:  # type: ignore[override]
        actor = mailbox_of(self).owner
        return _nobody if actor is None else weakref.ref(actor)


def _nobody() -> None:
    return None


class _Stopped:
    """What `actor_stopped` is for an actor whose mailbox says whether it lives."""

    __slots__ = ("_mailbox",)

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def is_set(self) -> bool:
        return self._mailbox.closed
