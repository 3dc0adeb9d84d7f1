"""Subscribers of lifecycle events: each behind a bounded queue of its own, on threads that it may block.

Whoever publishes only puts events into queues. What a subscriber does, and how long it takes, is its own business: it
is told one event after the other, what does not fit into its queue is lost for it alone and counted, and what it raises
is reported to the others.
"""

from __future__ import annotations

import inspect
import threading
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from queue import Empty
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

from pykka import ActorDeadError, ActorRef

from actors.messages import Flush, Flushed
from actors.runtime import Mailbox, deliver
from admission.checks import check_count, check_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from queue import SimpleQueue

    from actors.publisher import Publisher
    from actors.runtime import Runtime
    from admission.events import Event

__all__ = [
    "CAPACITY",
    "Listener",
    "Subscriber",
    "Subscription",
    "TakesEvents",
    "Wanted",
    "check_subscriber",
    "check_subscribers",
]

CAPACITY: Final = 1024
"""Events that wait for one subscriber unless it says otherwise."""


class TakesEvents(Protocol):
    """A subscriber that is an object."""

    def on_event(self, event: Event, /) -> object:
        """Take one event. May block, and may raise."""
        ...


Subscriber: TypeAlias = "Callable[[Event], object] | TakesEvents | ActorRef[Any]"
"""Whoever can be told of events: a callable, an object with `on_event`, or the ref of any Pykka actor."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscriber that has been checked: how it takes an event, what it is called, how many may wait for it."""

    take: Callable[[Event], object]
    name: str
    capacity: int
    is_actor: bool


def check_subscriber(subscriber: Any, name: object = None, capacity: object = CAPACITY) -> Wanted:
    """Check what is subscribed, in the caller's thread.

    Raises:
        TypeError, ValueError: an argument of the wrong type or out of range, named in the message.

    """
    is_actor, is_class = isinstance(subscriber, ActorRef), isinstance(subscriber, type)
    take: Any = subscriber.tell if is_actor else getattr(subscriber, "on_event", subscriber)
    kind: Any = subscriber.actor_class if is_actor else type(subscriber)  # pyright: ignore[reportUnknownVariableType]
    called: str = getattr(subscriber, "__qualname__", None) or kind.__name__
    if not callable(take) or (is_class and take is not subscriber):
        what = f"the class {called}" if is_class else called
        msg = f"subscriber must be callable with an Event, have a method on_event(event) or be an ActorRef, not {what}"
        raise TypeError(msg)
    if inspect.iscoroutinefunction(take) or inspect.iscoroutinefunction(type(take).__call__):
        msg = f"subscriber must not be a coroutine function, which nobody would await: {called}"
        raise TypeError(msg)
    most = check_count("capacity", capacity, least=1)
    if most is None:
        msg = "capacity must be an int, not None"
        raise TypeError(msg)
    return Wanted(take, called if name is None else check_text("name", name), most, is_actor)


def check_subscribers(subscribers: Iterable[object]) -> tuple[Wanted, ...]:
    """Check several subscribers, each to get its default name and capacity."""
    try:
        return tuple([check_subscriber(subscriber) for subscriber in subscribers])
    except TypeError as error:
        msg = f"subscribers must be an iterable of subscribers: {error}"
        raise TypeError(msg) from None


class Listener:
    """The queue of one subscriber, and what takes from it.

    What waits is counted under the publisher's lock, by both sides: an event is taken, lost or dropped, never two of
    these.
    """

    __slots__ = (
        "_context",
        "_inside",
        "_lock",
        "_mailbox",
        "_publisher",
        "_runtime",
        "_wanted",
        "closed",
        "dropped",
        "lost",
        "name",
        "queued",
    )

    def __init__(self, runtime: Runtime, publisher: Publisher, wanted: Wanted, lock: Any) -> None:
        self.name = wanted.name
        self.queued = 0
        self.lost = 0  # for want of room, since it was last told so
        self.dropped = 0  # for want of room, ever
        self.closed = False
        self._wanted = wanted
        self._runtime = runtime
        self._publisher = publisher
        self._lock = lock
        self._context = Context()  # what one event binds the next one sees, and nobody else
        self._inside: threading.Thread | None = None  # who is inside the subscriber's code
        self._mailbox = Mailbox()
        self._mailbox.attach(self, runtime.observers)

    # -- for the publisher, with its lock held -----------------------------------------------------------------------

    def offer(self, event: Event) -> None:
        """Put an event into the queue; with no room it is lost, and counted unless it is a diagnostic."""
        if self.closed:
            return
        if self.queued < self._wanted.capacity:
            self.queued += 1
            self._mailbox.append(event)
        elif not event.kind.is_diagnostic:
            self.lost += 1
            self.dropped += 1

    def stop(self) -> int:
        """Deliver nothing more; return how many events were waiting."""
        left, self.queued, self.closed = self.queued, 0, True
        return left

    # -- for the publisher, without its lock -------------------------------------------------------------------------

    def wake(self) -> None:
        """See to it that what was offered is delivered."""
        self._mailbox.wake()

    def end(self) -> None:
        """Let go of everything: it has been stopped. A callback that runs is left to itself."""
        self._mailbox.close()
        thread = self._inside
        if thread is not None and thread is not threading.current_thread():
            self._runtime.observers.leave_behind(thread)

    def flush(self, message: Flush) -> None:
        """Have this answered when everything that waits has been taken."""
        self._mailbox.put(message)

    # -- on a thread of the observers --------------------------------------------------------------------------------

    def run_turn(self, items: SimpleQueue[Any], throughput: int) -> None:
        """Deliver up to `throughput` events. For the dispatcher only."""
        thread = threading.current_thread()
        while throughput and not items.empty():
            throughput -= 1
            try:
                item = items.get_nowait()
            except Empty:  # closed meanwhile
                return
            if type(item) is Flush:
                if self._is_done() or items.empty():
                    deliver(item.reply_to, Flushed(item.of_log))
                else:
                    self._mailbox.put(item)  # behind what has come meanwhile
            elif self._take_one():
                self._inside = thread
                try:
                    self._context.run(self._wanted.take, item.copy())
                except BaseException as error:  # noqa: BLE001 - the subscriber's; it costs nobody else anything
                    self._failed(item, error)
                finally:
                    self._inside = None
                if items.empty():
                    self._is_done()

    def _take_one(self) -> bool:
        with self._lock:
            if self.closed:
                return False
            self.queued -= 1
            return True

    def _failed(self, event: Event, error: BaseException) -> None:
        if self._wanted.is_actor and isinstance(error, ActorDeadError):
            self._publisher.unsubscribe(self)
        elif not event.kind.is_diagnostic:
            with suppress(BaseException):  # out of memory; delivery goes on
                self._publisher.panicked(self, error)

    def _is_done(self) -> bool:
        try:
            return self._publisher.catch_up(self)
        except BaseException:  # noqa: BLE001 - out of memory: then it is not told what it has missed
            return True


class Subscription:
    """That somebody is subscribed. Ended by `close`, or by leaving it as a context manager.

    Made by `Supervisor.subscribe`. To drop it changes nothing: the supervisor keeps it.
    """

    __slots__ = ("_listener", "_publisher")

    def __init__(self, publisher: Publisher, listener: Listener) -> None:
        self._publisher = publisher
        self._listener = listener

    @property
    def name(self) -> str:
        """What events about this subscriber call it."""
        return self._listener.name

    @property
    def dropped(self) -> int:
        """How many events it has missed so far because its queue was full."""
        return self._listener.dropped

    @property
    def closed(self) -> bool:
        """Whether it has ended: unsubscribed, or shut down."""
        return self._listener.closed

    def close(self) -> None:
        """Unsubscribe: what waits is dropped, and no other call begins. Waits for nothing; again does nothing."""
        self._publisher.unsubscribe(self._listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Subscription {self.name!r} {state}, {self.dropped} dropped>"
