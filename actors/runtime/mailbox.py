"""A mailbox without a thread: the first message schedules its owner on a dispatcher.

Every item is taken exactly once, by the owner's turn or as a dead letter. `put` appends and then looks at `closed`;
`close` sets `closed` and then drains: whichever of two crossing threads comes second sees the other.

No wake-up is lost. `_scheduled` is a hint that may be wrong in one direction only: while it is up, a turn is due or
running that will take it down and *then* look at the items once more. Scheduled twice is harmless: a turn that finds
nothing, or finds another one running, ends at once. So a thread that is interrupted half-way through `put` (Ctrl-C in
the main thread) takes the hint down and leaves no mailbox behind that nobody would ever run again.
"""

from __future__ import annotations

import abc
import contextlib
from _thread import allocate_lock
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from pykka import ActorDeadError
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from actors.runtime.reply import set_once, set_once_exception

if TYPE_CHECKING:
    from actors.runtime.dispatcher import Dispatcher

__all__ = ["Mailbox", "Owner", "Undeliverable"]


class Undeliverable(abc.ABC):
    """A message that has something to settle when nobody will ever handle it."""

    __slots__ = ()

    @abc.abstractmethod
    def undelivered(self) -> None:
        """Settle it. Called on any thread, for a dead letter, once; must touch no actor's state."""


class Owner(Protocol):
    """Whoever handles what is in a mailbox."""

    def run_turn(self, items: SimpleQueue[Any], throughput: int, /) -> None:
        """Handle up to `throughput` items."""
        ...


class Mailbox:
    """Items in order of arrival, for one owner, handled in turns that never overlap.

    An item is a bare message or, where somebody waits for the reply, a Pykka envelope.
    """

    __slots__ = ("_dispatcher", "_items", "_owner", "_scheduled", "_turn", "closed")

    def __init__(self) -> None:
        self._items: SimpleQueue[Any] = SimpleQueue()
        self._turn = allocate_lock()  # held for the length of a turn
        self._scheduled = False
        self._owner: Owner | None = None
        self._dispatcher: Dispatcher | None = None
        self.closed = False

    @property
    def dispatcher(self) -> Dispatcher | None:
        """The dispatcher that this mailbox is scheduled on, once attached."""
        return self._dispatcher

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a forked child, with no thread to run its turns."""
        return self._dispatcher is not None and self._dispatcher.forked

    @property
    def owner(self) -> Owner | None:
        """Whoever handles the items; None before `attach` and after `close`."""
        return self._owner

    def attach(self, owner: Owner, dispatcher: Dispatcher) -> None:
        """Connect the owner and schedule its first turn."""
        self._owner = owner
        self._dispatcher = dispatcher
        self._schedule()

    def put(self, item: Any) -> None:
        """Append. Never blocks, never raises; in a closed mailbox the item becomes a dead letter."""
        self._items.put(item)
        if self.closed:
            self._drain()
        elif not self._scheduled:
            self._schedule()

    def append(self, item: Any) -> None:
        """Append and do no more, for whoever holds a lock of his own: `wake` must follow once it is free."""
        self._items.put(item)

    def wake(self) -> None:
        """See to it that what was appended is handled."""
        if self.closed:
            self._drain()
        elif not self._scheduled:
            self._schedule()

    def get(self) -> Any:
        """Take the oldest item; raises `queue.Empty` where there is none. Part of Pykka's inbox protocol."""
        return self._items.get_nowait()

    def empty(self) -> bool:
        """Tell whether nothing waits. Part of Pykka's inbox protocol."""
        return self._items.empty()

    def run(self, throughput: int) -> None:
        """Run one turn of the owner. Called by the dispatcher only."""
        if not self._turn.acquire(False):  # noqa: FBT003
            return  # a turn is running, and looks at the items before it ends
        items = self._items
        try:
            owner = self._owner
            if owner is not None:
                owner.run_turn(items, throughput)
        finally:
            owner = None
            self._turn.release()  # before the hint goes down: whoever was turned away above came before that
            self._scheduled = False
            if not items.empty():
                if self.closed:
                    self._drain()
                else:
                    self._schedule()

    def close(self) -> None:
        """Let nothing more in, answer what is left, and let go of the owner."""
        self.closed = True
        self._owner = None
        if not self._items.empty():
            self._drain()

    def _schedule(self) -> None:
        if self._dispatcher is None:
            return  # `attach` will do it
        self._scheduled = True
        try:
            self._dispatcher.schedule(self)
        except BaseException:  # interrupted, or out of memory: the next item tries again
            self._scheduled = False
            raise

    def _drain(self) -> None:
        while not self._items.empty():
            try:
                item = self._items.get_nowait()
            except Empty:
                return
            with contextlib.suppress(BaseException):  # one letter must not keep the others from being answered
                _dead_letter(item)


def _dead_letter(item: Any) -> None:
    message = item
    if type(item) is Envelope:
        message = item.message  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if item.reply_to is not None:
            if type(message) is _ActorStop:  # pyright: ignore[reportUnknownArgumentType]
                set_once(item.reply_to, None)
            else:
                set_once_exception(item.reply_to, ActorDeadError("the actor stopped before handling the message"))
    if isinstance(message, Undeliverable):
        message.undelivered()
